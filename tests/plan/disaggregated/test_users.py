"""Do users who wait for disaggregated replicas send what they come to send?"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import pairwise
from random import Random

import msgspec
import pytest

from tests.plan.disaggregated.cases import TERMS, WIRE, Fleet, ask_of, front, mean, replica
from tidegate.plan.answer import Answer, Impossible
from tidegate.plan.ask import Ask, Replica
from tidegate.plan.disaggregated.answering import disaggregated_answer
from tidegate.plan.disaggregated.apart import Sides
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.disaggregated.pair import Pair
from tidegate.plan.disaggregated.sizing import size_apart
from tidegate.plan.disaggregated.source import Away
from tidegate.plan.disaggregated.users import rate_of_users
from tidegate.plan.laws.spread import Spread

CHAT = replica("Llama-3.1-8B", tp=1)
LARGE = replica()
REQUESTS = 1500


def asked(users: int, think_s: float, one: Replica = CHAT, lengths: tuple[int, int] = (2000, 100)) -> Ask:
    """Chats of 2,000 and 100 tokens, unless others are said."""
    ask = ask_of(None, one, *lengths)
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


@pytest.mark.parametrize(
    ("one", "lengths", "counts", "users", "think_s"),
    [
        (CHAT, (2000, 100), (1, 1), 150, 10.0),
        (CHAT, (2000, 100), (1, 1), 40, 0.0),
        (LARGE, (8192, 150), (1, 1), 6, 3.0),
        (LARGE, (8192, 150), (1, 1), 20, 10.0),
        (LARGE, (8192, 150), (1, 1), 60, 10.0),  # of whom two thirds wait for first tokens
        (LARGE, (8192, 150), (2, 1), 30, 10.0),
        (LARGE, (8192, 150), (1, 1), 8, 0.0),  # in turns: nobody comes by himself
    ],
)
def test_a_simulation_says_the_same(
    one: Replica, lengths: tuple[int, int], counts: tuple[int, int], users: int, think_s: float
) -> None:
    """Of the rate that users come to send, of E2E, and of TTFT in the mean and at P95."""
    ask = asked(users, think_s, one, lengths)
    sides = Sides(ask, front(one))
    rate = rate_of_users(ask, sides, counts)
    found = Pair(sides, counts[0]).latencies(rate, counts[1], 0.95)
    assert found is not None
    fleet, rng = Fleet(one, lengths, counts, WIRE.bytes_per_s), Random(3)
    asks = sorted(rng.expovariate(1 / think_s) if think_s else 0.0 for _ in range(users))
    while len(fleet.ended) < REQUESTS:
        at = fleet.next_at()
        if asks and asks[0] <= at:
            fleet.come(heappop(asks))
        else:
            for _ in fleet.advance(at):
                heappush(asks, at + (rng.expovariate(1 / think_s) if think_s else 0.0))
    first, *ends = sorted(fleet.ended.values())[REQUESTS // 4 :]
    ttft, _, e2e = fleet.latencies([number for number in fleet.ended if number > REQUESTS / 4])

    assert rate == pytest.approx(len(ends) / (ends[-1] - first), rel=0.06)
    assert found.e2e_s.mean == pytest.approx(mean(e2e), rel=0.12 if think_s else 0.06)
    assert found.ttft_s.mean == pytest.approx(mean(ttft), rel=0.15)
    assert found.ttft_s.p95 == pytest.approx(sorted(ttft)[int(0.95 * len(ttft))], rel=0.2)


def first_tokens(count: int, each_s: float, deviation_s: float = 10.0) -> Spread:
    """Of so many users before two replicas, each of whom asks every `each_s` seconds if nobody is there."""
    sides = Sides(asked(count, 1.0), front(CHAT))
    rate = 1.2 * sides.prefill.sustained_per_s
    away = Away(others=count - 1, mean_s=each_s, deviation_s=deviation_s)
    return sides.prefill.first_tokens_among(away, rate, 2)


def test_who_is_alone_never_waits() -> None:
    """Nor who is one of as many as there are replicas; one more may find all of them busy."""
    alone_s = Sides(asked(1, 1.0), front(CHAT)).prefill.batch.alone_s(2000)

    assert first_tokens(1, 0.01).p99 == pytest.approx(alone_s)
    assert first_tokens(2, 0.01).p99 == pytest.approx(alone_s)
    assert first_tokens(3, 0.01).p99 > 1.1 * alone_s


def test_very_many_are_as_requests_that_come_by_themselves() -> None:
    """Each asks so seldom that those who wait are not missed."""
    sides = Sides(asked(1, 1.0), front(CHAT))
    rate = 1.2 * sides.prefill.sustained_per_s
    by_themselves, among = sides.prefill.first_tokens(rate, 2), first_tokens(100_000, 100_000 / rate, 1e6)

    assert by_themselves is not None
    for name in ("mean", "p50", "p95", "p99"):
        assert getattr(among, name) == pytest.approx(getattr(by_themselves, name), rel=0.01), name


def test_the_fewer_they_are_the_less_they_wait() -> None:
    """At the same rate, as if nobody waited; and the more alike the times are that they are away."""
    rate = 1.2 * Sides(asked(1, 1.0), front(CHAT)).prefill.sustained_per_s
    means = [first_tokens(count, count / rate).mean for count in (3, 6, 12, 50, 1000)]
    alike = [first_tokens(12, 12 / rate, deviation_s).mean for deviation_s in (0.0, 0.02, 0.1, 10.0)]

    assert means == sorted(means)
    assert alike == sorted(alike)
