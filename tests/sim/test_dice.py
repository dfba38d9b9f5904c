"""Dice are of a seed and a purpose."""

from __future__ import annotations

from tidegate.sim.dice import dice


def test_each_purpose_has_its_own_dice() -> None:
    """The same for the same seed and purpose, and others for others."""
    draws = [dice(seed, purpose).random() for seed, purpose in [(1, "a"), (1, "a"), (1, "b"), (2, "a")]]

    assert draws[0] == draws[1]
    assert len(set(draws)) == 3
