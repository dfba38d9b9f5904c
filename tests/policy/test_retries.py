"""Retry budget: a share of the traffic plus a floor, spent when a retry is decided."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.policy.retries import RetryBudget
from tidegate.policy.settings import RetrySettings


def test_a_thousand_that_fail_together() -> None:
    """A fifth of a thousand and the floor may retry, those still waiting to be sent included."""
    budget = RetryBudget(RetrySettings())
    for _ in range(1_000):
        budget.on_request(0.0)

    assert sum(budget.spend(0.5) for _ in range(1_000)) in range(190, 204)
    assert not budget.spend(0.6)


def test_a_quiet_service_may_retry() -> None:
    """The floor is there without any traffic, and comes back as the window passes."""
    budget = RetryBudget(RetrySettings(floor=2, window_s=10))

    for now, allowed in [
        (0.0, True),
        (0.0, True),
        (0.0, False),
        (1.0, False),
        (7.0, True),  # exp(-0.7) of two are 0.99
        (7.0, False),
    ]:
        assert budget.spend(now) is allowed, now


def test_no_budget_no_retry() -> None:
    """Both at zero switch retries off."""
    budget = RetryBudget(RetrySettings(budget_ratio=0, floor=0))
    for now in range(100):
        budget.on_request(float(now))
        assert not budget.spend(float(now))


@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=300))
def test_retries_are_a_share_and_a_floor(steps: list[tuple[float, bool]]) -> None:
    """In any history retries stay within the share of all requests plus the floor of each window."""
    budget = RetryBudget(RetrySettings(budget_ratio=0.2, floor=3, window_s=10))
    now, requests, retries = 0.0, 0, 0
    for gap_s, is_request in steps:
        now += gap_s
        if is_request:
            budget.on_request(now)
            requests += 1
        else:
            retries += budget.spend(now)
        assert retries <= 0.2 * requests + 3 * (1 + now / 10)
