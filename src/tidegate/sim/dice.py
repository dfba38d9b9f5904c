"""Whose luck is whose?"""

from __future__ import annotations

from random import Random


def dice(seed: int, purpose: str) -> Random:
    """Dice of their own for each purpose: what one draws moves nothing for another."""
    return Random(f"{seed} {purpose}")
