"""The governor's queue, seen from outside: who is refused, who waits, and who is served meanwhile."""

from __future__ import annotations

from tests.policy.build import (
    EXACT,
    LENIENT,
    PATIENT,
    approx,
    arrive,
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
    Finished,
    FirstToken,
    Progressed,
    Reject,
    ReplicaAdded,
    ReplicaSeen,
)
from tidegate.core.reasons import Reason
from tidegate.policy.settings import (
    ClassSettings,
    GateSettings,
    LimitSettings,
    PoolSettings,
    QueueSettings,
    TenantSettings,
)


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


def test_a_queue_without_places_refuses_all_that_cannot_be_sent_at_once() -> None:
    """A bound of 0 requests lets nobody wait, and holds up nobody for whom there is room."""
    governor = govern(pool={"queue": QueueSettings(max_requests=0)})

    assert of(arrive(governor, 0.0, 1), Dispatch)
    assert only(arrive(governor, 1.0, 2), Reject).reason is Reason.QUEUE_FULL
    tell(governor, 2.0, Finished(1, 1, usage=used(10, 10)))
    assert of(arrive(governor, 3.0, 3), Dispatch)


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


def test_a_correction_that_puts_another_tenant_first_sends_it() -> None:
    """When a running stream of its tenant outgrows what was thought, the head that did not fit is no head."""
    governor = govern(concurrency=9)
    tell(governor, 0.0, ReplicaSeen(replica="r0", kv_capacity_tokens=200))
    arrive(governor, 0.0, 1, tenant="b")
    arrive(governor, 0.0, 2, tenant="c", prompt_bytes=20)
    assert arrive(governor, 0.0, 3, tenant="b", prompt_bytes=160) == []  # too large beside the two
    assert arrive(governor, 0.0, 4, tenant="c") == []  # small, but b has had less
    assert sent(tell(governor, 1.0, FirstToken(1, 1), Progressed(1, 1, 31))) == [(4, 1, "r0")]
