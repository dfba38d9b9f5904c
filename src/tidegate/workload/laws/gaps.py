"""How irregular are arrivals?

A law of gaps between arrivals, scaled to a mean of 1; `arrivals` and `rates` say how fast that clock runs.
The coefficient of variation (CV: standard deviation over mean) says how bursty it is: 0 is a metronome, 1
is Poisson, production traffic has 1 to 13 and more.

The first gap is the wait of somebody who begins to watch at an arbitrary instant (the equilibrium law), not
a whole gap: so a run sees `rate x time` arrivals on average from its first second on. With whole gaps a
bursty run would begin inside of a burst, (CV^2 - 1)/2 arrivals too many. Source: Cox, Renewal Theory
(1962), chapter 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import repeat
from math import exp, isfinite, lgamma, log
from random import Random

import msgspec

from tidegate.core.errors import ConfigurationError

LEAST_CV, MOST_CV = 0.001, 10_000.0
"""Below, arrivals are even; nobody has published any above (ServeGen has a window with 1,038)."""


class Even(msgspec.Struct, frozen=True, tag="even"):
    """A metronome: CV 0."""

    def gaps(self, rng: Random) -> Iterator[float]:
        """Endless, mean 1, the first one equilibrium's."""
        yield rng.uniform(0.0, 1.0)
        yield from repeat(1.0)


class Memoryless(msgspec.Struct, frozen=True, tag="memoryless"):
    """Independent clients, Poisson arrivals: CV 1."""

    def gaps(self, rng: Random) -> Iterator[float]:
        """Endless, mean 1; without memory, so that the first is like all others."""
        draw = rng.expovariate
        while True:
            yield draw(1.0)


class Gamma(msgspec.Struct, frozen=True, tag="gamma"):
    """Gamma-distributed gaps: shape 1/CV^2, scale CV^2.

    ServeGen (arXiv:2505.09999) publishes it as the best fit of four in five windows of a production client.
    """

    cv: float

    def __post_init__(self) -> None:
        _check_cv("gamma", self.cv)

    def gaps(self, rng: Random) -> Iterator[float]:
        """Endless, mean 1, the first one equilibrium's."""
        draw, scale = rng.gammavariate, self.cv**2
        shape = 1.0 / scale
        # The gap around an arbitrary instant is length-biased: x f(x) is gamma again, of shape + 1.
        yield rng.uniform(0.0, 1.0) * draw(shape + 1.0, scale)
        while True:
            yield draw(shape, scale)


class Weibull(msgspec.Struct, frozen=True, tag="weibull"):
    """Weibull-distributed gaps: a heavier tail than Gamma's at the same CV.

    The shape k solves CV^2 = G(1 + 2/k) / G(1 + 1/k)^2 - 1, where G is the gamma function.
    """

    cv: float

    def __post_init__(self) -> None:
        _check_cv("weibull", self.cv)

    def gaps(self, rng: Random) -> Iterator[float]:
        """Endless, mean 1, the first one equilibrium's."""
        draw, shape = rng.weibullvariate, weibull_shape(self.cv)
        scale = exp(-lgamma(1.0 + 1.0 / shape))
        # Length-biased: with x f(x) as the density, (x / scale)^k is gamma of shape 1 + 1/k.
        yield rng.uniform(0.0, 1.0) * scale * rng.gammavariate(1.0 + 1.0 / shape, 1.0) ** (1.0 / shape)
        while True:
            yield draw(scale, shape)


Gaps = Even | Memoryless | Gamma | Weibull


@cache
def weibull_shape(cv: float) -> float:
    """The shape of the Weibull law with that CV, by bisection to the last bit; falls as the CV rises."""
    low, high = log(0.05), log(1e4)  # CV 6e5 down to 1e-4
    target = log(cv**2 + 1.0)
    while low < (middle := (low + high) / 2) < high:
        inverse = exp(-middle)
        if lgamma(1.0 + 2.0 * inverse) - 2.0 * lgamma(1.0 + inverse) > target:
            low = middle
        else:
            high = middle
    return exp(high)


def _check_cv(law: str, cv: float) -> None:
    if not (isfinite(cv) and LEAST_CV <= cv <= MOST_CV):
        raise ConfigurationError([f"cv of {law} gaps is {LEAST_CV:g} to {MOST_CV:g}, not {cv:g}"])
