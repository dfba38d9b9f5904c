"""Do users who wait for their answers meet what a closed loop does, however long they think?"""

from __future__ import annotations

from math import inf

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plan.test_served import ENGINE, REPLICA
from tidegate.core.records import Budgets
from tidegate.core.units import format_duration
from tidegate.perf.efficiencies import Waiting
from tidegate.plan.answer import Answer, Gates, Impossible
from tidegate.plan.answering import answer_to
from tidegate.plan.ask import Ask, Kind, Load, Replica, Terms
from tidegate.plan.closed.clients import ClosedCrowd
from tidegate.plan.closed.inside import Inside
from tidegate.plan.closed.loop import Clients, Loop, closed_loop
from tidegate.plan.sensitivity import changes_of
from tidegate.plan.sizing import Size, crowd_of, size_of

GATES = Gates(batch=64)
LATE = Budgets(ttft_s=2.0, tpot_s=0.03)
TIGHT = Budgets(ttft_s=1.0, tpot_s=0.02)
ONE = Terms(replicas=1, spare_replicas=0)


def load(users: int, prompt: float = 500, output: float = 200, think_s: float = 0.0) -> Load:
    """Of users."""
    kinds = (Kind(prompt_tokens=prompt, output_tokens=output),)
    return Load(kinds=kinds, users=users, think_s=think_s)


def crowd(asked: Load, replicas: int = 1, replica: Replica = REPLICA) -> ClosedCrowd:
    """Its users before so many."""
    assert asked.users is not None
    return ClosedCrowd(Inside(replica, asked, GATES), asked.users, replicas)


def loop(users: int, prompt: float = 500, output: float = 200, requests: float = inf, **engine: int) -> Loop:
    """What one replica does for them."""
    clients = Clients(count=users, prompt_tokens=prompt, output_tokens=output, requests=requests)
    return closed_loop(msgspec.structs.replace(ENGINE, **engine), clients)


def answered(asked: Load, terms: Terms, **engine: int) -> Answer:
    """Of replicas whose engine differs in that."""
    replica = msgspec.structs.replace(REPLICA, engine=msgspec.structs.replace(ENGINE, **engine))
    found = answer_to(Ask(load=asked, replica=replica, terms=terms))
    assert isinstance(found, Answer), found
    return found


def sized(asked: Load, terms: Terms) -> Size:
    """A fleet for them."""
    found = size_of(Ask(load=asked, replica=REPLICA, terms=terms))
    assert isinstance(found, Size), found
    return found


def test_users_of_one_replica_are_a_closed_loop() -> None:
    """Means are those of one that has run for ever, and nobody waits for a place."""
    found, expected = answered(load(32), ONE), loop(32)

    assert found.requests_per_s == pytest.approx(expected.requests_per_s)
    assert found.going_on.ttft_s.mean == pytest.approx(expected.ttft_s)
    assert found.going_on.tpot_s.mean == found.going_on.tpot_s.p99 == pytest.approx(expected.tpot_s)
    assert found.going_on.e2e_s.mean == pytest.approx(expected.e2e_s)
    assert found.going_on.wait_s.p99 == 0
    assert found.warnings == ()


def test_the_opening_stands_beside_it() -> None:
    """Benchmarks report ten requests each, begun at once: one in ten waits for all the others."""
    found, run, steady = answered(load(32), ONE), loop(32, requests=10), loop(32)

    assert found.opening is not None
    assert found.opening.ttft_s is not None
    assert found.opening.ttft_s.mean == pytest.approx(run.ttft_s)
    assert found.opening.ttft_s.p95 > 2 * found.going_on.ttft_s.p95
    # The last of them waits for the prompts of all others, 25 ms each and what they add to steps.
    prompt_s = 0.025
    assert found.opening.last_ttft_s == pytest.approx(31 * prompt_s + steady.ttft_s, rel=0.1)
    assert found.opening.words.startswith("If all 32 users ask in the same instant, the last first token")

    thinking = answered(load(32, think_s=5.0), ONE).opening
    assert thinking is not None
    assert thinking.last_ttft_s == pytest.approx(found.opening.last_ttft_s)
    assert thinking.ttft_s is None


def test_a_benchmark_is_asked_for_where_nothing_is_sized_and_nothing_budgeted() -> None:
    """Users who never think before replicas that are there: the latencies are a run's with its opening. With
    a budget, with thinking, or where replicas are asked for, they are those that come later.
    """
    run = answered(load(32), ONE)
    budgeted = answered(load(32), Terms(replicas=1, spare_replicas=0, budgets=Budgets(ttft_s=9.0)))
    thinking, sized = answered(load(32, think_s=5.0), ONE), answered(load(32), Terms())

    assert run.opening is not None
    assert run.ttft_s == run.opening.ttft_s
    assert run.afterwards is not None
    assert run.afterwards.ttft_s == budgeted.ttft_s
    assert run.opening.words.endswith(f"later on TTFT is {format_duration(budgeted.ttft_s.p95, 3)} at P95.")
    assert [each.afterwards for each in (budgeted, thinking, sized)] == [None] * 3


def test_a_benchmark_is_of_engines_and_their_own_room() -> None:
    """A gate counts requests at their ends; an engine takes them as there is room when they begin."""
    run = answered(load(64), ONE, kv_tokens=17_600)
    own = closed_loop(
        msgspec.structs.replace(ENGINE, kv_tokens=17_600),
        Clients(count=64, prompt_tokens=500, output_tokens=200),
    )

    assert own.seats > run.concurrency_per_replica
    assert run.ttft_s.mean == pytest.approx(own.ttft_s)
    assert run.wait_s.mean == pytest.approx(own.waiting_s)
    assert run.tpot_s.mean == pytest.approx(own.tpot_s)


def test_the_interactive_response_time_law() -> None:
    """N = X (R + Z): 200 users who think 5 s and wait R seconds send 200 / (R + 5) requests/s."""
    found = answered(load(200, think_s=5.0), Terms(replicas=3, spare_replicas=0))

    assert found.requests_per_s == pytest.approx(200 / (found.e2e_s.mean + 5.0), rel=0.002)
    assert found.requests_per_s == pytest.approx(24.2, abs=0.5)
    assert found.e2e_s.mean == pytest.approx(3.27, abs=0.1)


def test_users_beyond_the_kv_memory_wait_and_it_binds() -> None:
    """17,600 tokens hold 25 of 704 at their ends; 39 of 64 wait for as many completions."""
    found = answered(load(64), ONE, kv_tokens=17_600)
    expected = loop(25)

    assert (found.concurrency_per_replica, found.gates.kv, found.binding) == (25, 25, "kv_memory")
    assert "Of 64 users 25 are served at once; the others wait" in found.because
    assert found.going_on.wait_s.mean == pytest.approx(39 / expected.requests_per_s)
    assert found.going_on.ttft_s.mean == pytest.approx(expected.ttft_s + 39 / expected.requests_per_s)
    assert found.utilisation == pytest.approx(1)
    assert found.warnings == ("1 replica does not carry this load; 3 would, none of them spare",)


def test_only_what_never_fits_is_impossible() -> None:
    """One sequence of 700 tokens into 704 does, into 688 does not."""
    assert answered(load(64), ONE, kv_tokens=704).binding == "kv_memory"
    small = msgspec.structs.replace(REPLICA, engine=msgspec.structs.replace(ENGINE, kv_tokens=688))
    refused = size_of(Ask(load=load(64), replica=small, terms=ONE))
    assert isinstance(refused, Impossible)
    assert refused.binding == "kv_memory"


def test_users_are_dealt_out_evenly() -> None:
    """100 before 3 replicas are 34, 33 and 33."""
    found = crowd(load(100), replicas=3)
    more, less = loop(34), loop(33)

    rate = more.requests_per_s + 2 * less.requests_per_s
    assert found.rate_per_s == pytest.approx(rate)
    ttft_s = more.ttft_s * more.requests_per_s + 2 * less.ttft_s * less.requests_per_s
    assert found.latencies(Terms()).ttft_s.mean == pytest.approx(ttft_s / rate)
    assert crowd(load(2), replicas=3).rate_per_s == 2 * loop(1).requests_per_s


def test_a_place_is_waited_for_in_one_queue() -> None:
    """130 before 2 x 64 places: the 2 who wait do so for two completions of either replica."""
    found = crowd(load(130), replicas=2)

    assert found.latencies(Terms()).wait_s.mean == pytest.approx(2 / found.rate_per_s)


@pytest.mark.parametrize("think_s", [0.0, 2.0])
def test_a_fleet_for_users(think_s: float) -> None:
    """The fewest that hold the budgets, by target and with one lost; one less would not."""
    terms = Terms(budgets=LATE)
    size = sized(load(300, think_s=think_s), terms)
    ask = Ask(load=load(300, think_s=think_s), replica=REPLICA, terms=terms)
    lost = crowd_of(ask, size.station, size.replicas - 1)
    held = crowd_of(ask, size.station, size.replicas - size.spare_replicas)

    assert size.crowd is not None
    assert size.crowd.loaded <= terms.target_utilisation
    assert held.latencies(terms).held(LATE)
    fewer = crowd_of(ask, size.station, size.replicas - size.spare_replicas - 1)
    assert not fewer.latencies(terms).held(LATE)
    assert size.spare_replicas == 1 or lost.loaded > terms.target_utilisation


def test_many_users_who_think_long_take_what_their_rate_takes() -> None:
    """As many replicas, nearly, as the same requests by themselves, at the utilisation that is asked for."""
    terms = Terms(budgets=TIGHT)
    users = sized(load(20_000, think_s=120.0), terms)
    kinds = load(1).kinds
    alone = size_of(
        Ask(load=Load(kinds=kinds, requests_per_s=users.requests_per_s), replica=REPLICA, terms=terms)
    )

    assert isinstance(alone, Size)
    assert users.replicas == pytest.approx(alone.replicas, rel=0.03)
    assert users.utilisation == pytest.approx(0.7, abs=0.02)


@pytest.mark.parametrize("users", [8, 100, 240])
def test_thinking_hardly_is_nearly_not_thinking(users: int) -> None:
    """From 0 to 10 ms nothing moves by more than 1 %, and up to 1 s no fleet by more than one replica."""
    terms = Terms(budgets=TIGHT)
    never, hardly, some, long = (answered(load(users, think_s=each), terms) for each in (0.0, 0.01, 0.1, 1.0))

    for one, other in ((never, hardly), (hardly, some)):
        assert other.requests_per_s == pytest.approx(one.requests_per_s, rel=0.05)
        assert other.ttft_s.p95 == pytest.approx(one.ttft_s.p95, rel=0.05)
        assert other.tpot_s.mean == pytest.approx(one.tpot_s.mean, rel=0.05)
    assert hardly.requests_per_s == pytest.approx(never.requests_per_s, rel=0.01)
    assert never.replicas == hardly.replicas
    assert never.replicas - long.replicas in (0, 1)


def test_who_is_kept_together_is_no_longer_once_he_thinks() -> None:
    """Where an engine keeps clients as they began, thinking much longer than their prompts take undoes it."""
    kept = msgspec.structs.replace(REPLICA, waiting=Waiting(together=0.7))
    never, hardly, long, free = (
        crowd(load(32, think_s=think_s), replica=replica).latencies(Terms()).ttft_s.mean
        for think_s, replica in ((0.0, kept), (1e-3, kept), (60.0, kept), (60.0, REPLICA))
    )

    assert hardly == pytest.approx(never, rel=0.01)
    assert long == pytest.approx(free, rel=0.02)
    assert never > 2 * free


def test_more_users_than_seats_change_no_rate() -> None:
    """Where every seat is taken, twice as many carry as much, and each replica sustains what it did."""
    ask = Ask(load=load(64), replica=REPLICA, terms=ONE)
    answer, changes = answered(load(64), ONE), {change.what: change for change in changes_of(ask)}
    more = changes["2 x the users"]

    for name in ("requests_per_s", "requests_per_s_per_replica", "binding", "concurrency_per_replica"):
        assert getattr(more, name) == getattr(answer, name), name


def test_a_tpot_budget_is_a_gate() -> None:
    """No more decode at once than it lets, and the others wait for a place."""
    terms = msgspec.structs.replace(ONE, budgets=Budgets(tpot_s=0.015))
    found = answered(load(60), terms)

    assert found.gates.tpot == found.concurrency_per_replica
    assert found.tpot_s.mean == pytest.approx(0.015, rel=0.1)
    assert f"{found.gates.tpot} are served at once" in found.because
    assert found.wait_s.mean > 0


WAITINGS = [Waiting(), Waiting(queue=0.1, steps=6), Waiting(together=0.7), Waiting(queue=0)]


@settings(max_examples=60, deadline=None)
@given(
    users=st.integers(1, 300),
    prompt=st.integers(1, 8000),
    output=st.integers(2, 4000),
    replicas=st.integers(1, 9),
    think_s=st.just(0.0) | st.floats(1e-3, 100),
    waiting=st.sampled_from(WAITINGS),
)
def test_laws_of_users(
    users: int, prompt: int, output: int, replicas: int, think_s: float, waiting: Waiting
) -> None:
    """The interactive response time law; percentiles ascend; the wait is within TTFT and TTFT within E2E;
    more replicas hold more.
    """
    replica = msgspec.structs.replace(REPLICA, waiting=waiting)
    found = crowd(load(users, prompt, output, think_s), replicas, replica)
    seen = found.latencies(Terms())
    more = found.having(replicas=replicas + 1)

    assert found.rate_per_s * (seen.e2e_s.mean + think_s) == pytest.approx(users, rel=0.03)
    assert found.rate_per_s <= replicas * found.sustained_per_s * (1 + 1e-9)
    assert 0 < found.source.occupied <= 1 + 1e-12
    assert more.rate_per_s >= found.rate_per_s * (1 - 1e-9)
    for each in (seen.wait_s, seen.ttft_s, seen.tpot_s, seen.e2e_s):
        assert 0 <= each.p50 <= each.p95 == each.at_percentile <= each.p99
    for name in ("mean", "p50", "p95", "p99"):
        wait_s, ttft_s, e2e_s = (getattr(each, name) for each in (seen.wait_s, seen.ttft_s, seen.e2e_s))
        assert wait_s < ttft_s < e2e_s


@settings(max_examples=30, deadline=None)
@given(
    users=st.integers(1, 600),
    more_users=st.integers(1, 200),
    prompt=st.integers(100, 4000),
    think_s=st.just(0.0) | st.floats(1e-3, 30),
    more_s=st.floats(0, 10),
)
def test_a_fleet_grows_with_its_users_and_shrinks_as_they_think(
    users: int, more_users: int, prompt: int, think_s: float, more_s: float
) -> None:
    """More users never take fewer replicas, and more thought never takes more."""
    terms = Terms(budgets=Budgets(ttft_s=1.5, tpot_s=0.025))
    found = sized(load(users, prompt, think_s=think_s), terms)

    assert sized(load(users + more_users, prompt, think_s=think_s), terms).replicas >= found.replicas
    assert sized(load(users, prompt, think_s=think_s + more_s), terms).replicas <= found.replicas
