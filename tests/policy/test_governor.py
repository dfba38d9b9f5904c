"""The governor: timelines of single requests, replicas and shutdowns, told as events and commands."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from tests.policy.build import EXACT, approx, ask, govern, of, only, refusals, sent, used
from tidegate.core.errors import CallerError
from tidegate.core.messages import (
    Abort,
    Arrived,
    Cancelled,
    Command,
    Dispatch,
    DrainAsked,
    Event,
    Evict,
    Failed,
    FailureKind,
    Finished,
    FirstToken,
    Probe,
    Probed,
    Progressed,
    Reject,
    ReplicaAdded,
    ReplicaRemoved,
    ReplicaSeen,
    ShutdownAsked,
    Truncate,
)
from tidegate.core.reasons import Reason
from tidegate.policy.breakers import BreakerSettings
from tidegate.policy.governor import Governor
from tidegate.policy.limits import LimitSettings
from tidegate.policy.queueing import ClassSettings, QueueSettings
from tidegate.policy.replicas import GateSettings, HealthSettings
from tidegate.policy.retries import RetrySettings
from tidegate.policy.routing import RoutingPolicy, RoutingSettings
from tidegate.policy.settings import Deadlines, PoolSettings, TenantSettings

PATIENT = {"default": ClassSettings(max_wait_s=1_000.0)}
LENIENT = Deadlines(ttft_s=1e6, total_s=1e6)


def tell(governor: Governor, now: float, *events: Event) -> list[Command]:
    """Several events at one instant, the invariants asserted after each."""
    out: list[Command] = []
    for event in events:
        out += governor.handle(event, now)
        governor.check()
    return out


def wake(governor: Governor, until: float, alive: bool = True) -> list[tuple[float, Command]]:
    """Let all wake-ups up to that instant pass, probes answered at once; what was commanded when."""
    out: list[tuple[float, Command]] = []
    while (now := governor.next_wakeup()) <= until:
        for command in governor.on_wakeup(now):
            if isinstance(command, Probe):
                governor.handle(Probed(replica=command.replica, ok=alive), now)
            else:
                out.append((now, command))
        governor.check()
    return out


def arrive(governor: Governor, now: float, request_id: int, **fields: Any) -> list[Command]:
    return tell(governor, now, Arrived(ask(request_id, **fields)))


def failed(request_id: int, kind: FailureKind, attempt: int = 1, **fields: Any) -> Failed:
    return Failed(request_id, attempt, kind, **fields)


def ended(governor: Governor) -> list[tuple[int, str, float]]:
    """Who has ended since the last time, how, and at what charge."""
    return [
        (record.request_id, record.reason.name if record.reason else "OK", record.charged_tokens)
        for record in governor.take_ended()
    ]


# -- one request ----------------------------------------------------------------------------------


def test_the_life_of_a_request() -> None:
    """Dispatched at once, streamed, finished, charged what the engine counted, and recorded."""
    governor = govern()

    dispatch = only(arrive(governor, 1.0, 7), Dispatch)
    assert (dispatch.request_id, dispatch.attempt, dispatch.replica, dispatch.pool) == (7, 1, "r0", "m")
    assert (dispatch.max_tokens, dispatch.degraded, dispatch.queued_s) == (None, (), 0.0)
    assert dispatch.quota is None
    assert tell(governor, 1.5, FirstToken(7, 1), Progressed(7, 1, 4)) == []
    assert tell(governor, 2.5, Finished(7, 1, usage=used(12, 21, 5))) == []

    (record,) = governor.take_ended()
    assert (record.ok, record.ttft_s, record.e2e_s, record.tpot_s) == (True, 0.5, 1.5, approx(0.05))
    assert (record.prompt_tokens, record.output_tokens, record.cached_tokens) == (12, 21, 5)
    assert (record.charged_tokens, record.replica, record.attempts) == (33, "r0", 1)
    assert (governor.live, governor.take_ended()) == (0, [])


def test_a_stream_and_a_whole_answer_cost_the_same() -> None:
    """Totals settle once, however often and in whatever steps progress was told."""
    limits = LimitSettings(tokens_per_minute=6_000)
    charges = []
    for streams in (True, False):
        governor = govern(limits=limits)
        arrive(governor, 0.0, 1, streams=streams)
        if streams:
            tell(governor, 0.0, FirstToken(1, 1), *(Progressed(1, 1, n) for n in (10, 50, 100, 50)))
        tell(governor, 0.0, Finished(1, 1, usage=used(50, 100)))
        (scope,) = governor.admission.scopes()
        assert scope.tokens is not None
        charges.append(scope.tokens.available(0.0))
    assert charges == [approx(5_850), approx(5_850)]


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        (Finished(1, 1, usage=used(12, 30)), ("OK", 42)),
        (Finished(1, 1, output_tokens=30), ("OK", 40)),  # no usage: the estimate and what was counted
        (Finished(1, 1, output_tokens=3), ("OK", 30)),  # never less than progress has told
        (Finished(1, 1, status=400), ("OK", 0)),  # refused by the engine: nothing was computed
        (Finished(1, 1, status=400, usage=used(12, 0)), ("OK", 12)),
        (Cancelled(1), ("CLIENT_GONE", 30)),
        (Cancelled(1, output_tokens=50), ("CLIENT_GONE", 60)),
        (Cancelled(1, usage=used(12, 7)), ("CLIENT_GONE", 19)),
        (failed(1, FailureKind.RESET, committed=True, output_tokens=25), ("UPSTREAM_ERROR", 35)),
        (failed(1, FailureKind.STALLED, committed=True), ("UPSTREAM_TIMEOUT", 30)),
        (failed(1, FailureKind.CONNECT), ("UPSTREAM_ERROR", 0)),
    ],
)
def test_every_ending_settles_at_what_was_used(ending: Event, outcome: tuple[str, float]) -> None:
    """Whatever the end, the charge is what an engine computed, and the bucket shows exactly that."""
    governor = govern(limits=LimitSettings(tokens_per_minute=6_000, max_in_flight=1))
    arrive(governor, 0.0, 1)
    tell(governor, 0.0, FirstToken(1, 1), Progressed(1, 1, 20), ending)

    assert ended(governor) == [(1, *outcome)]
    (scope,) = governor.admission.scopes()
    assert scope.tokens is not None
    assert scope.tokens.available(0.0) == approx(6_000 - outcome[1])
    assert scope.in_flight == 0
    assert governor.members["r0"].replica.in_flight == 0


def test_prompts_count_and_never_dispatched_costs_nothing() -> None:
    """A prompt of 5,000 of 6,000 a minute leaves no room for a second; its refusal takes nothing."""
    governor = govern(concurrency=5, limits=LimitSettings(tokens_per_minute=6_000))
    arrive(governor, 0.0, 1, prompt_bytes=5_000)
    tell(governor, 0.0, Finished(1, 1, usage=used(5_000, 10)))

    reject = only(arrive(governor, 0.0, 2, prompt_bytes=5_000), Reject)
    assert (reject.reason, reject.retry_after_s) == (Reason.TOKEN_QUOTA, approx(40.2, abs=0.01))
    assert reject.quota is not None
    assert reject.quota.remaining_tokens == 990
    assert ended(governor) == [(1, "OK", 5_010), (2, "TOKEN_QUOTA", 0)]


def test_what_a_dead_attempt_says_is_ignored() -> None:
    """Events of an attempt that is over, or of a request that nobody knows, change nothing."""
    governor = govern(replicas=2)
    arrive(governor, 0.0, 1)
    assert sent(tell(governor, 0.1, failed(1, FailureKind.RESET))) in ([(1, 2, "r0")], [(1, 2, "r1")])

    stale: list[Event] = [FirstToken(1, 1), Progressed(1, 1, 900), Finished(1, 1)]
    stale.append(failed(1, FailureKind.RESET))
    unknown: list[Event] = [FirstToken(9, 1), Progressed(9, 1, 5), Finished(9, 1), Cancelled(9)]
    assert tell(governor, 0.2, *stale, *unknown, FirstToken(1, 3)) == []
    tell(governor, 1.0, FirstToken(1, 2), Finished(1, 2, usage=used(10, 5)))
    assert tell(governor, 1.1, Finished(1, 2), Cancelled(1)) == []
    assert ended(governor) == [(1, "OK", 15)]


# -- cancels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["waiting", "running", "streaming", "retrying", "ending"])
def test_a_client_may_leave_at_any_stage(stage: str) -> None:
    """Whatever it held is free in the same instant, and whoever waits is sent."""
    pool = {"deadlines": Deadlines(total_s=5.0), "retry": RetrySettings(floor=9)}
    governor = govern(replicas=2 if stage == "retrying" else 1, pool=pool)
    arrive(governor, 0.0, 1)
    if stage == "waiting":
        assert arrive(governor, 0.0, 2) == []
        assert tell(governor, 1.0, Cancelled(2)) == []
        assert governor.pools["m"].queue.requests == 0
        assert ended(governor) == [(2, "CLIENT_GONE", 0)]
        return
    if stage == "retrying":
        other = only(arrive(governor, 0.0, 3), Dispatch).replica
        assert tell(governor, 1.0, failed(1, FailureKind.RESET)) == []  # the other one has no room
        assert other != "r0" or governor.members["r0"].replica.in_flight == 1
        assert sent(arrive(governor, 1.0, 2))  # where 1 had failed
    else:
        arrive(governor, 0.0, 2)
    if stage in ("streaming", "ending"):
        tell(governor, 1.0, FirstToken(1, 1))
    if stage == "ending":
        assert [type(command) for _, command in wake(governor, 5.0)] == [Truncate, Evict]
        arrive(governor, 5.0, 2_000)

    commands = tell(governor, 5.0 if stage == "ending" else 2.0, Cancelled(1))
    assert governor.live == (2 if stage == "retrying" else 1)
    if stage == "retrying":
        assert commands == []
        assert tell(governor, 3.0, Finished(3, 1)) == []
    else:
        assert [each.request_id for each in of(commands, Dispatch)] == [2_000 if stage == "ending" else 2]


def test_cancels_that_race_with_dispatch_leak_nothing() -> None:
    """A thousand clients that leave just before, at or after their dispatch leave the one slot free."""
    governor = govern(pool={"deadlines": LENIENT})
    for round_ in range(1_000):
        now = float(round_)
        arrive(governor, now, 3 * round_)
        arrive(governor, now, 3 * round_ + 1)
        ends: list[Event] = [Finished(3 * round_, 1), Cancelled(3 * round_ + 1)]
        tell(governor, now, *(ends if round_ % 2 else reversed(ends)))
        assert governor.members["r0"].replica.in_flight == 0
    assert governor.live == 0


# -- deadlines ------------------------------------------------------------------------------------

BUDGETS = {"deadlines": Deadlines(ttft_s=10.0, total_s=20.0)}


@pytest.mark.parametrize(
    ("streams", "first_token_at", "when", "commands", "outcome"),
    [
        (True, None, 10.0, [Abort, Evict], "TTFT_TIMEOUT"),
        (True, 9.0, 20.0, [Truncate], "TOTAL_TIMEOUT"),
        (False, None, 20.0, [Abort, Evict], "TOTAL_TIMEOUT"),
    ],
)
def test_deadlines_of_what_runs(
    streams: bool, first_token_at: float | None, when: float, commands: list[type], outcome: str
) -> None:
    """No first token in time ends a stream; total expiry truncates one that has begun, and ends the rest."""
    governor = govern(pool=BUDGETS)
    arrive(governor, 0.0, 1, streams=streams)
    if first_token_at is not None:
        tell(governor, first_token_at, FirstToken(1, 1))

    happened = wake(governor, 100.0)
    assert [(at, type(command)) for at, command in happened] == [(when, command) for command in commands]
    if commands == [Truncate]:
        tell(governor, when + 0.1, Progressed(1, 1, 40), Finished(1, 1, output_tokens=44))
    assert ended(governor) == [(1, outcome, 54 if commands == [Truncate] else 10)]
    assert governor.members["r0"].replica.in_flight == 0


def test_deadlines_of_what_waits() -> None:
    """The class's age, the TTFT deadline or the caller's own, whichever is first, ends the wait."""
    for max_wait_s, timeout_s, when, reason in [
        (4.0, None, 4.0, Reason.QUEUE_TIMEOUT),
        (15.0, None, 10.0, Reason.QUEUE_TIMEOUT),
        (4.0, 2.0, 2.0, Reason.TOTAL_TIMEOUT),
    ]:
        governor = govern(pool=BUDGETS, classes={"default": ClassSettings(max_wait_s=max_wait_s)})
        arrive(governor, 0.0, 1, streams=False)
        assert arrive(governor, 0.0, 2, timeout_s=timeout_s) == []
        ((at, command),) = wake(governor, 19.0)
        assert isinstance(command, Evict)
        assert (at, command.reason) == (when, reason)
        assert ended(governor) == [(2, reason.name, 0)]


def test_due_deadlines_pass_before_the_event() -> None:
    """A driver that comes late finds what had expired evicted, not sent by the event that frees a place."""
    governor = govern(pool=BUDGETS, classes={"default": ClassSettings(max_wait_s=4.0)})
    arrive(governor, 0.0, 1)
    arrive(governor, 0.0, 2)
    arrive(governor, 0.5, 3)
    commands = tell(governor, 4.2, Finished(1, 1))
    assert [type(command) for command in commands] == [Evict, Dispatch]
    assert (refusals(commands), sent(commands)) == ([(2, "QUEUE_TIMEOUT")], [(3, 1, "r0")])


def test_nothing_is_sent_whose_deadline_has_passed() -> None:
    """When several deadlines are found due at once, the first to pass does not send the next to pass."""
    governor = govern(pool=BUDGETS, classes=PATIENT)
    arrive(governor, 0.0, 1)
    arrive(governor, 0.0, 2, timeout_s=10.01)
    assert [type(command) for command in governor.on_wakeup(10.05)] == [Abort, Evict, Evict]


def test_a_tenants_most_urgent_goes_first() -> None:
    """Within a tenant the caller's own deadline decides before arrival does."""
    governor = govern()
    arrive(governor, 0.0, 1)
    for request_id, timeout_s in [(2, None), (3, 9.0), (4, 3.0)]:
        arrive(governor, 0.1, request_id, timeout_s=timeout_s)
    order = []
    running = 1
    for now in (1.0, 1.1, 1.2):
        running = only(tell(governor, now, Finished(running, 1)), Dispatch).request_id
        order.append(running)
    assert order == [4, 3, 2]


def test_the_expired_hold_no_capacity() -> None:
    """A thousand that time out in the queue leave it empty; the next request goes at once."""
    governor = govern(classes={"default": ClassSettings(max_wait_s=0.1)})
    arrive(governor, 0.0, 0)
    for request_id in range(1, 1_001):
        governor.handle(Arrived(ask(request_id)), 0.0)
    governor.check()
    evicted = wake(governor, 1.0)
    assert [command.request_id for _, command in evicted if isinstance(command, Evict)] == list(
        range(1, 1_001)
    )
    assert governor.pools["m"].queue.requests == 0
    tell(governor, 2.0, Finished(0, 1))
    assert sent(arrive(governor, 2.0, 2_000)) == [(2_000, 1, "r0")]
    assert len(governor._timers) < 600


# -- retries --------------------------------------------------------------------------------------


def test_a_retry_goes_elsewhere() -> None:
    """Affinity prefers the dead replica, and the second attempt goes to the other one all the same."""
    routing = RoutingSettings(policy=RoutingPolicy.CONSISTENT_HASH)
    for affinity in range(20):
        governor = govern(replicas=2, concurrency=9, pool={"routing": routing})
        first = only(arrive(governor, 0.0, 1, affinity=affinity << 58), Dispatch)
        commands = tell(governor, 0.0, failed(1, FailureKind.CONNECT))
        (second,) = of(commands, Dispatch)
        assert {first.replica, second.replica} == {"r0", "r1"}
        assert second.attempt == 2
        assert of(commands, Probe) == [Probe(first.replica)]


def test_no_retry_once_a_byte_was_sent() -> None:
    """What the client has begun to read is not begun again: the stream ends, and no other replica sees it."""
    governor = govern(replicas=2)
    arrive(governor, 0.0, 1)
    commands = tell(
        governor, 1.0, FirstToken(1, 1), failed(1, FailureKind.RESET, committed=True, output_tokens=3)
    )
    assert commands == []
    assert ended(governor) == [(1, "UPSTREAM_ERROR", 13)]


def test_no_retry_where_it_has_failed() -> None:
    """With no other replica to go to, the failure is the answer."""
    governor = govern(replicas=1, concurrency=4)
    arrive(governor, 0.0, 1)
    evict = only(tell(governor, 1.0, failed(1, FailureKind.SERVER_ERROR, status=500)), Evict)
    assert (evict.reason, evict.retry_after_s) == (Reason.UPSTREAM_ERROR, None)
    assert "answered 500" in evict.detail


@pytest.mark.parametrize(
    ("kind", "attempts"),
    [
        (FailureKind.SERVER_ERROR, 3),
        (FailureKind.CONNECT, 3),
        (FailureKind.RESET, 2),
        (FailureKind.GARBAGE, 2),
    ],
)
def test_attempts_are_bounded(kind: FailureKind, attempts: int) -> None:
    """Three attempts at most, and two for what looks like a request that kills its engine."""
    governor = govern(replicas=6, concurrency=9)
    replicas = {only(arrive(governor, 0.0, 1), Dispatch).replica}
    for attempt in range(1, attempts + 1):
        commands = tell(governor, 0.0, failed(1, kind, attempt))
        replicas |= {each.replica for each in of(commands, Dispatch)}
    assert refusals(commands) == [(1, "UPSTREAM_ERROR")]
    assert len(replicas) == attempts


def test_a_thousand_that_fail_together() -> None:
    """A fifth of the traffic and the floor is retried, those that wait for their retry included."""
    pool = {
        "queue": QueueSettings(max_requests=10_000),
        "breaker": BreakerSettings(consecutive_failures=10**6),
    }
    governor = govern(replicas=2, concurrency=1_000, pool=pool)
    for request_id in range(1_000):
        arrive(governor, 0.0, request_id)
    commands: list[Command] = []
    for request_id in range(1_000):
        commands += governor.handle(failed(request_id, FailureKind.SERVER_ERROR, status=500), 0.1)
    governor.check()
    retries = len(of(commands, Dispatch)) + len(governor.pools["m"].retrying)
    assert 195 <= retries <= 203
    assert len(of(commands, Evict)) == 1_000 - retries


def test_a_busy_replica_is_asked_again_after_its_pause() -> None:
    """429 and 503 close the gate as long as it asked; the request waits that out and goes there again."""
    governor = govern(concurrency=4)
    arrive(governor, 0.0, 1)
    assert tell(governor, 1.0, failed(1, FailureKind.BUSY, status=503, retry_after_s=3.0)) == []
    assert arrive(governor, 2.0, 2) == []
    ((at, first), (_, second)) = wake(governor, 5.0)
    assert at == 4.0
    assert sent([first, second]) == [(1, 2, "r0"), (2, 1, "r0")]  # the one that was sent before goes first
    assert governor.members["r0"].breaker.state.value == "closed"


def test_a_replica_that_refuses_at_once_is_no_black_hole() -> None:
    """Of two replicas the one that answers 429 in a millisecond looks idle, and gets almost nothing."""
    pool = {"retry": RetrySettings(budget_ratio=1, floor=100), "deadlines": LENIENT}
    governor = govern(replicas=2, concurrency=64, pool=pool)
    went = {"r0": 0, "r1": 0}
    now = 0.0
    for request_id in range(500):
        now += 0.01
        wake(governor, now)
        commands = arrive(governor, now, request_id)
        while dispatches := of(commands, Dispatch):
            commands = []
            for dispatch in dispatches:
                went[dispatch.replica] += 1
                busy = Failed(dispatch.request_id, dispatch.attempt, FailureKind.BUSY, status=429)
                done = Finished(dispatch.request_id, dispatch.attempt, usage=used(10, 1))
                commands += tell(governor, now, busy if dispatch.replica == "r0" else done)
    assert went["r0"] <= 10
    assert governor.live == 0


def test_a_retry_that_died_leaves_no_first_token() -> None:
    """The record of a request whose second attempt failed does not boast of the first one's token."""
    governor = govern(replicas=2)
    arrive(governor, 0.0, 1)
    tell(governor, 1.0, FirstToken(1, 1), failed(1, FailureKind.RESET))
    tell(governor, 2.0, failed(1, FailureKind.RESET, 2))
    (record,) = governor.take_ended()
    assert (record.first_token_at, record.dispatched_at, record.attempts) == (None, 1.0, 2)


# -- health ---------------------------------------------------------------------------------------


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


# -- replicas come and go -------------------------------------------------------------------------


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


# -- the queue, seen from outside -----------------------------------------------------------------


def test_a_full_queue_refuses_at_no_cost() -> None:
    """Refused for want of a place, a request has spent neither tokens nor its turn among requests."""
    tenants = {"a": TenantSettings(limits=LimitSettings(requests_per_minute=3, tokens_per_minute=1_000))}
    governor = govern(pool={"queue": QueueSettings(max_requests=1)}, tenants=tenants)
    arrive(governor, 0.0, 1)
    arrive(governor, 0.0, 2)
    for request_id in range(3, 9):
        reject = only(arrive(governor, 0.0, request_id), Reject)
        assert reject.reason is Reason.QUEUE_FULL
        assert reject.quota is not None
        assert (reject.quota.remaining_requests, reject.quota.remaining_tokens) == (1, 960)


def test_refused_ones_are_told_different_times() -> None:
    """Each refusal books its place in the drain: those refused together do not come back together."""
    governor = govern(pool={"queue": QueueSettings(max_requests=4), "deadlines": LENIENT}, classes=PATIENT)
    for request_id in range(5):
        arrive(governor, 0.0, request_id)
    for done in range(20):  # 20 tokens a second are drained
        tell(governor, done + 1.0, Finished(done, 1, usage=used(10, 10)))
        arrive(governor, done + 1.0, done + 5)

    waits = [only(arrive(governor, 20.0, 100 + n), Reject).retry_after_s for n in range(5)]
    # Behind the four that wait, each behind the one refused before it; jitter adds a tenth at most.
    for wait_s, place in zip(waits, range(5, 10), strict=True):
        assert place * 0.9 <= (wait_s or 0.0) <= place * 1.1 * 1.1


def test_a_wait_that_cannot_end_in_time_is_refused_at_once() -> None:
    """Once the drain rate is known, who would wait longer than it may is told so on arrival."""
    governor = govern(pool={"deadlines": LENIENT}, classes={"default": ClassSettings(max_wait_s=10.0)})
    request_id = 0
    for request_id in range(5):
        arrive(governor, 0.0, request_id)
    for done in range(4):  # 20 tokens every 2 s
        tell(governor, 2.0 * (done + 1), Finished(done, 1, usage=used(10, 10)))
    taken = 0
    while not (refused := of(arrive(governor, 8.0, 100 + taken), Reject)):
        taken += 1
    assert refused[0].reason is Reason.WAIT_TOO_LONG
    assert taken == approx(6, abs=1)  # 10 s at 10 tokens a second


def test_a_low_class_is_served_under_full_load_of_a_high_one() -> None:
    """Where a high class offers more than all capacity for a minute, a low one gets its share, not hangs."""
    classes = {
        "high": ClassSettings(max_wait_s=10.0, guaranteed_share=0.0),
        "low": ClassSettings(max_wait_s=20.0, guaranteed_share=0.1),
    }
    governor = govern(concurrency=2, classes=classes, pool={"deadlines": LENIENT})
    served, low_waits = {"high": 0, "low": 0}, []
    running: list[tuple[float, int, int]] = []

    def obey(commands: list[Command], now: float) -> None:
        for each in of(commands, Dispatch):
            running.append((now + 0.2, each.request_id, each.attempt))
            priority = "low" if each.request_id % 2 else "high"
            served[priority] += 1
            if priority == "low":
                low_waits.append(each.queued_s)

    for tick in range(1_200):  # 10 requests a second are served; 20 high and 2 low ones come
        now = tick * 0.05
        obey([command for _, command in wake(governor, now)], now)
        obey(arrive(governor, now, 2 * tick, priority="high"), now)
        if tick % 10 == 0:
            obey(arrive(governor, now, 2 * tick + 1, priority="low", tenant="b"), now)
        while running and running[0][0] <= now + 1e-9:
            _, request_id, attempt = running.pop(0)
            obey(tell(governor, now, Finished(request_id, attempt, usage=used(10, 10))), now)

    assert served["low"] / (served["low"] + served["high"]) == approx(0.1, abs=0.02)
    assert max(low_waits) <= 20.0


def test_pools_do_not_wait_for_each_other() -> None:
    """A head of queue that nobody can take holds up its own pool only, and ends at its time."""
    pools = {name: PoolSettings(prediction=EXACT) for name in ("m", "other")}
    governor = govern(pools=pools)
    governor.handle(ReplicaAdded(pool="other", replica="o0", max_concurrency=1), 0.0)
    arrive(governor, 0.0, 1, model="other")
    assert arrive(governor, 0.0, 2, model="other") == []
    assert sent(arrive(governor, 0.0, 3)) == [(3, 1, "r0")]
    assert refusals([command for _, command in wake(governor, 30.0)]) == [(2, "QUEUE_TIMEOUT")]


def test_the_prefill_gate_opens_with_the_first_token() -> None:
    """Prompts above the gate wait until one of those before them has its first token."""
    governor = govern(concurrency=9, pool={"gate": GateSettings(max_prefill_tokens=15)})
    arrive(governor, 0.0, 1)
    assert arrive(governor, 0.0, 2) == []
    assert sent(tell(governor, 1.0, FirstToken(1, 1))) == [(2, 1, "r0")]


def test_streams_that_outgrow_their_reservation_close_the_kv_gate() -> None:
    """What a stream has really produced counts against KV room at once."""
    governor = govern(concurrency=9)
    tell(governor, 0.0, ReplicaSeen(replica="r0", kv_capacity_tokens=100))
    arrive(governor, 0.0, 1)
    tell(governor, 1.0, FirstToken(1, 1), Progressed(1, 1, 71))
    assert arrive(governor, 1.0, 2) == []
    assert sent(tell(governor, 2.0, Finished(1, 1, usage=used(10, 80)))) == [(2, 1, "r0")]


# -- shutdown -------------------------------------------------------------------------------------


def test_shutdown() -> None:
    """Arrivals are refused, waiters evicted, no retry made; after the grace streams are cut, others ended."""
    governor = govern(replicas=2, concurrency=2)
    for request_id in range(1, 6):
        arrive(governor, 0.0, request_id, streams=request_id != 2)
    tell(governor, 1.0, FirstToken(1, 1))

    assert refusals(tell(governor, 10.0, ShutdownAsked(grace_s=5.0))) == [(5, "SHUTTING_DOWN")]
    reject = only(arrive(governor, 11.0, 6), Reject)
    assert (reject.reason, reject.retry_after_s) == (Reason.SHUTTING_DOWN, 1.0)
    assert refusals(tell(governor, 12.0, failed(4, FailureKind.CONNECT))) == [(4, "UPSTREAM_ERROR")]

    happened = [
        (at, type(command), getattr(command, "request_id", 0)) for at, command in wake(governor, 60.0)
    ]
    assert happened == [
        (15.0, Truncate, 1),
        (15.0, Abort, 2),
        (15.0, Evict, 2),
        (15.0, Abort, 3),
        (15.0, Evict, 3),
    ]
    tell(governor, 15.1, Finished(1, 1, output_tokens=4))
    assert governor.live == 0


def test_shutdown_evicts_what_waits_for_a_retry() -> None:
    """A request between two attempts is refused like one that never ran."""
    governor = govern(concurrency=4)
    arrive(governor, 0.0, 1)
    assert tell(governor, 1.0, failed(1, FailureKind.BUSY, retry_after_s=20.0)) == []
    assert refusals(tell(governor, 2.0, ShutdownAsked(grace_s=1.0))) == [(1, "SHUTTING_DOWN")]
    assert governor.live == 0
