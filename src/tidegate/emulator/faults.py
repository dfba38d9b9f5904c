"""What may be made to go wrong, and for which requests?

A fault without `after_tokens` and `requests` that stalls, crashes or slows strikes the whole replica; every
other one strikes answers one by one, those under way included: at once, or when they have said
`after_tokens` tokens.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """Ways to fail."""

    STALL = "stall"
    """Nothing more is computed or said; connections stay open and /health stays well."""
    CRASH = "crash"
    """The port closes and what the replica held is lost; it comes back empty. One answer: it breaks off."""
    ERROR_500 = "error_500"
    BUSY_503 = "busy_503"
    GARBAGE = "garbage"
    """Status 200, and a body that is not what it says."""
    SLOW = "slow"
    """Each step takes `factor` times as long."""


_OF_A_REPLICA = frozenset({Kind.STALL, Kind.CRASH, Kind.SLOW})


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that goes wrong on purpose."""

    kind: Kind
    seconds: float | None = None
    """How long; None: until cleared."""
    after_tokens: int | None = None
    """Strike an answer when it has said so many tokens."""
    requests: int | None = None
    """Strike only the next so many requests."""
    factor: float = 5.0
    """For `slow`."""
    retry_after_s: int | None = None
    """For `busy_503`: its Retry-After."""
    port: int | None = None
    """Of the replica meant; None: the one that is asked."""

    @property
    def of_replica(self) -> bool:
        """True if it strikes the replica as a whole."""
        return self.kind in _OF_A_REPLICA and self.after_tokens is None and self.requests is None

    def problem(self) -> str | None:
        """Why it cannot be, if so."""
        if self.kind is Kind.SLOW and not self.of_replica:
            return "slow concerns a whole replica: it takes neither after_tokens nor requests"
        if self.factor <= 0:
            return "factor must be above 0"
        for name in ("seconds", "after_tokens", "requests", "retry_after_s"):
            value = getattr(self, name)
            if value is not None and value < 0:
                return f"{name} must not be negative"
        return None
