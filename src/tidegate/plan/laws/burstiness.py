"""How many requests come close together, more or fewer than at random?

Over long windows the number of arrivals varies by the squared coefficient of variation of the gaps, which is
what queues of minutes feel. A step of an engine is short, and only what comes within it is met together. Gaps
are taken for gamma-distributed, with which BurstGPT (Wang and others, 2024) and load generators describe
bursts.
"""

from __future__ import annotations

from math import exp, lgamma, log

LONG = 4.0
"""Mean gaps of a window after which only the long run counts."""
SMOOTHEST = 0.02
"""Squared coefficient of variation; smoother arrivals are taken for such."""
SMALL = 1e-6


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
    shape = 1 / max(cv2, SMOOTHEST)
    within, number = 0.0, 0
    while True:
        number += 1
        chance = _gamma_within(number * shape, shape * expected)
        within += chance
        if chance < SMALL:
            return within - expected


def _gamma_within(shape: float, scaled: float) -> float:
    """The gamma law's distribution function, by its power series (Abramowitz and Stegun, 6.5.29)."""
    term = total = exp(shape * log(scaled) - scaled - lgamma(shape + 1))
    above = shape
    while term > SMALL * total / 10:
        above += 1
        term *= scaled / above
        total += term
    return total
