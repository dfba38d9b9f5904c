"""How sure is a figure of a simulation? Intervals, within one run and over several; and where warm-up ends.

Requests of one run resemble their neighbours, so that the usual interval of independent samples would be
far too narrow. Within a run the standard error comes from its slowest waves (`spectrum`); over several seeds,
whose runs are independent, from one figure per run. Every interval is two-sided at 95 %.

**Of latencies the upper end is the farther one.** In a queue under load the error of a mean wait grows with
the square of that mean (Whitt 1989, "Planning queueing simulations"), so that a run that happened to be quiet
looks surer than it is. A higher mean is therefore held possible where what was seen lies within the error
that a run with *that* mean would have.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from math import atan, cos, fsum, inf, isnan, nan, pi, sin, sqrt

import msgspec
import numpy as np

from tidegate.simulate.spectrum import StandardError, Values, standard_error

LEVEL = 0.95
PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
TAIL_SAMPLES = 100
"""A percentile with fewer samples beyond it rests on a handful of requests."""
SURE = 0.25
"""Half of an interval, relative to its mean: beyond it no mean is too high if errors grow so."""
FORGOTTEN = 0.03
"""For how long values may resemble each other, as a share of the run: at least 33 such stretches."""
DOUBTFUL = 2
"""Twice as wide as `SURE` or twice as long as `FORGOTTEN`, and the interval itself is often too narrow.

Up to there intervals of single runs miss what theory says no more often than they may (docs/exactness.md).
"""


class Method(StrEnum):
    """Where an interval comes from."""

    SEEDS = "seeds"
    """Student's t over one figure per seed."""
    SPECTRUM = "spectrum"
    """Student's t, with the error that a run's slowest waves give; for a percentile, of the share below."""
    NONE = "none"
    """Too few samples for any."""


class Estimate(msgspec.Struct, frozen=True):
    """A figure and its 95 % interval: nan where there is none, infinite where the sample sets no bound."""

    value: float = nan
    low: float = nan
    high: float = nan


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A sample in five figures, in the unit of its values."""

    count: int
    """Samples, over all seeds."""
    method: Method
    parts: int
    """Waves or seeds that the intervals rest on."""
    short: bool = False
    """The run is too short for how long its values resemble each other, or for how much they vary."""
    doubtful: bool = False
    """It is so by far, and its intervals are likely too narrow."""
    thin: tuple[str, ...] = ()
    """Percentiles with fewer than `TAIL_SAMPLES` samples beyond them in some run."""
    mean: Estimate
    p50: Estimate
    p95: Estimate
    p99: Estimate
    max: float


def spread_within(values: Values) -> Spread:
    """A run's latencies, in the order in which they arose."""
    ordered = np.sort(values)
    found = standard_error(values)
    mean = _mean(values)
    return Spread(
        count=len(values),
        method=Method.SPECTRUM if found else Method.NONE,
        parts=found.degrees if found else 0,
        short=found is not None and _short(mean, found),
        doubtful=found is not None and _short(mean, found, DOUBTFUL),
        thin=_thin(len(values)),
        mean=_upwards(mean, found) if found and ordered[0] >= 0 else _around(mean, found),
        p50=_percentile(values, ordered, PERCENTILES["p50"]),
        p95=_percentile(values, ordered, PERCENTILES["p95"]),
        p99=_percentile(values, ordered, PERCENTILES["p99"]),
        max=float(ordered[-1]) if len(ordered) else nan,
    )


def spread_over(runs: Sequence[Spread]) -> Spread:
    """Runs of several seeds as one: each figure is the mean of the runs' figures. Of one run, the run itself.

    Runs without a sample say nothing, and are left out.
    """
    told = [run for run in runs if run.count]
    if len(runs) == 1 or not told:
        return runs[0]
    return Spread(
        count=sum(run.count for run in told),
        method=Method.SEEDS if len(told) > 1 else Method.NONE,
        parts=len(told),
        thin=_thin(min(run.count for run in told)),
        mean=estimate_over([run.mean.value for run in told]),
        p50=estimate_over([run.p50.value for run in told]),
        p95=estimate_over([run.p95.value for run in told]),
        p99=estimate_over([run.p99.value for run in told]),
        max=max(run.max for run in told),
    )


def estimate_over(values: Sequence[float]) -> Estimate:
    """The mean of one figure per seed, with Student's interval; figures that do not exist are left out."""
    told = [value for value in values if not isnan(value)]
    if not told:
        return Estimate()
    mean = fsum(told) / len(told)
    if len(told) == 1:
        return Estimate(mean)
    variance = fsum((value - mean) ** 2 for value in told) / (len(told) - 1)
    half = t_quantile(0.5 + LEVEL / 2, len(told) - 1) * sqrt(variance / len(told))
    return Estimate(mean, mean - half, mean + half)


def mean_within(values: Values) -> Estimate:
    """The mean of a run's rates or shares, in their order: as far up as down."""
    return _around(_mean(values), standard_error(values))


def warm_up(values: Values) -> int | None:
    """How many values of a run, in their order, belong to its beginning and not to its steady state.

    None: no steady state is in sight, because the run is too short or the load more than can be served.
    Source: White (1997), MSER-5: cut where the standard error of what is left is least, in steps of 5 values;
    a cut in the second half is no answer.
    """
    batches = len(values) // 5
    if batches < 4:
        return None
    means = values[: batches * 5].reshape(batches, 5).mean(axis=1)
    means = means - means.mean()
    left = np.arange(batches, 0, -1)
    total, squares = np.cumsum(means[::-1])[::-1], np.cumsum(means[::-1] ** 2)[::-1]
    errors = (squares - total**2 / left) / left**2
    cut = int(np.argmin(errors[:-2]))  # the last few batches agree by chance
    return cut * 5 if cut <= batches // 2 else None


@cache
def t_quantile(ratio: float, degrees: int) -> float:
    """Student's t: the value below which `ratio` (0.5..1) lies, with `degrees` of freedom, at least 1."""
    low, high = 0.0, 1.0
    while _t_below(high, degrees) < ratio:
        low, high = high, high * 2
    while (middle := (low + high) / 2) not in (low, high):
        if _t_below(middle, degrees) < ratio:
            low = middle
        else:
            high = middle
    return high


def _t_below(t: float, degrees: int) -> float:
    """Share of Student's t below `t` >= 0. Source: Abramowitz and Stegun (1964), 26.7.3 and 26.7.4."""
    angle = atan(t / sqrt(degrees))
    cosine2 = cos(angle) ** 2
    odd = degrees % 2
    term = cos(angle) if odd else 1.0
    terms = [term] if degrees > 1 else []
    for k in range(2 + odd, degrees - 1, 2):
        term *= cosine2 * (k - 1) / k
        terms.append(term)
    within = sin(angle) * fsum(terms)
    return 0.5 + ((angle + within) / pi if odd else within / 2)


def _mean(values: Values) -> float:
    return float(np.mean(values)) if len(values) else nan


def _half(found: StandardError) -> float:
    return t_quantile(0.5 + LEVEL / 2, found.degrees) * found.error


def _around(mean: float, found: StandardError | None) -> Estimate:
    if found is None:
        return Estimate(mean)
    half = _half(found)
    return Estimate(mean, mean - half, mean + half)


def _upwards(mean: float, found: StandardError) -> Estimate:
    """Of values from 0 on: the true means m with |m - mean| <= half x (m / mean)^2.

    Beyond `SURE` no m is too high. Then the end is twice the mean, or where the interval of the reciprocal
    ends if that is farther; such a run is called short.
    """
    half = _half(found)
    if not half:
        return Estimate(mean, mean, mean)
    relative = half / mean
    low = 2 * mean / (1 + sqrt(1 + 4 * relative))
    if relative >= 1:
        return Estimate(mean, low, inf)
    high = max(2 * mean / (1 + sqrt(max(0.0, 1 - 4 * relative))), mean / (1 - relative))
    return Estimate(mean, low, high)


def _short(mean: float, found: StandardError, by: float = 1) -> bool:
    return found.memory > by * FORGOTTEN or _half(found) > by * SURE * abs(mean)


def _percentile(values: Values, ordered: Values, ratio: float) -> Estimate:
    """Where the share of values below is `ratio`, and where it is so by the interval of that share.

    Sources: Woodruff (1952) for turning a share's interval into a percentile's; Heidelberger and Lewis (1984)
    for doing so with correlated values. Needs no density and no resampling.
    """
    if not len(values):
        return Estimate()
    value = float(np.quantile(ordered, ratio))
    found = standard_error((values <= value).astype(np.float64))
    if found is None:
        return Estimate(value)
    half = _half(found)
    low = float(np.quantile(ordered, ratio - half)) if half < ratio else -inf
    return Estimate(value, low, _upper(ordered, value, ratio, half))


def _upper(ordered: Values, value: float, ratio: float, half: float) -> float:
    """The first value that is too far up for the share below it.

    In a queue under load the error of that share grows as the percentile does; among independent values it
    does not. Its root is between, and measured: such intervals held the truth (docs/exactness.md).
    """
    tail = ordered[int(ratio * len(ordered)) :]
    grows = value > 0 and ordered[0] >= 0
    allowed = half * np.sqrt(tail / value) if grows else np.full(len(tail), half)
    too_far = np.arange(len(tail)) / len(ordered) > allowed
    if too_far.any():
        return float(tail[np.argmax(too_far)])
    # Beyond the sample nothing is known: its maximum is no bound of a percentile that may lie above it.
    return float(tail[-1]) if ratio + half < 1 else inf


def _thin(count: int) -> tuple[str, ...]:
    return tuple(name for name, ratio in PERCENTILES.items() if count * (1 - ratio) < TAIL_SAMPLES - 1e-9)
