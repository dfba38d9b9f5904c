"""Gaps have the mean and the burstiness that they say, from the first one on."""

from __future__ import annotations

from itertools import islice
from math import gamma, inf, nan, sqrt
from random import Random
from statistics import mean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import ConfigurationError
from tidegate.workload.laws.gaps import Even, Gamma, Gaps, Memoryless, Weibull, weibull_shape

LAWS: list[Gaps] = [Even(), Memoryless(), Gamma(0.3), Gamma(3.0), Weibull(0.3), Weibull(3.0)]
CVS = {Even: 0.0, Memoryless: 1.0}


def cv_of(law: Gaps) -> float:
    """What it says of itself."""
    return law.cv if isinstance(law, Gamma | Weibull) else CVS[type(law)]


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_gaps_have_a_mean_of_one_and_their_variation(law: Gaps) -> None:
    """Over 200,000 gaps the mean is 1 within five standard errors, and the CV is what was asked for."""
    count = 200_000
    gaps = list(islice(law.gaps(Random(7)), 1, count + 1))

    assert mean(gaps) == pytest.approx(1.0, abs=5 * cv_of(law) / sqrt(count) + 1e-12)
    assert pstdev(gaps) / mean(gaps) == pytest.approx(cv_of(law), rel=0.05, abs=1e-12)
    assert min(gaps) >= 0


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("horizon", [0.5, 5.0])
def test_a_run_begins_in_equilibrium(law: Gaps, horizon: float) -> None:
    """Over 8,000 runs the arrivals by an instant are as many as the rate says, however early and bursty."""
    runs = 8_000
    counts = []
    for seed in range(runs):
        at = 0.0
        for number, gap in enumerate(law.gaps(Random(seed))):
            at += gap
            if at > horizon:
                counts.append(number)
                break

    assert mean(counts) == pytest.approx(horizon, abs=5 * pstdev(counts) / sqrt(runs) + 1e-12)


@given(st.floats(0.01, 1_000))
def test_the_shape_of_weibull_gives_its_variation(cv: float) -> None:
    """The CV of the shape that was found, by the formula, is the one that was asked for."""
    shape = weibull_shape(cv)

    # Written with moments, not logarithms as the code has it; for small CVs the difference cancels digits.
    assert sqrt(max(0.0, gamma(1 + 2 / shape) / gamma(1 + 1 / shape) ** 2 - 1)) == pytest.approx(
        cv, rel=1e-6, abs=1e-7
    )


def test_a_weibull_law_with_a_variation_of_one_is_exponential() -> None:
    """Its shape is then 1."""
    assert weibull_shape(1.0) == pytest.approx(1.0, rel=1e-12)


@given(st.integers(0, 2**32), st.sampled_from(LAWS))
def test_gaps_are_a_function_of_their_dice(seed: int, law: Gaps) -> None:
    """The same seed gives the same gaps."""
    first, second = (list(islice(law.gaps(Random(seed)), 20)) for _ in range(2))

    assert first == second


def test_bursts_come_as_bursts() -> None:
    """At CV 5 most stretches of a mean gap's length are empty, though the long run has its rate."""
    empty = sum(next(Gamma(5.0).gaps(Random(seed))) > 1.0 for seed in range(2_000))

    assert empty / 2_000 > 0.8


@pytest.mark.parametrize("kind", [Gamma, Weibull])
@pytest.mark.parametrize("cv", [0.0, -1.0, 0.0009, 10_001.0, inf, nan])
def test_a_variation_that_cannot_be(kind: type[Gamma] | type[Weibull], cv: float) -> None:
    """A CV is a number from 0.001 to 10,000."""
    with pytest.raises(ConfigurationError, match=r"cv of (gamma|weibull) gaps is 0.001 to 10000"):
        kind(cv)
