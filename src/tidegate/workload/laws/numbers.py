"""How are the numbers spread that a workload draws: tokens, turns, seconds of thought?

Each law draws floats from dice; who draws tokens or turns rounds them. A bound clamps: what a law would put
beyond it lies on it, as prompts that a service cuts do.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, pairwise, repeat
from math import exp, inf, isfinite, log, sqrt
from random import Random
from statistics import NormalDist

import msgspec

from tidegate.core.errors import ConfigurationError

_Z95 = NormalDist().inv_cdf(0.95)


class Fixed(msgspec.Struct, frozen=True, tag="fixed"):
    """Always the same."""

    value: float

    def __post_init__(self) -> None:
        _check("fixed", value=self.value)

    def draws(self, rng: Random) -> Iterator[float]:
        """Endless; needs no dice."""
        return repeat(self.value)


class Exponential(msgspec.Struct, frozen=True, tag="exponential"):
    """Without memory, as waits and service are in textbooks."""

    mean: float

    def __post_init__(self) -> None:
        _check("exponential", above=0, mean=self.mean)

    def draws(self, rng: Random) -> Iterator[float]:
        """Endless."""
        while True:
            yield rng.expovariate(1.0 / self.mean)


class Lognormal(msgspec.Struct, frozen=True, kw_only=True, tag="lognormal"):
    """The usual shape of lengths, given by mean and CV or by P50 and P95, of the law without its bounds.

    sigma^2 = ln(1 + CV^2) and mu = ln(mean) - sigma^2 / 2; mu = ln(P50) and sigma = ln(P95 / P50) / 1.645.
    """

    mean: float | None = None
    cv: float | None = None
    p50: float | None = None
    p95: float | None = None
    least: float = 0.0
    most: float = inf

    def __post_init__(self) -> None:
        given = {
            name: value for name in ("mean", "cv", "p50", "p95") if (value := getattr(self, name)) is not None
        }
        if set(given) not in ({"mean", "cv"}, {"p50", "p95"}):
            has = ", ".join(given) or "neither"
            raise ConfigurationError(
                [f"lognormal is given by mean and cv, or by p50 and p95; this has {has}"]
            )
        _check("lognormal", above=0, **{name: value for name, value in given.items() if name != "cv"})
        _check("lognormal", cv=given.get("cv", 0.0))
        if given.get("p95", inf) < given.get("p50", 0.0):
            raise ConfigurationError([f"lognormal: p95 is at least p50, not {self.p95:g}"])
        if not 0 <= self.least <= self.most:
            raise ConfigurationError([f"lognormal: least is 0 to most ({self.most:g}), not {self.least:g}"])

    def draws(self, rng: Random) -> Iterator[float]:
        """Endless, within the bounds."""
        mu, sigma = self._parameters()
        while True:
            yield min(self.most, max(self.least, exp(rng.gauss(mu, sigma))))

    def _parameters(self) -> tuple[float, float]:
        if self.mean is not None and self.cv is not None:
            variance = log(1.0 + self.cv**2)
            return log(self.mean) - variance / 2, sqrt(variance)
        assert self.p50 is not None
        assert self.p95 is not None
        return log(self.p50), log(self.p95 / self.p50) / _Z95


class Empirical(msgspec.Struct, frozen=True, tag="empirical"):
    """Values as they were measured, each as likely as its weight; all alike without weights."""

    values: tuple[float, ...]
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not self.values:
            raise ConfigurationError(["empirical: values is empty; give at least one"])
        for value in self.values:
            _check("empirical", values=value)
        if self.weights is None:
            return
        if len(self.weights) != len(self.values):
            counts = f"{len(self.weights)} weights for {len(self.values)} values"
            raise ConfigurationError([f"empirical: {counts}; give one for each, or none"])
        for weight in self.weights:
            _check("empirical", weights=weight)
        if not any(self.weights):
            raise ConfigurationError(["empirical: weights are all 0; give one above"])

    def draws(self, rng: Random) -> Iterator[float]:
        """Endless; one of the values each."""
        bounds = list(accumulate(self.weights or repeat(1.0, len(self.values))))
        total, last = bounds[-1], len(bounds) - 1
        while True:
            # A weight of 0 is a step of no height, which bisect_right passes.
            yield self.values[min(last, bisect_right(bounds, rng.random() * total))]


class Quantiles(msgspec.Struct, frozen=True, tag="quantiles"):
    """A table of quantiles, with straight lines between: its inverse distribution function."""

    points: tuple[tuple[float, float], ...]
    """(share of all that lies below, value), from share 0 to share 1."""

    def __post_init__(self) -> None:
        shares = [share for share, _ in self.points]
        if len(shares) < 2 or shares[0] != 0 or shares[-1] != 1:
            raise ConfigurationError([f"quantiles: points go from share 0 to share 1, not over {shares}"])
        for (share, value), (next_share, next_value) in pairwise(self.points):
            if not (share < next_share and value <= next_value):
                problem = f"({next_share:g}, {next_value:g}) comes after ({share:g}, {value:g})"
                raise ConfigurationError([f"quantiles: points rise in share and value; {problem}"])
        _check("quantiles", points=self.points[0][1])
        _check("quantiles", points=self.points[-1][1])

    @property
    def mean(self) -> float:
        """The area under the inverse distribution function."""
        return sum((b - a) * (u + v) / 2 for (a, u), (b, v) in pairwise(self.points))

    def draws(self, rng: Random) -> Iterator[float]:
        """Endless, between the first and the last value."""
        shares = [share for share, _ in self.points]
        while True:
            drawn = rng.random()
            place = bisect_right(shares, drawn)
            (low, value), (high, next_value) = self.points[place - 1], self.points[place]
            yield value + (next_value - value) * (drawn - low) / (high - low)


Law = Fixed | Exponential | Lognormal | Empirical | Quantiles


def whole(draws: Iterator[float], least: int = 1) -> Iterator[int]:
    """Draws as whole numbers, each at least `least`."""
    return (max(least, round(drawn)) for drawn in draws)


def _check(law: str, *, above: float | None = None, **fields: float) -> None:
    for field, value in fields.items():
        if not isfinite(value) or value < 0 or (above is not None and value <= above):
            bound = "at least 0" if above is None else f"above {above:g}"
            raise ConfigurationError([f"{law}: {field} is a number {bound}, not {value:g}"])
