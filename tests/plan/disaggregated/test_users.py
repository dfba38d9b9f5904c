"""Do users who wait for disaggregated replicas send what they come to send?"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import pairwise
from random import Random

import msgspec
import pytest

from tests.plan.disaggregated.cases import TERMS, WIRE, Fleet, ask_of, front, mean, replica
from tidegate.plan.answer import Answer, Impossible
from tidegate.plan.ask import Ask
from tidegate.plan.disaggregated.answering import disaggregated_answer
from tidegate.plan.disaggregated.apart import Sides
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.disaggregated.pair import Pair
from tidegate.plan.disaggregated.sizing import size_apart
from tidegate.plan.disaggregated.users import rate_of_users

CHAT = replica("Llama-3.1-8B", tp=1)


def asked(users: int, think_s: float) -> Ask:
    """Chats of 2,000 and 100 tokens."""
    ask = ask_of(None, CHAT, 2000, 100)
    return msgspec.structs.replace(ask, load=msgspec.structs.replace(ask.load, users=users, think_s=think_s))


@pytest.mark.parametrize("users, think_s", [(10, 0.0), (100, 10.0), (1000, 60.0), (3600, 30.0)])
def test_littles_law_holds(users: int, think_s: float) -> None:
    """N = X (R + Z), and the budgets hold with one of each kind lost."""
    size = size_apart(asked(users, think_s), front(CHAT))
    assert not isinstance(size, Impossible), size

    rate = size.requests_per_s
    assert rate * (size.latencies.e2e_s.mean + think_s) == pytest.approx(users, rel=1e-3)
    assert size.utilisation <= 0.7
    left = Pair(size.sides, size.prefill_replicas - 1)
    assert left.held(rate, TERMS.budgets, 0.95, size.decode_replicas - 1)


def test_more_users_never_need_less() -> None:
    """Of either kind, and what they send grows with them."""
    found = [size_apart(asked(users, 20.0), front(CHAT)) for users in (50, 200, 800, 2400)]

    sizes = [each for each in found if not isinstance(each, Impossible)]
    assert len(sizes) == 4
    for fewer, more in pairwise(sizes):
        assert sum(more.counts) >= sum(fewer.counts)
        assert more.requests_per_s > fewer.requests_per_s


def test_a_link_that_is_too_slow_for_what_they_send() -> None:
    """The rate that they come to send is what it is judged by."""
    found = size_apart(asked(5000, 30.0), front(CHAT))

    assert isinstance(found, Impossible)
    assert found.binding == "link"
    assert "70% is the most" in found.problem


def test_what_there_is_slows_users_down() -> None:
    """Too few replicas: less is sent than thinking alone would let them, and the budgets are not held."""
    few = disaggregated_answer(asked(4000, 10.0), Front(prefill=CHAT, link=WIRE, replicas=4))
    assert isinstance(few, Answer)

    assert few.requests_per_s < 4000 / 10.0 / 4
    assert "is the most" in few.warnings[0]


@pytest.mark.parametrize("users, think_s", [(12, 0.0), (150, 10.0)])
def test_a_simulation_says_the_same(users: int, think_s: float) -> None:
    """Of users before one replica of each kind."""
    ask = asked(users, think_s)
    rate = rate_of_users(ask, Sides(ask, front(CHAT)), (1, 1))
    fleet, rng = Fleet(CHAT, (2000, 100), (1, 1), WIRE.bytes_per_s), Random(3)
    asks = [rng.expovariate(1 / think_s) if think_s else 0.0 for _ in range(users)]
    asks.sort()
    now, span = 0.0, 1000 / rate
    while now < span:
        at = fleet.next_at()
        if asks and asks[0] <= at:
            now = heappop(asks)
            fleet.come(now)
        else:
            now = at
            for _ in fleet.advance(now):
                heappush(asks, now + (rng.expovariate(1 / think_s) if think_s else 0.0))
    seen = [number for number, at in fleet.ended.items() if fleet.arrived[number] > span / 5]
    _, _, e2e = fleet.latencies(seen)

    assert rate == pytest.approx(len(seen) / (0.8 * span), rel=0.06)
    assert users / rate - think_s == pytest.approx(mean(e2e), rel=0.12 if think_s else 0.06)
