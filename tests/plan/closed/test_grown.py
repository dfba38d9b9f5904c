"""Is it told right how many users a fleet holds, and what more of them would meet?"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plan.closed.test_clients import TIGHT, load
from tests.plan.closed.test_clients import crowd as served
from tests.plan.closed.test_users import crowd
from tidegate.core.records import Budgets
from tidegate.plan.ask import Terms
from tidegate.plan.closed.grown import (
    curve_of_users,
    filling,
    held,
    most_users,
    room_of_users,
    waits_of_users,
)

QUIET = Terms()
"""Nobody may wait."""
PATIENT = Terms(budgets=Budgets(ttft_s=2.6))


@pytest.mark.parametrize(
    "think_s, replicas, terms, users",
    [
        (0.0, 1, QUIET, 4),  # a place for each
        (0.0, 3, QUIET, 12),
        (0.0, 1, PATIENT, 5),  # the fifth waits for one of four ends, 2.5 s, and a step
        (0.0, 2, PATIENT, 10),  # 8 places, of which one is free each 1.25 s
        (90.0, 1, QUIET, 15),  # M/M/4//15 has P95 within four places, M/M/4//16 has not
    ],
)
def test_how_many_are_held(think_s: float, replicas: int, terms: Terms, users: int) -> None:
    """By hand figures, four places and 10 s of service each."""
    assert most_users(crowd(1, think_s, replicas), lambda each: held(each, terms)) == users


def test_users_who_fill_all_places() -> None:
    """Four places, and those who think meanwhile: 0.4 requests/s x 30 s."""
    assert filling(crowd(1, 0.0)) == 4
    assert filling(crowd(1, 30.0)) == pytest.approx(16)


def test_what_more_of_them_wait() -> None:
    """Nobody up to four; with a fifth everyone waits for one end."""
    waits = waits_of_users(crowd(3, 0.0), QUIET)

    assert [each.users for each in waits] == [2, 2, 3, 3, 4, 4, 5]
    assert [each.pooled_s for each in waits] == [0, 0, 0, 0, 0, 0, pytest.approx(2.5)]
    assert [each.utilisation for each in waits] == pytest.approx([0.5, 0.5, 0.75, 0.75, 1, 1, 1])


def test_why_users_do_not_have_all_of_it() -> None:
    """Two of three replicas hold eight; before all three these take eight of twelve places."""
    queue, lost, burst, batch = room_of_users(crowd(6, 0.0, 3), QUIET, lost=1)

    assert queue.words == "P95 waits nothing to 4 users of one, 8 of 2 pooled"
    assert queue.utilisation == pytest.approx(1)
    assert lost.utilisation == pytest.approx(2 / 3)
    assert burst.words == "users wait: no more than 6 are ever under way"
    assert batch.words == "TPOT grows with it: two figures do not tell how much"
    assert room_of_users(served(load(20)), QUIET, lost=0)[3].words.endswith(" at 64")


@settings(max_examples=12, deadline=None)
@given(
    users=st.integers(1, 300),
    think_s=st.just(0.0) | st.floats(0.01, 30),
    replicas=st.integers(1, 3),
    ttft_s=st.floats(0.2, 5),
)
def test_a_curve_over_users(users: int, think_s: float, replicas: int, ttft_s: float) -> None:
    """It ascends, has what was asked on it, and holds the budgets up to where that is said."""
    terms = Terms(budgets=Budgets(ttft_s=ttft_s, tpot_s=TIGHT.tpot_s))
    asked = served(load(users, think_s=think_s), replicas)
    curve = curve_of_users(asked, terms)

    assert curve.users is not None
    assert curve.users.asked == users <= curve.users.most
    assert curve.asked_per_s == asked.rate_per_s
    for one, other in pairwise(curve.points):
        assert (one.users or 0) < (other.users or 0)
        assert one.requests_per_s <= other.requests_per_s * (1 + 1e-9) <= curve.sustained_per_s * (1 + 1e-6)
    (plan,) = [point for point in curve.points if "asked" in point.marks]
    assert plan.users == pytest.approx(users, abs=0.002 * curve.users.most)
    for point in curve.points:
        within = held(asked.having(users=point.users), terms)
        assert within == ((point.users or 0) <= curve.users.held), point.users
