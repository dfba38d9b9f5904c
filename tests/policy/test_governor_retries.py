"""The governor's retries: where a second attempt goes, when there is none, and how many there are."""

from __future__ import annotations

import pytest

from tests.policy.build import (
    LENIENT,
    arrive,
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
    Command,
    Dispatch,
    DrainAsked,
    Evict,
    Failed,
    FailureKind,
    Finished,
    FirstToken,
    Probe,
    ShutdownAsked,
)
from tidegate.core.reasons import Reason
from tidegate.policy.settings import (
    BreakerSettings,
    ClassSettings,
    QueueSettings,
    RetrySettings,
    RoutingPolicy,
    RoutingSettings,
)


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


@pytest.mark.parametrize(
    ("max_wait_s", "outcome"), [(5.0, (0.0, "UPSTREAM_ERROR")), (25.0, (25.0, "QUEUE_TIMEOUT"))]
)
def test_a_retry_waits_no_longer_than_its_class_may(max_wait_s: float, outcome: tuple[float, str]) -> None:
    """With all others out of the set it is refused in time, and does not hope until its TTFT deadline."""
    pool = {"breaker": BreakerSettings(consecutive_failures=1, open_s=20.0)}
    governor = govern(replicas=2, pool=pool, classes={"default": ClassSettings(max_wait_s=max_wait_s)})
    arrive(governor, 0.0, 1)
    other = only(arrive(governor, 0.0, 2), Dispatch).replica
    tell(governor, 0.0, failed(2, FailureKind.SERVER_ERROR, committed=True))  # now it is out for 20 s
    told = [(0.0, command) for command in tell(governor, 0.0, failed(1, FailureKind.SERVER_ERROR))]
    tell(governor, 0.1, DrainAsked(replica=other))  # and then it does not come back
    told += wake(governor, 100.0)
    assert [(at, command.reason.name) for at, command in told if isinstance(command, Evict)] == [outcome]


@pytest.mark.parametrize(
    ("retry", "failures", "retry_after_s", "final"),
    [
        (RetrySettings(max_attempts=1), 1, 0.05, False),  # retrying is left to the client
        (RetrySettings(max_attempts=2), 2, 0.05, True),  # done here
        (RetrySettings(floor=0, budget_ratio=0), 1, 0.05, True),  # more of them is what must not be
        (RetrySettings(), 1, 60.0, False),  # nobody has retried: the client may, after its minute
    ],
)
def test_either_the_gateway_retries_or_the_client(
    retry: RetrySettings, failures: int, retry_after_s: float, final: bool
) -> None:
    """What was retried here, or may not be for the budget, is not to be retried by its client."""
    governor = govern(pool={"retry": retry})
    arrive(governor, 0.0, 1)
    for attempt in range(1, failures + 1):
        told = tell(
            governor, float(attempt), failed(1, FailureKind.BUSY, attempt, retry_after_s=retry_after_s)
        )
        if attempt < failures:
            wake(governor, attempt + 0.5)
    evict = only(told, Evict)
    assert (evict.reason, evict.final) == (Reason.UPSTREAM_BUSY, final)
    assert evict.retry_after_s is not None


def test_who_is_refused_by_a_shutdown_may_come_again() -> None:
    """To another gateway, however often this one has tried."""
    governor = govern()
    arrive(governor, 0.0, 1)
    tell(governor, 0.0, failed(1, FailureKind.BUSY, retry_after_s=0.1))
    wake(governor, 0.5)
    tell(governor, 0.5, failed(1, FailureKind.BUSY, 2, retry_after_s=5.0))
    evict = only(tell(governor, 1.0, ShutdownAsked(grace_s=1.0)), Evict)
    assert (evict.reason, evict.final) == (Reason.SHUTTING_DOWN, False)
