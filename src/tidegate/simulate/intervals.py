"""How sure is a figure of a simulation? Intervals, within one run and over several; and where warm-up ends.

Requests of one run resemble their neighbours, so that the usual interval of independent samples would be far
too narrow. Within a run the interval comes from the means of long batches; over several seeds, whose runs are
independent, from one figure per run. Every interval is two-sided at 95 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from math import atan, cos, fsum, inf, isnan, nan, pi, sin, sqrt

import msgspec
import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

LEVEL = 0.95
PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
TAIL_SAMPLES = 100
"""A percentile with fewer samples beyond it rests on a handful of requests."""
BATCHES = (32, 16, 8)
"""Numbers of batches, tried in this order. More than 30 narrow an interval by little (Schmeiser 1982)."""
FINER = 4
CORRELATED = 0.25
"""Batches are long enough once the means of batches `FINER` times as short hang together by less (lag 1).

The idea is Law and Carson's (1979), who judge 400 short batches and use 40: the correlation of a few batches
is mostly noise. Theirs is 0.4; with 0.25 intervals under load held the truth in 88 to 94 % of simulated runs
instead of 83 to 88 %, and others in as many as before. Close to saturation it is 60 to 92 %, and several
seeds are what helps (docs/guides/simulate.md).
"""
FEWEST = BATCHES[-1] * FINER
"""Samples below which a run has no interval."""


class Method(StrEnum):
    """Where an interval comes from."""

    SEEDS = "seeds"
    """Student's t over one figure per seed."""
    BATCHES = "batch_means"
    """Student's t over the means of batches; for a percentile, of the share of values below it."""
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
    """Batches or seeds that the intervals rest on."""
    correlated: bool = False
    """Even the longest batches hang together: the intervals are too narrow, and the run too short."""
    thin: tuple[str, ...] = ()
    """Percentiles with fewer than `TAIL_SAMPLES` samples beyond them in some run."""
    mean: Estimate
    p50: Estimate
    p95: Estimate
    p99: Estimate
    max: float


def spread_within(values: Values) -> Spread:
    """A run's values, in the order in which they arose."""
    ordered = np.sort(values)
    batches = batches_of(values)
    return Spread(
        count=len(values),
        method=Method.BATCHES if batches else Method.NONE,
        parts=batches,
        correlated=bool(batches) and _hangs_together(values, batches),
        thin=_thin(len(values)),
        mean=mean_within(values),
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
    """The mean of a run's values, in their order, by batch means."""
    if not len(values):
        return Estimate()
    mean, half = float(np.mean(values)), _half_width(values)
    return Estimate(mean, mean - half, mean + half)


def batches_of(values: Values) -> int:
    """How many batches the interval of a run rests on; 0 if it has too few values for any."""
    if len(values) < FEWEST:
        return 0
    for count in BATCHES:
        if len(values) >= count * FINER and not _hangs_together(values, count):
            return count
    return BATCHES[-1]


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


def _percentile(values: Values, ordered: Values, ratio: float) -> Estimate:
    """Where the share of values below is `ratio`, and where it is so by the interval of that share.

    Sources: Woodruff (1952) for turning a share's interval into a percentile's; Heidelberger and Lewis (1984)
    for doing so with correlated values. Needs no density and no resampling.
    """
    if not len(values):
        return Estimate()
    value = float(np.quantile(ordered, ratio))
    half = _half_width((values <= value).astype(np.float64))
    if isnan(half):
        return Estimate(value)
    # Beyond the sample nothing is known: its maximum is no bound of a percentile that may lie above it.
    low = float(np.quantile(ordered, ratio - half)) if half < ratio else -inf
    high = float(np.quantile(ordered, ratio + half)) if ratio + half < 1 else inf
    return Estimate(value, low, high)


def _half_width(values: Values) -> float:
    count = batches_of(values)
    if not count:
        return nan
    variance = float(np.var(_means(values, count), ddof=1)) * _left_out(_correlation(values, count))
    return t_quantile(0.5 + LEVEL / 2, count - 1) * sqrt(variance / count)


def _left_out(correlation: float) -> float:
    """By how much the variance of a mean is above what batches as long as four that hang together say.

    For means whose correlation falls off as its powers: all lags against those within a batch.
    """
    r = min(max(0.0, correlation), 0.95)
    within = 1 + 2 * (0.75 * r + 0.5 * r**2 + 0.25 * r**3)
    return (1 + r) / (1 - r) / within


def _hangs_together(values: Values, batches: int) -> bool:
    return _correlation(values, batches) >= CORRELATED


def _correlation(values: Values, batches: int) -> float:
    """Of the means of neighbouring batches that are `FINER` times as short; 0 where nothing varies."""
    means = _means(values, batches * FINER)
    means = means - means.mean()
    variance = float(means @ means)
    return float(means[1:] @ means[:-1]) / variance if variance > 0 else 0.0


def _means(values: Values, batches: int) -> Values:
    size = len(values) // batches
    means: Values = values[: size * batches].reshape(batches, size).mean(axis=1)
    return means


def _thin(count: int) -> tuple[str, ...]:
    return tuple(name for name, ratio in PERCENTILES.items() if count * (1 - ratio) < TAIL_SAMPLES - 1e-9)
