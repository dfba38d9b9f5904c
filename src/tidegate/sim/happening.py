"""What does a replica tell?

Not in `sequence.py`, for a class of msgspec may not be compiled, and sequences are.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.sim.sequence import Sequence

FIRST_TOKEN: Final = 0
"""The first output token is there."""
PROGRESS: Final = 1
"""The output has reached its sequence's mark or a doubling of it, and goes on."""
FINISHED: Final = 2
"""The last output token is there; of an output of none, the prompt is computed."""


class Happening(msgspec.Struct, frozen=True, gc=False):
    """Something about a sequence that whoever sent it wants to know."""

    at: float
    kind: int
    """FIRST_TOKEN, PROGRESS or FINISHED."""
    sequence: Sequence
    output_tokens: int
    """Produced so far."""
