"""What became of the requests of a run?"""

from __future__ import annotations

import msgspec


class Counts(msgspec.Struct):
    """What became of the requests that reached the gateway, a client's retries among them."""

    arrived: int = 0
    finished: int = 0
    """The engine's own answer was passed on, truncated ones included."""
    broken: int = 0
    """The answer broke off after its first byte."""
    rejected: int = 0
    evicted: int = 0
    cancelled: int = 0
    """The client left."""
    in_flight: int = 0
    """Not ended when the run ended."""
