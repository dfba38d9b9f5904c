"""What is counted in passing is what the whole would say."""

from __future__ import annotations

from math import isnan, nan, sqrt
from random import Random
from statistics import correlation, fmean, pstdev, pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.records import Distribution
from tidegate.workload.laws.arrivals import Poisson
from tidegate.workload.statistics.counting import Moments, Tally, WindowCounter


def same(one: float, other: float) -> bool:
    """Equal to rounding, or neither a number."""
    return (isnan(one) and isnan(other)) or one == pytest.approx(other, rel=1e-9, abs=1e-9)


@given(st.lists(st.integers(0, 30), max_size=60))
def test_a_tally_is_the_distribution_of_its_values(values: list[int]) -> None:
    """Every figure, quantiles to the last digit of their definition."""
    tally = Tally()
    for value in values:
        tally.add(value)

    found, expected = tally.distribution(), Distribution.of(values)

    assert all(
        same(getattr(found, field), getattr(expected, field)) for field in Distribution.__struct_fields__
    )


@given(st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 1_000)), max_size=60))
def test_moments_are_those_of_the_whole(pairs: list[tuple[int, int]]) -> None:
    """Mean, variance, CV and correlation, as the textbook's two passes give them."""
    moments = Moments()
    for one, other in pairs:
        moments.add(one, other)
    ones, others = [one for one, _ in pairs], [other for _, other in pairs]

    assert same(moments.variance, pvariance(ones) if pairs else nan)
    assert same(moments.cv, pstdev(ones) / fmean(ones) if any(ones) else nan)
    spread = bool(pairs) and len(set(ones)) > 1 and len(set(others)) > 1
    assert same(moments.correlation, correlation(ones, others) if spread else nan)


@given(
    st.lists(st.integers(0, 200).map(lambda n: n / 4), min_size=1, max_size=80).map(sorted),
    st.sampled_from([1, 10]),
)
def test_windows_are_counted_whole_and_with_the_rest(arrivals: list[float], window_s: int) -> None:
    """As if all counts had been kept: those before the last arrival's window, and that one too."""
    counter = WindowCounter(window_s)
    for at_s in arrivals:
        counter.add(at_s)

    windows = int(arrivals[-1] // window_s)
    counts = [sum(at_s // window_s == window for at_s in arrivals) for window in range(windows + 1)]

    for found, kept in ((counter.whole(), counts[:-1]), (counter.with_rest(), counts)):
        some = any(kept)
        assert found.windows == len(kept)
        assert same(found.dispersion, pvariance(kept) / fmean(kept) if some else nan)
        assert same(found.peak_ratio, max(kept) / fmean(kept) if some else nan)


def test_poisson_arrivals_have_a_dispersion_of_one() -> None:
    """The yardstick: counts of independent arrivals vary as much as they number."""
    counter = WindowCounter(1.0)
    for at_s in Poisson(5.0).instants(Random(3)):
        if at_s > 4_000:
            break
        counter.add(at_s)

    assert counter.whole().dispersion == pytest.approx(1.0, abs=5 * sqrt(2 / 4_000))
