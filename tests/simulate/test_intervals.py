"""Are the intervals as sure as they say, and is the beginning of a run found?"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isnan, log, sqrt
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import signal, stats

from tidegate.simulate.intervals import (
    Estimate,
    Method,
    Spread,
    estimate_over,
    mean_within,
    spread_over,
    spread_within,
    t_quantile,
    warm_up,
)
from tidegate.simulate.spectrum import FEWEST, Values


def autoregressive(phi: float, count: int, rng: np.random.Generator) -> Values:
    """A stationary AR(1) series with standard normal values."""
    noise = rng.standard_normal(count) * sqrt(1 - phi * phi)
    series, _ = signal.lfilter([1.0], [1.0, -phi], noise, zi=np.array([phi * rng.standard_normal()]))
    return np.asarray(series)


def as_waits(series: Values) -> Values:
    """The same series with exponential values, whose tail is long like that of latencies."""
    return np.asarray(-np.log(stats.norm.sf(series)))


def as_it_is(series: Values) -> Values:
    """Normal values."""
    return series


NORMAL = {"mean": 0.0, "p50": 0.0, "p95": NormalDist().inv_cdf(0.95), "p99": NormalDist().inv_cdf(0.99)}
WAITS = {"mean": 1.0, "p50": log(2), "p95": -log(0.05), "p99": -log(0.01)}


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 7, 8, 15, 19, 31, 100, 1_001])
def test_t_quantile(degrees: int) -> None:
    """Student's t is that of scipy."""
    for ratio in (0.5, 0.6, 0.9, 0.975, 0.995, 0.9995):
        assert t_quantile(ratio, degrees) == pytest.approx(
            float(stats.t.ppf(ratio, degrees)), rel=1e-9, abs=1e-12
        )


@pytest.mark.parametrize(
    "shape, truth", [(as_it_is, NORMAL), (as_waits, WAITS)], ids=["normal", "exponential"]
)
@pytest.mark.parametrize("phi, count", [(0.0, 2_000), (0.0, 20_000), (0.9, 20_000), (0.97, 20_000)])
def test_intervals_within_a_run_cover(
    phi: float, count: int, shape: Callable[[Values], Values], truth: dict[str, float]
) -> None:
    """A 95 % interval holds the truth in 90 to 99 % of runs, whether values hang together or not."""
    rng = np.random.default_rng(round(phi * 100) + count)
    runs = [spread_within(shape(autoregressive(phi, count, rng))) for _ in range(300)]

    for name, true in truth.items():
        found: list[Estimate] = [getattr(run, name) for run in runs]
        covered = sum(each.low <= true <= each.high for each in found) / len(runs)
        assert 0.90 <= covered <= 0.99, (name, covered)
    assert {run.method for run in runs} == {Method.SPECTRUM}


def test_intervals_over_seeds_cover() -> None:
    """So does that over the figures of independent runs, of percentiles too."""
    rng = np.random.default_rng(3)
    covered = dict.fromkeys(WAITS, 0)
    for _ in range(200):
        runs = [spread_within(as_waits(autoregressive(0.5, 4_000, rng))) for _ in range(8)]
        together = spread_over(runs)
        assert (together.method, together.parts, together.count) == (Method.SEEDS, 8, 32_000)
        for name, true in WAITS.items():
            each: Estimate = getattr(together, name)
            covered[name] += each.low <= true <= each.high

    assert all(0.90 <= count / 200 <= 0.99 for count in covered.values()), covered


def waits(load: float, runs: int, count: int, rng: np.random.Generator) -> Values:
    """Those of as many runs of M/D/1, from an empty queue on, without their first tenth. Service takes 1."""
    gaps = rng.exponential(1 / load, (runs, count))
    walk = np.cumsum(1 - gaps, axis=1)
    found: Values = walk - np.minimum(np.minimum.accumulate(walk, axis=1), 0)
    return found[:, count // 10 :]


@pytest.mark.parametrize("load, count", [(0.5, 5_000), (0.7, 5_000), (0.8, 20_000), (0.9, 50_000)])
def test_intervals_of_a_queue_cover(load: float, count: int) -> None:
    """The mean wait is inside in 90 to 99 % of runs, and few runs that are long enough are called short."""
    rng = np.random.default_rng(count)
    spreads = [spread_within(run) for run in waits(load, 200, count, rng)]

    exact = load / (2 * (1 - load))  # Pollaczek and Khinchin
    covered = [spread.mean.low <= exact <= spread.mean.high for spread in spreads]
    assert 0.90 <= sum(covered) / len(covered) <= 0.99
    assert sum(spread.short for spread in spreads) / len(spreads) <= 0.15


@pytest.mark.parametrize("load, count", [(0.9, 5_000), (0.95, 5_000), (0.95, 20_000)])
def test_few_runs_mislead_where_all_are_too_short(load: float, count: int) -> None:
    """Near saturation runs say that they are too short: at most one in ten misses the truth and does not."""
    rng = np.random.default_rng(round(load * count))
    spreads = [spread_within(run) for run in waits(load, 200, count, rng)]

    exact = load / (2 * (1 - load))
    misled = [not spread.short and not spread.mean.low <= exact <= spread.mean.high for spread in spreads]
    assert sum(spread.short for spread in spreads) / len(spreads) > 0.5
    assert sum(misled) / len(misled) <= 0.10


@pytest.mark.parametrize("load, count", [(0.5, 1_000), (0.5, 5_000), (0.7, 5_000), (0.9, 5_000)])
def test_what_is_not_doubtful_holds(load: float, count: int) -> None:
    """Runs that are short, and no more than that, miss the truth no more often than intervals may."""
    rng = np.random.default_rng(31 + round(load * count))
    spreads = [spread_within(run) for run in waits(load, 200, count, rng)]

    exact = load / (2 * (1 - load))
    assert all(spread.short for spread in spreads if spread.doubtful)
    misled = [not spread.doubtful and not spread.mean.low <= exact <= spread.mean.high for spread in spreads]
    assert sum(misled) / len(misled) <= 0.08


def test_a_run_is_short_for_what_hangs_together() -> None:
    """Independent values are soon enough; of some that wander to and fro over the whole run none are."""
    rng = np.random.default_rng(5)
    free, tied, walk = (10 + autoregressive(phi, 4_096, rng) for phi in (0.0, 0.97, 0.99999))

    assert not spread_within(free).short
    assert not spread_within(tied).short
    assert spread_within(walk).short


def test_the_upper_end_is_farther() -> None:
    """A quiet run looks surer than it is: a higher mean is believed possible with the error it would have."""
    values = as_waits(autoregressive(0.9, 5_000, np.random.default_rng(8)))
    spread, even = spread_within(values), mean_within(values)
    half = even.high - even.value

    assert even.value - even.low == pytest.approx(half)
    for end in (spread.mean.low, spread.mean.high):
        assert abs(end - even.value) == pytest.approx(half * (end / even.value) ** 2)
    assert spread_within(values - 1).mean == mean_within(values - 1)  # no latencies


def test_what_says_little_of_a_mean() -> None:
    """From an error of a quarter on twice the mean is possible, and from one of the whole on anything."""
    rng = np.random.default_rng(9)
    few, one = as_waits(rng.standard_normal(50)), np.where(np.arange(40) == 20, 1.0, 0.0)
    half = mean_within(few).high / float(few.mean()) - 1

    assert 0.25 < half < 0.5
    assert spread_within(few).short
    assert spread_within(few).mean.high == pytest.approx(2 * few.mean())
    assert spread_within(one).mean.high == inf


def test_a_wider_interval_for_values_that_hang_together() -> None:
    """The variance of the mean is (1 + phi) / (1 - phi) times that of independent values."""
    rng = np.random.default_rng(6)

    def width(phi: float) -> float:
        found = [mean_within(autoregressive(phi, 20_000, rng)) for _ in range(40)]
        return sum(each.high - each.low for each in found) / len(found)

    assert width(0.9) / width(0.0) == pytest.approx(sqrt(1.9 / 0.1), rel=0.1)


@pytest.mark.parametrize(
    "count, thin",
    [
        (100, ("p50", "p95", "p99")),
        (199, ("p50", "p95", "p99")),
        (200, ("p95", "p99")),
        (2_000, ("p99",)),
        (9_999, ("p99",)),
        (10_000, ()),
    ],
)
def test_thin_tails_are_named(count: int, thin: tuple[str, ...]) -> None:
    """A percentile has at least 100 samples beyond it, or is named."""
    assert spread_within(np.arange(float(count))).thin == thin


def test_what_the_sample_does_not_bound() -> None:
    """Of 200 values two lie beyond P99: it may as well be above all of them."""
    spread = spread_within(np.random.default_rng(1).permutation(np.arange(200.0)))

    assert spread.p99.high == inf
    assert spread.p99.low > spread.p50.value
    assert spread.p95.high < 200


def test_few_values_have_no_interval() -> None:
    """One too few: figures, but no interval."""
    spread = spread_within(np.arange(FEWEST - 1.0))

    assert (spread.method, spread.parts, spread.mean.value) == (Method.NONE, 0, 15.0)
    assert isnan(spread.mean.low)
    assert isnan(spread.p99.high)
    assert spread_within(np.arange(float(FEWEST))).method == Method.SPECTRUM


def test_no_values() -> None:
    """Nothing was measured: every figure is nan, and other seeds decide."""
    nothing, something = spread_within(np.array([])), spread_within(np.arange(50.0))

    assert nothing.count == 0
    assert isnan(nothing.p50.value)
    assert isnan(nothing.max)
    assert spread_over([nothing, something]).mean == Estimate(24.5)
    assert spread_over([nothing, nothing]) is nothing
    assert isnan(estimate_over([]).value)


def test_one_seed_keeps_its_interval() -> None:
    """Of a single run the interval is that within it."""
    run = spread_within(np.arange(100.0))

    assert spread_over([run]) is run


def test_equal_values_are_certain() -> None:
    """Where nothing varies the interval is a point."""
    spread = spread_within(np.full(1_000, 2.5))

    assert spread.mean == spread.p50 == spread.p99 == Estimate(2.5, 2.5, 2.5)
    assert estimate_over([2.5, 2.5, 2.5]) == Estimate(2.5, 2.5, 2.5)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300))
def test_figures_are_in_order(numbers: list[float]) -> None:
    """Percentiles rise, each lies in its interval, and one that leaves the sample has no end there."""
    values = np.array(numbers)
    spread: Spread = spread_within(values)

    assert spread.p50.value <= spread.p95.value <= spread.p99.value <= spread.max
    for each in (spread.p50, spread.p95, spread.p99):
        if spread.method is not Method.NONE:
            assert each.low <= each.value <= each.high
            assert each.low == -inf or each.low >= values.min()
            assert each.high == inf or each.high <= values.max()
    assert spread.mean.value == pytest.approx(float(values.mean()))


def test_warm_up_is_cut() -> None:
    """A ramp before a steady state is cut where it ends, to within a few batches; a steady run is kept."""
    rng = np.random.default_rng(7)
    steady = rng.standard_normal(5_000) + 10
    ramp = np.linspace(0, 10, 500) + rng.standard_normal(500)

    assert warm_up(np.concatenate([ramp, steady])) == pytest.approx(480, abs=40)
    cut = warm_up(steady)
    assert cut is not None
    assert cut < 500


@pytest.mark.parametrize("count", [0, 19, 5_000])
def test_no_steady_state(count: int) -> None:
    """What grows to the end, as a queue does under too much load, has none; nor has what is too short."""
    assert warm_up(np.linspace(0, 1_000, count)) is None


def test_intervals_are_finite() -> None:
    """Two seeds are enough for an interval, if a wide one: Student's t with one degree is 12.7."""
    estimate = estimate_over([1.0, 3.0])

    assert estimate.high - estimate.value == pytest.approx(12.7062, abs=1e-3)
    assert estimate.high < inf
