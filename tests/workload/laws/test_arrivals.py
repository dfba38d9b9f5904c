"""Arrivals are what they say they are, as laws over many seeds."""

from __future__ import annotations

from itertools import islice, pairwise, takewhile
from math import inf, nan, sqrt
from random import Random
from statistics import mean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import ConfigurationError
from tidegate.workload.laws.arrivals import Constant, Poisson, Renewal, Replay
from tidegate.workload.laws.gaps import Even, Gamma, Gaps, Memoryless, Weibull
from tidegate.workload.laws.rates import Diurnal, Piecewise
from tidegate.workload.traces.rows import TraceRow

SEEDS = st.integers(0, 2**32)
RATES = st.floats(0.01, 10_000)


@pytest.mark.parametrize("seed", range(5))
def test_poisson_has_its_rate_and_a_variation_of_one(seed: int) -> None:
    """Over 20,000 gaps the mean is 1/rate and the CV is 1, each within five standard errors."""
    count = 20_000
    instants = [0.0, *islice(Poisson(8.0).instants(Random(seed)), count)]
    gaps = [later - earlier for earlier, later in pairwise(instants)]

    assert mean(gaps) == pytest.approx(1 / 8, rel=5 / sqrt(count))
    assert pstdev(gaps) / mean(gaps) == pytest.approx(1.0, rel=5 / sqrt(count))


@pytest.mark.parametrize("seed", range(5))
def test_poisson_counts_vary_as_much_as_they_number(seed: int) -> None:
    """In windows of one second, the variance of the count over its mean is 1: no hidden bursts."""
    windows = 4_000
    counts = [0] * windows
    for at_s in Poisson(5.0).instants(Random(seed)):
        if at_s >= windows:
            break
        counts[int(at_s)] += 1

    assert pstdev(counts) ** 2 / mean(counts) == pytest.approx(1.0, abs=5 * sqrt(2 / windows))


@given(SEEDS, RATES)
def test_arrivals_are_the_same_for_the_same_dice(seed: int, rate_per_s: float) -> None:
    """The same seed gives the same instants, ascending."""
    first, second = (list(islice(Poisson(rate_per_s).instants(Random(seed)), 50)) for _ in range(2))

    assert first == second == sorted(first)


@given(RATES, st.integers(0, 2_000))
def test_constant_arrivals_do_not_drift(rate_per_s: float, number: int) -> None:
    """Arrival n, counted from 0, is at n/rate exactly, however many came before."""
    instants = Constant(rate_per_s).instants(Random(0))

    assert next(islice(instants, number, None)) == number / rate_per_s


@given(st.lists(st.floats(0, 1e6), max_size=50))
def test_a_replay_changes_nothing(instants: list[float]) -> None:
    """The instants of a trace come out as they went in."""
    rows = [TraceRow(at_s, 1, 1) for at_s in sorted(instants)]

    assert list(Replay(rows).instants(Random(0))) == sorted(instants)


@pytest.mark.parametrize("kind", [Poisson, Constant])
@pytest.mark.parametrize("rate_per_s", [0.0, -1.0, inf, nan])
def test_a_rate_that_cannot_be(kind: type[Poisson] | type[Constant], rate_per_s: float) -> None:
    """A rate is above 0 and finite."""
    with pytest.raises(ConfigurationError, match="above 0 requests per second"):
        kind(rate_per_s)


def test_bursts_keep_their_rate_and_their_shape_as_the_rate_changes() -> None:
    """Over 300 runs each stretch has its share; measured in expected arrivals, gaps have their CV."""
    rate = Piecewise(((0, 2), (100, 10), (200, 0), (300, 4)))
    runs, stretches, gaps = 300, [0, 0, 0, 0], []
    for seed in range(runs):
        instants = list(takewhile(lambda at_s: at_s < 400, Renewal(rate, Gamma(3.0)).instants(Random(seed))))
        for at_s in instants:
            stretches[int(at_s // 100)] += 1
        if seed >= 40:
            continue
        gaps += [rate.expected(later) - rate.expected(earlier) for earlier, later in pairwise(instants)]

    # The variance of a count is about CV^2 times its mean.
    for found, expected in zip(stretches, (200, 1000, 0, 400), strict=True):
        assert found / runs == pytest.approx(expected, abs=5 * 3.0 * sqrt(expected / runs))
    assert pstdev(gaps) / mean(gaps) == pytest.approx(3.0, rel=0.1)


def test_arrivals_end_with_their_rate() -> None:
    """Where the rate falls to 0 for good there is a last arrival."""
    instants = list(Renewal(Piecewise(((0, 5), (10, 0))), Weibull(2.0)).instants(Random(3)))

    assert instants
    assert max(instants) < 10


@given(SEEDS, st.sampled_from([Even(), Memoryless(), Gamma(4.0), Weibull(0.5)]), RATES)
def test_renewals_ascend_and_repeat(seed: int, gaps: Gaps, rate_per_s: float) -> None:
    """The same dice give the same instants, in order, under a rate that comes and goes."""
    arrivals = Renewal(Diurnal(rate_per_s, 1.0, 50.0, 100.0), gaps)

    first, second = (list(islice(arrivals.instants(Random(seed)), 50)) for _ in range(2))

    assert first == second == sorted(first)
