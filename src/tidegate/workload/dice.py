"""Whose dice are these, and whose number is that?

Each stream of a workload (one tenant's arrivals, one session's lengths) has dice of its own, made from the
run's seed and the stream's name, so that another tenant, or one that asks more often, moves nobody else's
draws. For the same reason sessions and prefix blocks are numbered under their source's name, not in order
of appearance.
"""

from __future__ import annotations

from hashlib import sha256
from random import Random

from tidegate.core.errors import CallerError

_SOURCE_BITS, _SESSION_BITS, _BLOCK_BITS = 20, 23, 20
MOST_SESSIONS = 1 << _SESSION_BITS
"""Of one source, 8 million."""
MOST_BLOCKS = 1 << _BLOCK_BITS
"""Of one session, a million: 16 million tokens in blocks of 16."""


def dice(seed: int, *names: str | int) -> Random:
    """Dice of the stream that `names` name; the same on every machine and in every process."""
    return Random(_digest(seed, *names))


def source_number(name: str) -> int:
    """A number below 2**20 for a source of requests."""
    return _digest(name) >> (64 - _SOURCE_BITS)


def session_number(source: int, index: int) -> int:
    """A number below 2**43 for a source's session; `source_of` and `index_of` take it apart."""
    if not 0 <= index < MOST_SESSIONS:
        raise CallerError(f"a source has sessions 0 to {MOST_SESSIONS - 1}, not {index}")
    return source << _SESSION_BITS | index


def source_of(session: int) -> int:
    """The source's number."""
    return session >> _SESSION_BITS


def index_of(session: int) -> int:
    """Which of the source's sessions."""
    return session & (MOST_SESSIONS - 1)


def block_number(session: int, index: int) -> int:
    """A number below 2**63 for a block of a session; those of consecutive blocks are consecutive."""
    if not 0 <= index < MOST_BLOCKS:
        raise CallerError(f"a session has blocks 0 to {MOST_BLOCKS - 1}, not {index}")
    return session << _BLOCK_BITS | index


def recorded_number(source: int, recorded: int) -> int:
    """A number below 2**63 for a session or block that a trace numbered; equal ones stay equal."""
    return (source << (_SESSION_BITS + _BLOCK_BITS)) ^ recorded


def _digest(*parts: str | int) -> int:
    # Lengths keep ("a", "bc") and ("ab", "c") apart; types keep 1 and "1" apart.
    text = "".join(f"{type(part).__name__}{len(str(part))}:{part}" for part in parts)
    return int.from_bytes(sha256(text.encode()).digest()[:8])
