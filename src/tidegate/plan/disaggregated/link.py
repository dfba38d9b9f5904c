"""Over what do keys and values travel, from replicas that compute prompts to those that decode?"""

from __future__ import annotations

from math import inf

import msgspec

from tidegate.core.errors import ConfigurationError


class Link(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How caches travel."""

    bytes_per_s: float
    latency_s: float = 0.0
    """Of each transfer, beside its bytes."""
    shared: bool = True
    """All share it, as simulated replicas do; False: each replica has one, to send or to receive."""
    kv_bytes_per_token: float | None = None
    """Of a prompt, as measured; None: as the model has it."""

    def count(self, prefill_replicas: int, decode_replicas: int) -> int:
        """Of links that carry at once."""
        return 1 if self.shared else min(prefill_replicas, decode_replicas)

    def __post_init__(self) -> None:
        """ConfigurationError for a link that carries nothing."""
        if not 0 < self.bytes_per_s < inf or not 0 <= self.latency_s < inf:
            raise ConfigurationError(
                [f"a link carries more than 0 bytes/s, and finitely many, not {self.bytes_per_s:g}"]
            )
