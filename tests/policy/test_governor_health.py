"""The governor's replicas: whom failures blame, who is tried again, who comes and goes."""

from __future__ import annotations

from math import inf

import pytest

from tests.policy.build import (
    BUDGETS,
    LENIENT,
    PATIENT,
    approx,
    arrive,
    ask,
    ended,
    failed,
    govern,
    of,
    only,
    sent,
    tell,
    used,
    wake,
)
from tidegate.core.errors import CallerError
from tidegate.core.messages import (
    Abort,
    Arrived,
    Cancelled,
    Command,
    Dispatch,
    DrainAsked,
    Evict,
    FailureKind,
    Finished,
    FirstToken,
    Probe,
    Probed,
    Reject,
    ReplicaAdded,
    ReplicaRemoved,
    ReplicaSeen,
)
from tidegate.core.reasons import Reason
from tidegate.policy.settings import (
    BreakerSettings,
    ClassSettings,
    Deadlines,
    GateSettings,
    HealthSettings,
    RetrySettings,
    RoutingPolicy,
    RoutingSettings,
)

# -- health ------------------------------------------------------------------------------------------


def test_a_callers_own_tiny_timeout_blames_nobody() -> None:
    """Six requests that gave a slow replica a tenth of a second leave it in the set for the next tenant."""
    governor = govern(concurrency=9, pool={"breaker": BreakerSettings(consecutive_failures=2)})
    for request_id in range(6):
        arrive(governor, 0.0, request_id, timeout_s=0.1)
    assert [type(command) for _, command in wake(governor, 0.2)] == [Abort, Evict] * 6
    assert governor.members["r0"].state(0.2) == "up"
    assert sent(arrive(governor, 0.3, 9, tenant="b")) == [(9, 1, "r0")]


def test_our_own_deadline_blames_the_replica_whoever_asked() -> None:
    """A hanging replica is found out also by those who sent some long deadline of their own."""
    pool = BUDGETS | {"breaker": BreakerSettings(consecutive_failures=2)}
    governor = govern(concurrency=9, pool=pool)
    for request_id in range(2):
        arrive(governor, 0.0, request_id, timeout_s=19.0)
    wake(governor, 10.0)
    assert governor.members["r0"].state(10.0) == "open"


def test_a_replica_is_not_blamed_for_our_queue() -> None:
    """Who was dispatched with a little time left and got no token in it says nothing of the replica."""
    pool = BUDGETS | {"breaker": BreakerSettings(consecutive_failures=1)}
    governor = govern(pool=pool, classes=PATIENT)
    arrive(governor, 0.0, 1)
    arrive(governor, 0.0, 2)
    tell(governor, 9.0, FirstToken(1, 1), Finished(1, 1))
    assert [type(command) for _, command in wake(governor, 10.0)] == [Abort, Evict]
    assert governor.members["r0"].state(10.0) == "up"


def test_what_we_cut_ourselves_blames_nobody() -> None:
    """A stream that ends in a reset because it was truncated says nothing about its replica."""
    pool = {"deadlines": Deadlines(total_s=5.0), "breaker": BreakerSettings(consecutive_failures=1)}
    governor = govern(pool=pool)
    arrive(governor, 0.0, 1)
    tell(governor, 1.0, FirstToken(1, 1))
    wake(governor, 5.0)
    tell(governor, 5.1, failed(1, FailureKind.RESET, committed=True, output_tokens=30))
    assert ended(governor) == [(1, "TOTAL_TIMEOUT", 40)]
    assert governor.members["r0"].state(5.1) == "up"


def test_client_errors_never_open_a_breaker() -> None:
    """Twenty over-long prompts are twenty answers."""
    governor = govern(concurrency=4)
    for request_id in range(20):
        arrive(governor, 0.0, request_id)
        tell(governor, 0.0, Finished(request_id, 1, status=400))
    assert governor.members["r0"].state(0.0) == "up"
    assert sent(arrive(governor, 0.0, 99)) == [(99, 1, "r0")]


def test_half_open_lets_one_of_a_hundred_through() -> None:
    """When the pause ends with a hundred waiting, one is tried; its success lets the next one, then all."""
    governor = govern(
        concurrency=200, pool={"breaker": BreakerSettings(consecutive_failures=1)}, classes=PATIENT
    )
    arrive(governor, 0.0, 999)
    tell(governor, 0.0, failed(999, FailureKind.SERVER_ERROR, committed=True))
    for request_id in range(100):
        assert arrive(governor, 1.0, request_id) == []

    ((at, trial),) = wake(governor, 50.0)
    assert (at, sent([trial])) == (5.0, [(0, 1, "r0")])
    assert governor.members["r0"].state(at) == "half_open"
    assert sent(tell(governor, 50.0, Finished(0, 1))) == [(1, 1, "r0")]
    assert len(sent(tell(governor, 51.0, Finished(1, 1)))) == 98
    assert governor.members["r0"].state(51.0) == "up"


def test_a_trial_whose_client_left_frees_its_permit() -> None:
    """The next request in line becomes the trial at once."""
    governor = govern(concurrency=9, pool={"breaker": BreakerSettings(consecutive_failures=1)})
    arrive(governor, 0.0, 1)
    tell(governor, 0.0, failed(1, FailureKind.SERVER_ERROR, committed=True))
    assert sent(arrive(governor, 6.0, 2)) == [(2, 1, "r0")]
    assert arrive(governor, 6.0, 3) == []
    assert sent(tell(governor, 6.5, Cancelled(2))) == [(3, 1, "r0")]


@pytest.mark.parametrize(("share", "open_at_most"), [(0.75, 3), (0.5, 2), (0.1, 1)])
def test_not_all_replicas_are_ejected(share: float, open_at_most: int) -> None:
    """However all of four fail, and for however long, at most the configured share of them is out."""
    pool = {
        "health": HealthSettings(max_ejected_share=share),
        "breaker": BreakerSettings(consecutive_failures=2, open_s=1.0),
    }
    governor = govern(replicas=4, concurrency=9, pool=pool)
    most = 0
    for tick in range(400):
        now = tick * 0.05
        commands = [command for _, command in wake(governor, now)]
        commands += arrive(governor, now, tick)
        while dispatches := of(commands, Dispatch):
            commands = []
            for each in dispatches:
                broken = failed(each.request_id, FailureKind.SERVER_ERROR, each.attempt, status=500)
                commands += tell(governor, now, broken)
        out = sum(each.state(now) in ("open", "half_open") for each in governor.members.values())
        most = max(most, out)
    assert most == open_at_most
    assert any(each.state(now) == "up" for each in governor.members.values())


def test_all_cooling_down_names_the_shortest_pause() -> None:
    """Two replicas are back in 12.3 and 30 s: who may not wait that long is told 12.3, not a guess."""
    no_retry = {"retry": RetrySettings(max_attempts=1)}
    governor = govern(replicas=2, pool=no_retry, classes={"default": ClassSettings(max_wait_s=5.0)})
    for request_id, retry_after_s in [(1, 12.3), (2, 40.0)]:
        arrive(governor, 0.0, request_id)
        tell(governor, 0.0, failed(request_id, FailureKind.BUSY, retry_after_s=retry_after_s))
    reject = only(arrive(governor, 0.0, 3), Reject)
    assert (reject.reason, reject.retry_after_s) == (Reason.NO_REPLICA, approx(12.3))


def test_what_all_refuse_is_refused_with_their_retry_after() -> None:
    """Back-pressure that outlasts all attempts is passed on, within what clients honour."""
    for retry_after_s, told in [(300.0, 120.0), (7.0, 7.0), (0.0, 1.0)]:
        governor = govern(pool={"retry": RetrySettings(max_attempts=1)})
        arrive(governor, 0.0, 1)
        evict = only(tell(governor, 0.0, failed(1, FailureKind.BUSY, retry_after_s=retry_after_s)), Evict)
        assert (evict.reason, evict.retry_after_s) == (Reason.UPSTREAM_BUSY, told)


def test_each_replica_has_one_prober() -> None:
    """Ten minutes with a failing connect every 20 s: probes keep their interval, and end with the replica."""
    pool = {
        "breaker": BreakerSettings(consecutive_failures=99, min_samples=999),
        "health": HealthSettings(interval_s=2.0),
    }
    governor = govern(concurrency=9, pool=pool)
    probes = {"regular": 0, "after a failed connect": 0}

    def answer(commands: list[Command], now: float, kind: str) -> None:
        for each in of(commands, Probe):
            probes[kind] += 1
            tell(governor, now, Probed(replica=each.replica, ok=True))

    for tick in range(3_000):
        now = tick * 0.2
        answer(governor.on_wakeup(now), now, "regular")
        if tick % 100 == 1:
            arrive(governor, now, tick)
            answer(tell(governor, now, failed(tick, FailureKind.CONNECT)), now, "after a failed connect")
    assert probes["after a failed connect"] == 30
    assert probes["regular"] <= 600 / 2

    tell(governor, 600.0, ReplicaRemoved(replica="r0"))
    assert governor.next_wakeup() == inf


def test_found_dead_and_found_alive_again() -> None:
    """Three bad probes refuse newcomers at once; two good ones send what had stayed in the queue."""
    governor = govern(classes=PATIENT, pool={"deadlines": LENIENT, "health": HealthSettings(interval_s=2.0)})
    arrive(governor, 0.0, 1)
    assert arrive(governor, 0.0, 2) == []
    wake(governor, 6.5, alive=False)  # at 2, 4 and 6
    assert governor.members["r0"].state(6.5) == "down"
    reject = only(arrive(governor, 6.5, 3), Reject)
    assert (reject.reason, reject.retry_after_s) == (Reason.NO_REPLICA, 4.0)
    tell(governor, 6.6, failed(1, FailureKind.RESET, committed=True))

    dispatched: list[Command] = []
    while not dispatched:  # with no arrival to set it off
        now = governor.next_wakeup()
        for command in governor.on_wakeup(now):
            dispatched += tell(governor, now, Probed(replica=only([command], Probe).replica, ok=True))
    assert (now, sent(dispatched)) == (10.0, [(2, 1, "r0")])


# -- replicas come and go ----------------------------------------------------------------------------


def test_a_drained_replica_gets_nothing_new() -> None:
    """Not with new arrivals, not with retries, not from the queue; what runs there goes on."""
    governor = govern(replicas=2, concurrency=4, pool={"deadlines": LENIENT})
    first = only(arrive(governor, 0.0, 1), Dispatch).replica
    tell(governor, 1.0, DrainAsked(replica=first))
    for request_id in range(2, 5):
        assert only(arrive(governor, 1.0, request_id), Dispatch).replica != first
    assert governor.members[first].state(1.0) == "draining"
    tell(governor, 2.0, FirstToken(1, 1), Finished(1, 1, usage=used(10, 10)))
    assert ended(governor) == [(1, "OK", 20)]
    tell(governor, 3.0, DrainAsked(replica=first, drain=False))
    assert only(arrive(governor, 3.0, 9), Dispatch).replica == first


def test_a_removed_replica_gets_nothing_new() -> None:
    """A hundred requests with the key that was pinned to it go elsewhere, and those that ran may finish."""
    routing = RoutingSettings(policy=RoutingPolicy.CONSISTENT_HASH)
    governor = govern(replicas=3, concurrency=200, pool={"routing": routing})
    pinned = only(arrive(governor, 0.0, 0, affinity=77), Dispatch).replica
    tell(governor, 1.0, ReplicaRemoved(replica=pinned), ReplicaRemoved(replica="nobody"))
    for request_id in range(1, 101):
        assert only(arrive(governor, 1.0, request_id, affinity=77), Dispatch).replica != pinned
    tell(
        governor,
        2.0,
        ReplicaSeen(replica=pinned),
        Probed(replica=pinned, ok=False),
        DrainAsked(replica=pinned),
    )
    tell(governor, 2.0, Finished(0, 1, usage=used(10, 10)))
    assert ended(governor) == [(0, "OK", 20)]


def test_the_chosen_replica_goes_before_it_is_reached() -> None:
    """Removed between choice and connect: the attempt fails, and the next one goes to who is left."""
    governor = govern(replicas=2)
    gone = only(arrive(governor, 0.0, 1), Dispatch).replica
    tell(governor, 0.0, ReplicaRemoved(replica=gone))
    retry = only(tell(governor, 0.1, failed(1, FailureKind.CONNECT)), Dispatch)
    assert retry.replica != gone


def test_who_waits_when_the_last_replica_leaves_is_sent_to_the_next() -> None:
    """A flow with a waiting request is not forgotten, however long nothing happens."""
    governor = govern(classes=PATIENT, pool={"deadlines": LENIENT})
    arrive(governor, 0.0, 1)
    assert arrive(governor, 0.0, 2) == []
    tell(governor, 1.0, ReplicaRemoved(replica="r0"))
    assert wake(governor, 900.0) == []
    assert sent(tell(governor, 900.0, ReplicaAdded(pool="m", replica="new"))) == [(2, 1, "new")]


def test_a_pool_without_replicas_is_not_an_unknown_pool() -> None:
    """503 with a time to come back where a pool is empty; 404 where there is none."""
    governor = govern(replicas=0)
    empty, unknown = only(arrive(governor, 0.0, 1), Reject), only(arrive(governor, 0.0, 2, model="x"), Reject)
    assert (empty.reason, empty.retry_after_s) == (Reason.NO_REPLICA, 5.0)
    assert (unknown.reason, unknown.retry_after_s) == (Reason.UNKNOWN_MODEL, None)


def test_steady_load_is_spread() -> None:
    """A hundred requests of 2 s each, ten a second, over two equal replicas: no more than ten apart."""
    governor = govern(replicas=2, concurrency=64)
    went = {"r0": 0, "r1": 0}
    ends: list[tuple[float, int]] = []
    for request_id in range(100):
        now = request_id * 0.1
        while ends and ends[0][0] <= now:
            at, done = ends.pop(0)
            tell(governor, at, Finished(done, 1, usage=used(10, 10)))
        went[
            only([c for c in arrive(governor, now, request_id) if not isinstance(c, Probe)], Dispatch).replica
        ] += 1
        ends.append((now + 2.0, request_id))
    assert abs(went["r0"] - went["r1"]) <= 10


def test_broken_contracts_are_errors() -> None:
    """The same request or replica twice, or a replica of no pool, is a caller's bug and says so."""
    governor = govern()
    arrive(governor, 0.0, 1)
    for event in (
        Arrived(ask(1)),
        ReplicaAdded(pool="m", replica="r0"),
        ReplicaAdded(pool="x", replica="r9"),
    ):
        with pytest.raises(CallerError):
            governor.handle(event, 0.0)


def test_a_replicas_own_prefill_bound_is_its_gate() -> None:
    """What a replica brings along stands instead of its pool's value, one by one."""
    governor = govern(replicas=0, pool={"gate": GateSettings(max_prefill_tokens=1_000, kv_tokens=50)})

    governor.handle(ReplicaAdded(pool="m", replica="own", max_prefill_tokens=15), 0.0)
    governor.handle(ReplicaAdded(pool="m", replica="pools"), 0.0)

    gates = {name: member.replica.gate for name, member in governor.members.items()}
    assert (gates["own"].max_prefill_tokens, gates["own"].kv_tokens) == (15, 50)
    assert gates["pools"] == governor.settings.pools["m"].gate


def test_a_pools_context_is_its_smallest() -> None:
    """Engines that tell different lengths do not take turns: a request must fit wherever it goes."""
    governor = govern(replicas=2)

    for name, told, context in [("r0", 100, 100), ("r1", 40, 40), ("r0", 100, 40), ("r1", 60, 60)]:
        governor.handle(ReplicaSeen(replica=name, context_tokens=told), 1.0)
        assert governor.pools["m"].context_tokens == context
    governor.handle(ReplicaRemoved(replica="r1"), 2.0)
    assert governor.pools["m"].context_tokens == 100


def test_looking_changes_nothing() -> None:
    """Status and metrics may look at any time: only events move a breaker."""
    governor = govern(replicas=1, pool={"breaker": BreakerSettings(consecutive_failures=1, open_s=5.0)})
    arrive(governor, 0.0, 1)
    governor.handle(failed(1, FailureKind.RESET), 0.0)
    member = governor.members["r0"]

    for now, state, available in [(1.0, "open", False), (5.0, "half_open", True), (1.0, "open", False)]:
        assert (member.state(now), member.available(now)) == (state, available)
