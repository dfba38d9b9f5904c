"""A mean and percentiles of laws that are known."""

from __future__ import annotations

from math import inf, isnan, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import CallerError
from tidegate.plan.laws.spread import LEVELS, Spread


def test_few_times_have_steps_for_percentiles() -> None:
    """Nine of ten take 1 s, one 5 s, in any order and with shares of any sum."""
    spread = Spread.of((np.array([5.0, 1.0]), np.array([0.2, 1.8])))

    assert spread.mean == pytest.approx(1.4)
    assert (spread.p50, spread.quantile(0.9), spread.p95, spread.p99) == (1.0, 1.0, 5.0, 5.0)
    assert spread.quantile(0) == 1.0


@given(
    st.lists(st.tuples(st.floats(0, 1e6, allow_subnormal=False), st.floats(1e-3, 1)), min_size=1, max_size=50)
)
def test_percentiles_ascend_and_are_times_that_come(law: list[tuple[float, float]]) -> None:
    """None is outside of the law, and the mean is not either."""
    spread = Spread.of((np.array([each[0] for each in law]), np.array([each[1] for each in law])))
    times = {each[0] for each in law}

    assert list(spread.at) == sorted(spread.at)
    assert set(spread.at) <= times
    assert min(times) * (1 - 1e-9) <= spread.mean <= max(times) * (1 + 1e-9)


def test_a_tail_is_exponential() -> None:
    """A wait of 0 for 4 of 5, and ln(0.2 / (1 - q)) / 2 else."""
    spread = Spread.of_tail(0.2, 2.0)

    assert spread.mean == pytest.approx(0.1)
    assert spread.p50 == spread.quantile(0.79) == 0
    for level in (0.81, 0.95, 0.99, 0.999):
        assert spread.quantile(level) == pytest.approx(log(0.2 / (1 - level)) / 2)


def test_what_never_ends_and_what_never_is() -> None:
    """Overload is infinite at every percentile; gaps of answers of one token are no number."""
    assert Spread.never().mean == Spread.never().p50 == Spread.never().quantile(0.975) == inf
    assert isnan(Spread.undefined().mean)
    assert isnan(Spread.undefined().quantile(0.5))


def test_a_part_is_no_longer_than_the_whole() -> None:
    """Level by level, and in the mean, whichever of two laws says less of it."""
    short, long = Spread.of_tail(0.2, 2.0), Spread.of_tail(0.3, 1.0)

    assert short.at_most(long) == long.at_most(short) == short
    assert short.at_least(long) == long.at_least(short) == long
    assert Spread.never().at_most(short) == short


def test_a_quantile_is_a_ratio() -> None:
    """From 0 to 0.999; 95 is none."""
    for ratio in (-0.1, 1.0, 95):
        with pytest.raises(CallerError):
            Spread.never().quantile(ratio)
    assert LEVELS[50] == 0.5
    assert (LEVELS[95], LEVELS[99]) == (0.95, 0.99)
