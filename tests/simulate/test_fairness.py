"""Is unfairness told from little demand?"""

from __future__ import annotations

from math import isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.simulate.fairness import fair_shares, jain_index


@pytest.mark.parametrize(
    "served, wanted, weights, index",
    [
        ([50, 50], [90, 90], [1, 1], 1.0),  # alike
        ([100, 0], [100, 100], [1, 1], 0.5),  # all for one of two
        ([10, 90], [10, 200], [1, 1], 1.0),  # who wants little has it, the other the rest
        ([75, 25], [100, 100], [3, 1], 1.0),  # as weighted
        ([75, 25], [100, 100], [1, 1], 0.8),  # (1.5 + 0.5)**2 / (2 * (1.5**2 + 0.5**2))
        ([7, 0], [7, 0], [1, 1], 1.0),  # who wants nothing is not wronged
    ],
)
def test_jain_index(served: list[float], wanted: list[float], weights: list[float], index: float) -> None:
    """What was served is judged by the max-min fair share of it."""
    found = jain_index(*(np.array(each, float) for each in (served, wanted, weights)))

    assert found == pytest.approx(index)


def test_nobody() -> None:
    """Without demand or without service there is nothing to judge."""
    assert isnan(jain_index(np.array([]), np.array([]), np.array([])))
    assert isnan(jain_index(np.zeros(2), np.ones(2), np.ones(2)))


@given(
    st.lists(st.tuples(st.floats(1, 1e6), st.floats(0.1, 10)), min_size=1, max_size=8),
    st.floats(0.01, 1.5),
)
def test_fair_shares(tenants: list[tuple[float, float]], ratio: float) -> None:
    """Nobody gets more than it wants, nothing that is wanted is left over, and who lacks has as much per
    weight as anybody."""
    wanted = np.array([each[0] for each in tenants])
    weights = np.array([each[1] for each in tenants])
    capacity = float(wanted.sum()) * ratio
    shares = fair_shares(capacity, wanted, weights)

    assert (shares <= wanted * (1 + 1e-9)).all()
    assert shares.sum() == pytest.approx(min(capacity, wanted.sum()))
    lacking = shares < wanted * (1 - 1e-6)
    if lacking.any():
        assert (shares[lacking] / weights[lacking]).min() >= (shares / weights).max() * (1 - 1e-6)
