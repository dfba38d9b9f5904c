"""Arrivals are what they say they are, as laws over many seeds."""

from __future__ import annotations

from itertools import islice, pairwise
from math import inf, nan, sqrt
from random import Random
from statistics import mean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import ConfigurationError
from tidegate.workload.arrivals import Constant, Poisson, Replay
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
