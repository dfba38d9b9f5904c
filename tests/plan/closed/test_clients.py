"""Do users who ask again at once meet what a closed loop does, and what those meet who hardly think?"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plan.test_served import ENGINE, REPLICA
from tidegate.core.records import Budgets
from tidegate.perf.efficiencies import Waiting
from tidegate.plan.answer import Answer, Gates, Impossible
from tidegate.plan.answering import answer_to
from tidegate.plan.ask import Ask, Kind, Load, Terms
from tidegate.plan.closed.clients import ClosedCrowd
from tidegate.plan.closed.loop import Clients, Loop, closed_loop
from tidegate.plan.closed.users import Crowd
from tidegate.plan.sensitivity import changes_of
from tidegate.plan.served import ServedStation
from tidegate.plan.sizing import Size, crowd_of, size_of

GATES = Gates(batch=64)
LATE = Budgets(ttft_s=2.0, tpot_s=0.03)


def load(users: int, prompt: float = 500, output: float = 200, think_s: float = 0.0) -> Load:
    """Of users."""
    kinds = (Kind(prompt_tokens=prompt, output_tokens=output),)
    return Load(kinds=kinds, users=users, think_s=think_s)


def loop(users: int, prompt: float = 500, output: float = 200, **engine: int) -> Loop:
    """What one replica does for them."""
    clients = Clients(count=users, prompt_tokens=prompt, output_tokens=output)
    return closed_loop(msgspec.structs.replace(ENGINE, **engine), clients)


def answered(users: int, terms: Terms, **engine: int) -> Answer:
    """Of replicas whose engine differs in that."""
    replica = msgspec.structs.replace(REPLICA, engine=msgspec.structs.replace(ENGINE, **engine))
    found = answer_to(Ask(load=load(users), replica=replica, terms=terms))
    assert isinstance(found, Answer), found
    return found


ONE = Terms(replicas=1, spare_replicas=0)


def test_users_of_one_replica_are_a_closed_loop() -> None:
    """Means are its means, and nobody waits for a place."""
    found, expected = answered(32, ONE), loop(32)

    assert found.requests_per_s == expected.requests_per_s
    assert found.ttft_s.mean == pytest.approx(expected.ttft_s)
    assert found.tpot_s.mean == found.tpot_s.p99 == pytest.approx(expected.tpot_s)
    assert found.e2e_s.mean == pytest.approx(expected.e2e_s)
    assert found.wait_s.p99 == 0
    assert found.warnings == ()


def test_users_beyond_the_kv_memory_wait_and_it_binds() -> None:
    """17,600 tokens seat 28 of 608; 36 of 64 wait for as many completions, and TTFT has that in it."""
    found = answered(64, ONE, kv_tokens=17_600)
    expected = loop(64, kv_tokens=17_600)

    assert (expected.seats, expected.binding, found.binding) == (28, "kv_memory", "kv_memory")
    assert "Of 64 users of a replica 28 are served at once; the others wait" in found.because
    assert found.wait_s.mean == pytest.approx(36 / expected.requests_per_s)
    assert found.ttft_s.mean == pytest.approx(expected.ttft_s)
    assert found.utilisation == pytest.approx(1)
    assert found.warnings == ("1 replica does not hold the budgets; 3 would, none of them spare",)


def test_only_what_never_fits_is_impossible() -> None:
    """One sequence of 700 tokens into 704 does, into 688 does not."""
    assert answered(64, ONE, kv_tokens=704).binding == "kv_memory"
    small = msgspec.structs.replace(REPLICA, engine=msgspec.structs.replace(ENGINE, kv_tokens=688))
    refused = size_of(Ask(load=load(64), replica=small, terms=ONE))
    assert isinstance(refused, Impossible)
    assert refused.binding == "kv_memory"


def test_users_are_dealt_out_evenly() -> None:
    """100 before 3 replicas are 34, 33 and 33."""
    found = ClosedCrowd(REPLICA, load(100), GATES, replicas=3)
    more, less = loop(34), loop(33)

    rate = more.requests_per_s + 2 * less.requests_per_s
    assert found.rate_per_s == pytest.approx(rate)
    ttft_s = more.ttft_s * more.requests_per_s + 2 * less.ttft_s * less.requests_per_s
    assert found.latencies(Terms()).ttft_s.mean == pytest.approx(ttft_s / rate)
    assert ClosedCrowd(REPLICA, load(2), GATES, replicas=3).rate_per_s == 2 * loop(1).requests_per_s


def test_a_fleet_for_users_who_never_think() -> None:
    """The fewest that hold the budgets, by target and with one lost; one less would not."""
    terms = Terms(budgets=LATE)
    size = size_of(Ask(load=load(300), replica=REPLICA, terms=terms))
    assert isinstance(size, Size)
    ask = Ask(load=load(300), replica=REPLICA, terms=terms)
    lost = crowd_of(ask, size.station, size.replicas - 1)
    held = crowd_of(ask, size.station, size.replicas - size.spare_replicas)

    assert size.crowd is not None
    assert size.crowd.occupied <= terms.target_utilisation
    assert held.latencies(terms).held(LATE)
    fewer = crowd_of(ask, size.station, size.replicas - size.spare_replicas - 1)
    assert not fewer.latencies(terms).held(LATE)
    assert size.spare_replicas == 1 or lost.occupied > terms.target_utilisation


@pytest.mark.parametrize("users", [8, 24, 48, 64])
@pytest.mark.parametrize("output", [100, 400])
def test_who_hardly_thinks_meets_nearly_the_same(users: int, output: int) -> None:
    """Rates, TPOT and E2E are within 10 %; TTFT within 20 % of a loop that runs for so long that its
    beginning, the burst, is nothing: a finite source has none. Where every place is taken within 30 %, for
    the source takes its prompts to queue as at 70 % of what is sustained.
    """
    asked = load(users, output=output, think_s=1e-3)
    station = ServedStation(REPLICA, asked, Terms())
    hardly = Crowd(station, users, asked.think_s, replicas=1)
    source = hardly.latencies(Terms())
    never = loop(users, output=output)
    clients = Clients(count=users, prompt_tokens=500, output_tokens=output, requests=1e6)
    long = closed_loop(ENGINE, clients)

    assert never.requests_per_s == pytest.approx(hardly.rate_per_s, rel=0.1)
    assert never.tpot_s == pytest.approx(source.tpot_s.mean, rel=0.1)
    assert never.e2e_s == pytest.approx(source.e2e_s.mean, rel=0.1)
    assert long.ttft_s == pytest.approx(source.ttft_s.mean, rel=0.2 if users < 64 else 0.3)
    assert never.ttft_s - long.ttft_s == pytest.approx(never.burst_s, rel=0.2)


def test_more_users_than_seats_change_no_rate() -> None:
    """Where every seat is taken, twice as many carry as much, and each replica sustains what it did."""
    ask = Ask(load=load(64), replica=REPLICA, terms=ONE)
    answer, changes = answered(64, ONE), {change.what: change for change in changes_of(ask)}
    more = changes["2 x the users"]

    for name in ("requests_per_s", "requests_per_s_per_replica", "binding", "concurrency_per_replica"):
        assert getattr(more, name) == getattr(answer, name), name


def test_a_tpot_budget_is_a_gate() -> None:
    """No more decode at once than it lets, and the others wait for a place."""
    terms = msgspec.structs.replace(ONE, budgets=Budgets(tpot_s=0.015))
    found = answered(60, terms)

    assert found.gates.tpot is not None
    assert found.tpot_s.mean == pytest.approx(0.015, rel=0.1)
    assert f"{found.gates.tpot} are served at once" in found.because
    assert found.wait_s.mean > 0


@settings(max_examples=60, deadline=None)
@given(
    users=st.integers(1, 300),
    prompt=st.integers(1, 8000),
    output=st.integers(2, 4000),
    replicas=st.integers(1, 9),
    waiting=st.sampled_from(
        [Waiting(), Waiting(queue=0.1, steps=6), Waiting(together=0.7), Waiting(queue=0)]
    ),
)
def test_laws_of_users_who_never_think(
    users: int, prompt: int, output: int, replicas: int, waiting: Waiting
) -> None:
    """Little's law; percentiles ascend; the wait is within TTFT and TTFT within E2E; more replicas hold
    more.
    """
    replica = msgspec.structs.replace(REPLICA, waiting=waiting)
    found = ClosedCrowd(replica, load(users, prompt, output), GATES, replicas)
    seen = found.latencies(Terms())
    more = ClosedCrowd(replica, load(users, prompt, output), GATES, replicas + 1)

    assert found.rate_per_s * seen.e2e_s.mean == pytest.approx(users)
    assert found.rate_per_s <= replicas * found.sustained_per_s * 1.05
    assert 0 < found.occupied <= 1
    assert more.rate_per_s >= 0.97 * found.rate_per_s
    for each in (seen.wait_s, seen.ttft_s, seen.tpot_s, seen.e2e_s):
        assert 0 <= each.p50 <= each.p95 == each.at_percentile <= each.p99
    for name in ("mean", "p50", "p95", "p99"):
        wait_s, ttft_s, e2e_s = (getattr(each, name) for each in (seen.wait_s, seen.ttft_s, seen.e2e_s))
        assert wait_s < ttft_s < e2e_s
