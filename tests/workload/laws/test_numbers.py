"""Laws draw what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice
from math import inf, nan, sqrt
from random import Random
from statistics import mean, median, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import ConfigurationError
from tidegate.core.records import percentile
from tidegate.workload.laws.numbers import Empirical, Exponential, Fixed, Law, Lognormal, Quantiles, whole

COUNT = 50_000
LAWS: list[Law] = [
    Fixed(7),
    Exponential(3),
    Lognormal(mean=100, cv=1),
    Lognormal(p50=10, p95=90, least=1, most=50),
    Empirical((1, 2, 9), (1, 0, 3)),
    Quantiles(((0, 5), (0.5, 10), (1, 100))),
]


def drawn(law: Law, count: int = COUNT, seed: int = 1) -> list[float]:
    """So many draws."""
    return list(islice(law.draws(Random(seed)), count))


def test_a_lognormal_law_by_mean_and_variation() -> None:
    """Both come out within five standard errors (that of the CV by 40 batches)."""
    batches = [drawn(Lognormal(mean=100, cv=0.8), 5_000, seed) for seed in range(40)]
    cvs = [pstdev(batch) / mean(batch) for batch in batches]

    assert mean(map(mean, batches)) == pytest.approx(100, abs=5 * 80 / sqrt(200_000))
    assert mean(cvs) == pytest.approx(0.8, abs=5 * pstdev(cvs) / sqrt(40))


def test_a_lognormal_law_by_percentiles() -> None:
    """Half lies below P50, and 95 % below P95, within five standard errors."""
    draws = drawn(Lognormal(p50=20, p95=400))

    assert sum(value < 20 for value in draws) / COUNT == pytest.approx(0.5, abs=5 * sqrt(0.25 / COUNT))
    assert sum(value < 400 for value in draws) / COUNT == pytest.approx(0.95, abs=5 * sqrt(0.0475 / COUNT))


def test_bounds_hold_what_lies_beyond() -> None:
    """A clamp moves draws onto the bound and no others."""
    free = drawn(Lognormal(p50=20, p95=400))
    bounded = drawn(Lognormal(p50=20, p95=400, least=10, most=100))

    assert bounded == [min(100, max(10, value)) for value in free]


def test_an_exponential_law() -> None:
    """Mean and median are those of the textbook: m and m ln 2."""
    draws = drawn(Exponential(3))

    assert mean(draws) == pytest.approx(3, abs=5 * 3 / sqrt(COUNT))
    assert median(draws) == pytest.approx(3 * 0.693147, rel=0.03)


def test_an_empirical_law_draws_by_weight() -> None:
    """Each value has its share, and one of weight 0 never comes."""
    counts = Counter(drawn(Empirical((1, 2, 9), (1, 0, 3))))

    assert counts[9] / COUNT == pytest.approx(0.75, abs=5 * sqrt(0.1875 / COUNT))
    assert counts.keys() == {1, 9}
    assert Counter(drawn(Empirical((4, 5)))).keys() == {4, 5}


def test_a_table_of_quantiles() -> None:
    """The quantiles of the draws are those of the table, straight in between."""
    table = Quantiles(((0, 5), (0.5, 10), (0.9, 10), (1, 100)))
    draws = sorted(drawn(table))

    for ratio, value in ((0.25, 7.5), (0.5, 10), (0.7, 10), (0.95, 55)):
        assert percentile(draws, ratio) == pytest.approx(value, rel=0.05), ratio
    assert (draws[0] >= 5, draws[-1] <= 100) == (True, True)
    assert mean(draws) == pytest.approx(table.mean, rel=0.02)


@given(st.sampled_from(LAWS), st.integers(0, 2**32))
def test_draws_are_a_function_of_their_dice(law: Law, seed: int) -> None:
    """The same seed draws the same, and whole numbers are at least what was asked for."""
    assert drawn(law, 20, seed) == drawn(law, 20, seed)
    assert min(islice(whole(law.draws(Random(seed)), 3), 20)) >= 3


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: Fixed(-1), "fixed: value is a number at least 0, not -1"),
        (lambda: Fixed(nan), "fixed: value is a number at least 0, not nan"),
        (lambda: Exponential(0), "exponential: mean is a number above 0, not 0"),
        (lambda: Lognormal(), "by mean and cv, or by p50 and p95; this has neither"),
        (lambda: Lognormal(mean=1, p50=2), "this has mean, p50"),
        (lambda: Lognormal(mean=1, cv=1, p50=2), "this has mean, cv, p50"),
        (lambda: Lognormal(mean=0, cv=1), "lognormal: mean is a number above 0, not 0"),
        (lambda: Lognormal(mean=1, cv=-1), "lognormal: cv is a number at least 0, not -1"),
        (lambda: Lognormal(p50=2, p95=1), "p95 is at least p50, not 1"),
        (lambda: Lognormal(mean=1, cv=1, least=2, most=1), r"least is 0 to most \(1\), not 2"),
        (lambda: Empirical(()), "values is empty"),
        (lambda: Empirical((inf,)), "empirical: values is a number at least 0, not inf"),
        (lambda: Empirical((1, 2), (1,)), "1 weights for 2 values"),
        (lambda: Empirical((1, 2), (0, 0)), "weights are all 0"),
        (lambda: Empirical((1, 2), (1, -1)), "empirical: weights is a number at least 0, not -1"),
        (lambda: Quantiles(((0, 1),)), "from share 0 to share 1"),
        (lambda: Quantiles(((0.1, 1), (1, 2))), "from share 0 to share 1"),
        (lambda: Quantiles(((0, 3), (1, 2))), r"\(1, 2\) comes after \(0, 3\)"),
        (lambda: Quantiles(((0, 1), (0, 1), (1, 2))), r"\(0, 1\) comes after \(0, 1\)"),
    ],
)
def test_laws_that_cannot_be(make: Callable[[], Law], said: str) -> None:
    """The law and the field are named, and what is wrong with it."""
    with pytest.raises(ConfigurationError, match=said):
        make()
