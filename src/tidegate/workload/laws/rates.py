"""How does the rate of arrivals change over time?

A rate function knows its integral, the expected number of arrivals until an instant, and the inverse of that:
the instant at which so many are expected. A renewal process that runs on expected arrivals instead of seconds
then has that rate at each instant and keeps its burstiness (time rescaling; for Poisson it is exact:
Cinlar, Introduction to Stochastic Processes (1975), section 4.7).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import cos, floor, inf, isfinite, pi, sin, sqrt

import msgspec

from tidegate.core.errors import ConfigurationError

_EXACT, _MOST_STEPS = 1e-15, 100
"""A step, relative to its instant, at which that is as exact as floats are; and how many at most."""

Inverse = Callable[[float], float]
"""Expected arrivals -> the instant by which they are expected, in seconds; inf if they never are."""


class Steady(msgspec.Struct, frozen=True, tag="steady"):
    """The same rate for ever."""

    rate_per_s: float

    def __post_init__(self) -> None:
        _check_rates("rate_per_s", [self.rate_per_s])

    def expected(self, at_s: float) -> float:
        """Arrivals expected from 0 until `at_s`."""
        return self.rate_per_s * at_s

    def inverse(self) -> Inverse:
        """Of `expected`."""
        return lambda expected: expected / self.rate_per_s


class Piecewise(msgspec.Struct, frozen=True, tag="piecewise"):
    """Rates at instants, from 0 on; after the last one its rate stays, or all repeats every `period_s`.

    `linear` joins the points by straight lines (a period ends back at the first rate), else each rate holds
    until the next point. Both are integrated and inverted exactly.
    """

    points: tuple[tuple[float, float], ...]
    """(seconds since the start, requests per second)."""
    linear: bool = False
    period_s: float | None = None

    def __post_init__(self) -> None:
        if not self.points or self.points[0][0] != 0:
            raise ConfigurationError(["points of a rate begin at 0 s: the first is (0, rate)"])
        starts = [at_s for at_s, _ in self.points]
        for earlier, later in pairwise(starts):
            if not earlier < later < inf:
                problem = f"{later:g} s comes after {earlier:g} s"
                raise ConfigurationError([f"points of a rate are in ascending order of time; {problem}"])
        _check_rates("points", [rate for _, rate in self.points])
        if self.period_s is not None and not starts[-1] < self.period_s < inf:
            problem = f"above the last point's {starts[-1]:g} s, not {self.period_s:g}"
            raise ConfigurationError([f"period_s of a rate is {problem}"])
        if self.period_s is not None and self.expected(self.period_s) <= 0:
            raise ConfigurationError(["points of a rate: one of them is above 0 in each period"])

    def expected(self, at_s: float) -> float:
        """Arrivals expected from 0 until `at_s`. Costs time in proportion to the points."""
        pieces, laps = self._pieces(), 0.0
        if self.period_s is not None:
            laps, at_s = divmod(at_s, self.period_s)
        piece = pieces[bisect_right(pieces, at_s, key=lambda each: each.start_s) - 1]
        return laps * self._lap(pieces) + piece.until(at_s)

    def inverse(self) -> Inverse:
        """Of `expected`; costs time in proportion to the points once, and to their logarithm per call."""
        pieces, period_s = self._pieces(), self.period_s
        befores = [piece.before for piece in pieces]
        lap = self._lap(pieces)

        def instant_of(expected: float) -> float:
            laps = floor(expected / lap) if period_s is not None else 0
            rest = max(0.0, expected - laps * lap) if laps else expected
            within_s = pieces[bisect_right(befores, rest) - 1].instant_of(rest)
            return laps * period_s + within_s if period_s is not None else within_s

        return instant_of

    def _pieces(self) -> list[_Piece]:
        end_s = inf if self.period_s is None else self.period_s
        ends = [*self.points[1:], (end_s, self.points[0 if self.period_s is not None else -1][1])]
        pieces: list[_Piece] = []
        before = 0.0
        for (start_s, rate), (until_s, until_rate) in zip(self.points, ends, strict=True):
            sloped = self.linear and until_s < inf
            piece = _Piece(
                start_s, before, rate, (until_rate - rate) / (until_s - start_s) if sloped else 0.0
            )
            pieces.append(piece)
            before = piece.until(until_s) if until_s < inf else before
        return pieces

    def _lap(self, pieces: Sequence[_Piece]) -> float:
        return pieces[-1].until(self.period_s) if self.period_s is not None else 0.0


class Diurnal(msgspec.Struct, frozen=True, tag="diurnal"):
    """A day that comes and goes: mean x (1 + swing x cos(2 pi (t - peak) / period))."""

    mean_per_s: float
    swing: float = 0.5
    """Of the mean, 0..1: at the peak the rate is 1 + swing of it, at night 1 - swing."""
    peak_s: float = 0.0
    """When the peak is, in seconds after the start."""
    period_s: float = 86_400.0

    def __post_init__(self) -> None:
        _check_rates("mean_per_s", [self.mean_per_s])
        if not 0 <= self.swing <= 1:
            raise ConfigurationError([f"swing of a diurnal rate is 0 to 1, not {self.swing:g}"])
        if not isfinite(self.peak_s):
            raise ConfigurationError(
                [f"peak_s of a diurnal rate is a number of seconds, not {self.peak_s:g}"]
            )
        if not 0 < self.period_s < inf:
            raise ConfigurationError([f"period_s of a diurnal rate is above 0, not {self.period_s:g}"])

    def expected(self, at_s: float) -> float:
        """Arrivals expected from 0 until `at_s`."""
        turn = 2 * pi / self.period_s
        # sin(turn (t - peak)) + sin(turn peak), as a product: nothing cancels.
        wave = 2 * sin(turn * at_s / 2) * cos(turn * (at_s / 2 - self.peak_s))
        return self.mean_per_s * (at_s + self.swing * wave / turn)

    def inverse(self) -> Inverse:
        """Of `expected`: Newton's steps, halved where the rate is near 0 and they would leap too far."""
        # The wave never holds the integral further from the mean's straight line than this.
        slack_s = self.swing * self.period_s / pi
        turn = 2 * pi / self.period_s

        def instant_of(expected: float) -> float:
            at_s = expected / self.mean_per_s
            low_s, high_s = max(0.0, at_s - slack_s), at_s + slack_s
            for _ in range(_MOST_STEPS):
                missing = expected - self.expected(at_s)
                low_s, high_s = (at_s, high_s) if missing > 0 else (low_s, at_s)
                rate = self.mean_per_s * (1 + self.swing * cos(turn * (at_s - self.peak_s)))
                next_s = at_s + missing / rate if rate > 0 else inf
                if not low_s <= next_s <= high_s:
                    next_s = (low_s + high_s) / 2
                if abs(next_s - at_s) <= _EXACT * at_s:
                    break
                at_s = next_s
            return at_s

        return instant_of


Rate = Steady | Piecewise | Diurnal


class _Piece(msgspec.Struct, frozen=True):
    """A stretch in which the rate is a straight line: `before` arrivals are expected until it starts."""

    start_s: float
    before: float
    rate: float
    slope: float

    def until(self, at_s: float) -> float:
        past_s = at_s - self.start_s
        return self.before + past_s * (self.rate + self.slope * past_s / 2)

    def instant_of(self, expected: float) -> float:
        """The root of the quadratic in the form that cancels nothing, whichever sign the slope has."""
        area = expected - self.before
        steepness = self.rate + sqrt(max(0.0, self.rate**2 + 2 * self.slope * area))
        if area > 0 and steepness > 0:
            return self.start_s + 2 * area / steepness
        return self.start_s if self.rate or self.slope else inf


def _check_rates(field: str, rates: Sequence[float]) -> None:
    for rate in rates:
        if not (isfinite(rate) and rate >= 0):
            raise ConfigurationError([f"{field}: a rate is at least 0 requests per second, not {rate:g}"])
    if not any(rates):
        raise ConfigurationError([f"{field}: a rate that is 0 for ever sends nothing; give one above 0"])
