"""The governor: timelines of single requests from arrival to their one end, and shutdown."""

from __future__ import annotations

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
    refusals,
    sent,
    tell,
    used,
    wake,
)
from tidegate.core.messages import (
    Abort,
    Arrived,
    Cancelled,
    Dispatch,
    Event,
    Evict,
    FailureKind,
    Finished,
    FirstToken,
    Progressed,
    Reject,
    ShutdownAsked,
    Truncate,
)
from tidegate.core.reasons import Reason
from tidegate.policy.settings import ClassSettings, Deadlines, LimitSettings, RetrySettings

# -- one request -------------------------------------------------------------------------------------


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
    assert (record.charged_credits, record.replica, record.attempts) == (33, "r0", 1)
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


# -- cancels -----------------------------------------------------------------------------------------


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


# -- deadlines ---------------------------------------------------------------------------------------


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


# -- shutdown ----------------------------------------------------------------------------------------


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
