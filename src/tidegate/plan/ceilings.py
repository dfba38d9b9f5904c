"""How far can something be raised before it breaks?"""

from __future__ import annotations

from collections.abc import Callable

CLOSE = 1e-3
"""Relative width at which a bisection ends whose result is only told."""
EXACT = 1e-6
"""The same where others are computed from it, or looking is cheap."""


def highest(bearable: Callable[[float], bool], most: float, close: float = EXACT) -> float:
    """The largest number up to `most` that is bearable, of which every smaller one is; 0 where none is."""
    if bearable(most):
        return most
    low, high = 0.0, most
    while high - low > close * high and high > close * most:
        middle = (low + high) / 2
        low, high = (middle, high) if bearable(middle) else (low, middle)
    return low
