"""Arrivals close together: the renewal function of gamma gaps, against what gaps draw."""

from __future__ import annotations

from bisect import bisect_right
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.replicas import gamma
from tidegate.plan.laws.burstiness import _summed as summed
from tidegate.plan.laws.burstiness import excess


@given(st.floats(0.01, 100), st.floats(0, 100))
def test_poisson_arrivals_know_nothing_of_each_other(rate_per_s: float, window_s: float) -> None:
    """None comes more than at random."""
    assert excess(rate_per_s, 1.0, window_s) == 0


@given(st.floats(0.01, 16), st.floats(0.01, 3.9), st.floats(0.1, 10))
def test_bursts_have_company_and_even_arrivals_have_none(cv2: float, gaps: float, rate_per_s: float) -> None:
    """The excess has the sign of cv2 - 1, never falls below nobody, and only the number of gaps counts."""
    found = excess(rate_per_s, cv2, gaps / rate_per_s)

    assert found == pytest.approx(excess(1.0, cv2, gaps), abs=1e-9)
    assert found >= -gaps - 1e-9
    assert found >= -1e-6 if cv2 >= 1 else found <= 0.12  # between clockwork's beats somebody is due


@pytest.mark.parametrize("cv2", [0.25, 0.5, 2.0, 4.0, 9.0])
def test_excess_is_what_drawn_gaps_have(cv2: float) -> None:
    """Count the arrivals within a window after each of 200,000, to three standard errors or 0.02."""
    instants = gamma(1.0, cv2, 200_000)
    for window_s in (0.05, 0.3, 1.0, 3.0):
        within = [
            bisect_right(instants, at_s + window_s) - place - 1 for place, at_s in enumerate(instants[:-50])
        ]
        assert sum(within) / len(within) - window_s == pytest.approx(excess(1.0, cv2, window_s), abs=0.06), (
            window_s
        )


@pytest.mark.parametrize("cv2", [0.26, 0.5, 0.99, 1.5, 2.0, 9.0, 25.0])
def test_the_transform_says_what_the_chances_sum_up_to(cv2: float) -> None:
    """As far as the sum goes, which leaves out chances that are small: below 1e-6 each."""
    for gaps in (1e-6, 1e-3, 0.1, 1.0, 3.9):
        assert excess(1.0, cv2, gaps) == pytest.approx(summed(cv2, gaps), abs=2e-6 * max(1, cv2)), gaps


def test_gaps_of_two_phases_are_known_exactly() -> None:
    """A gamma law of shape 2: beyond what is expected, (e^(-4t) - 1) / 4 (Cox, Renewal Theory, chapter 4)."""
    for gaps in (0.01, 0.3, 1.0, 2.5):
        assert excess(1.0, 0.5, gaps) == pytest.approx((exp(-4 * gaps) - 1) / 4, abs=1e-8)


def test_in_the_long_run_the_index_of_dispersion_counts() -> None:
    """(cv2 - 1) / 2, the renewal function's constant."""
    for cv2 in (0.3, 2.0, 5.0):
        assert excess(1.0, cv2, 3.999) == pytest.approx((cv2 - 1) / 2, abs=0.2)
        assert excess(1.0, cv2, 100.0) == (cv2 - 1) / 2
