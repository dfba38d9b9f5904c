"""Which step times make a simulation agree with what was measured?

Simulation in the loop: constants of a curve are moved until simulated requests take as long as the real ones
did. So nothing needs to be known of single steps; waiting, batching and preemption are the simulator's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from math import exp

import msgspec

from tidegate.core.curve import Linear
from tidegate.core.errors import ConfigurationError

FIELDS = Linear.__struct_fields__
STEPS = (0.2, 0.05, 0.02)
"""Relative steps of the numerical gradient, one search after the other: a discrete simulation jumps, and only
large steps see over its jumps, but only small ones come to the bottom."""
REACH = 3.0
"""How far the logarithm of a constant may move: to 20 times what it was, or a 20th."""


def fit(
    start: Linear,
    errors: Callable[[Linear], Sequence[float]],
    *,
    free: Sequence[str] = FIELDS,
    tries: int = 12,
) -> Linear:
    """The curve near `start` with the smallest sum of squared `errors`; constants that are not `free` stay.

    All constants stay positive, for it is their logarithms that are moved. A try costs a simulation for each
    free constant and one more; each search has `tries` of them. ConfigurationError without scipy. Source of
    the method: a bounded trust region, as scipy's `least_squares` has it ("trf").
    """
    if find_spec("scipy") is None:
        raise ConfigurationError(["calibration needs scipy: pip install 'tidegate[calibration]'"])
    found = start
    for step in STEPS:
        found = _searched(found, errors, free, step, tries)
    return found


def _searched(
    start: Linear, errors: Callable[[Linear], Sequence[float]], free: Sequence[str], step: float, tries: int
) -> Linear:
    """Moved are logarithms; a move of 1 is none, for scipy's step is relative to where it starts."""
    from scipy.optimize import least_squares

    def curve(moves: Iterable[float]) -> Linear:
        factors = zip(free, (exp(move - 1) for move in moves), strict=True)
        return msgspec.structs.replace(start, **{name: getattr(start, name) * by for name, by in factors})

    def errors_at(moves: Iterable[float]) -> list[float]:
        return list(errors(curve(moves)))

    begin = [1.0] * len(free)
    bounds = [1 - REACH] * len(free), [1 + REACH] * len(free)
    found = least_squares(errors_at, begin, bounds=bounds, diff_step=[step] * len(free), max_nfev=tries)
    return curve(map(float, found.x))
