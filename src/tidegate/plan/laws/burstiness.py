"""How many requests come close together, more or fewer than at random?

Over long windows the number of arrivals varies by the squared coefficient of variation of the gaps, which is
what queues of minutes feel. A step of an engine is short, and only what comes within it is met together. Gaps
are taken for gamma-distributed, with which BurstGPT (Wang and others, 2024) and load generators describe
bursts.
"""

from __future__ import annotations

from functools import cache
from math import comb, exp, lgamma, log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LONG = 4.0
"""Mean gaps of a window after which only the long run counts."""
SMOOTHEST = 0.02
"""Squared coefficient of variation; smoother arrivals are taken for such."""
SMALL = 1e-6
EVEN = 0.25
"""Squared coefficient of variation, up to which few sums of gaps count; beyond, there are many, of which the
transform is known."""
DAMPED, PLAIN, AVERAGED = 18.4, 15, 11
"""Of an inversion: e^-18.4 is what it errs by, and the terms that are summed and that are averaged."""


def excess(rate_per_s: float, cv2: float, window_s: float) -> float:
    """Arrivals within `window_s` after an arrival, beyond the mean number of any window of that length.

    The n-th next comes within it with the chance of a gamma law of shape n/cv2, so that a renewal process has
    the sum of these chances. It tends to (cv2 - 1) / 2; for Poisson arrivals it is 0. Source: Cox, Renewal
    Theory (1962), chapter 4.
    """
    expected = rate_per_s * window_s
    if cv2 == 1 or not expected:
        return 0.0
    if expected > LONG:
        return (cv2 - 1) / 2
    return _inverted(cv2, expected) if cv2 > EVEN else _summed(max(cv2, SMOOTHEST), expected)


def _summed(cv2: float, expected: float) -> float:
    """Chance by chance, until one is small."""
    shape = 1 / cv2
    within, number = 0.0, 0
    while True:
        number += 1
        chance = _gamma_within(number * shape, shape * expected)
        within += chance
        if chance < SMALL:
            return within - expected


def _inverted(cv2: float, expected: float) -> float:
    """All chances at once: the transform of their sum is f / (s (1 - f)), f = (1 + cv2 s)^(-1/cv2) of a gap.

    Without 1/s², that of what is expected, which is inverted once. Inverted by Euler's summation of its
    Fourier series (Abate and Whitt, Numerical inversion of Laplace transforms of probability distributions,
    ORSA J. Computing 7 (1995)); to 1e-8 of the sum.
    """
    nodes, weights, straight = _euler()
    s = nodes / expected
    transform = 1 / (s * ((1 + cv2 * s) ** (1 / cv2) - 1))
    return float(weights @ transform.real) / expected - straight * expected


@cache
def _euler() -> tuple[NDArray[np.complex128], NDArray[np.float64], float]:
    """Where a transform is asked, times the instant; the weights of what is found; and 1/s² inverted at 1."""
    import numpy as np

    terms = np.arange(PLAIN + AVERAGED + 1, dtype=float)
    weights = np.where(terms % 2, -1.0, 1.0) * exp(DAMPED / 2)
    weights[0] /= 2
    # The mean of the last partial sums by binomial weights: a term counts in those that reach it.
    chances = [comb(AVERAGED, each) / 2**AVERAGED for each in range(AVERAGED + 1)]
    weights[PLAIN + 1 :] *= [sum(chances[each:]) for each in range(1, AVERAGED + 1)]
    nodes = (DAMPED / 2 + 1j * np.pi * terms).astype(np.complex128)
    return nodes, weights, float(weights @ (1 / nodes**2).real)


def _gamma_within(shape: float, scaled: float) -> float:
    """The gamma law's distribution function, by its power series (Abramowitz and Stegun, 6.5.29)."""
    term = total = exp(shape * log(scaled) - scaled - lgamma(shape + 1))
    above = shape
    while term > SMALL * total / 10:
        above += 1
        term *= scaled / above
        total += term
    return total
