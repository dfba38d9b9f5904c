"""Admission: relief first, then what could never be, then every limit at once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.policy.build import EXACT, approx, ask, govern, only, refusals, sent, used
from tidegate.core.messages import Arrived, Command, Dispatch, Finished, Reject, ReplicaAdded, ReplicaSeen
from tidegate.core.reasons import Reason
from tidegate.policy.governor import Governor
from tidegate.policy.settings import (
    ClampStep,
    ClassSettings,
    FallbackStep,
    LimitSettings,
    Metering,
    PoolSettings,
    QueueSettings,
    ShedStep,
    TenantSettings,
    TokenWeights,
)

LADDER = (
    ClampStep(above=0.25, below=0.1, max_tokens=4),
    FallbackStep(above=0.5, below=0.3, pool="small", classes=("batch",)),
    ShedStep(above=0.75, below=0.5, classes=("batch",), dwell_s=3.0),
)
CLASSES = {
    "chat": ClassSettings(),
    "batch": ClassSettings(),
    "safe": ClassSettings(protected=True),
}


def arrive(governor: Governor, request_id: int, now: float = 0.0, **fields: Any) -> list[Command]:
    return governor.handle(Arrived(ask(request_id, **fields)), now)


def pressed(waiting: int, small_replicas: int = 1) -> Governor:
    """Pool `m` with one busy replica and so many of four places taken; beside it an idle pool `small`."""
    pools = {
        "m": PoolSettings(prediction=EXACT, queue=QueueSettings(max_requests=4), degradation=LADDER),
        "small": PoolSettings(prediction=EXACT),
    }
    governor = govern(pools=pools, classes=CLASSES)
    for number in range(small_replicas):
        joined = ReplicaAdded(pool="small", replica=f"s{number}", max_concurrency=1)
        governor.handle(joined, 0.0)
    for request_id in range(1_000, 1_001 + waiting):
        arrive(governor, request_id, tenant=f"t{request_id}", priority="safe")
    assert governor.pools["m"].queue.requests == waiting
    return governor


# -- relief ---------------------------------------------------------------------------------------


def test_nothing_is_degraded_without_pressure() -> None:
    """An idle pool leaves the caller's own bound alone."""
    governor = pressed(0)
    governor.handle(Finished(1_000, 1), 0.0)
    dispatch = only(arrive(governor, 1, priority="batch", max_tokens=50), Dispatch)
    assert (dispatch.max_tokens, dispatch.degraded, dispatch.pool) == (None, (), "m")


@pytest.mark.parametrize(
    ("asked", "generates", "given", "degraded"),
    [
        (None, True, 4, ("clamp=4",)),
        (50, True, 4, ("clamp=4",)),
        (4, True, None, ()),
        (3, True, None, ()),
        (0, True, None, ()),  # an echo asks for no output at all
        (None, False, None, ()),
    ],
)
def test_clamp(asked: int | None, generates: bool, given: int | None, degraded: tuple[str, ...]) -> None:
    """Under pressure longer outputs are bounded, shorter ones are left as they were asked for."""
    governor = pressed(1)
    assert arrive(governor, 1, priority="chat", max_tokens=asked, generates=generates) == []
    dispatches = [*governor.handle(Finished(1_000, 1), 0.5), *governor.handle(Finished(1_001, 1), 0.6)]
    dispatch = dispatches[-1]
    assert isinstance(dispatch, Dispatch)
    assert (dispatch.request_id, dispatch.max_tokens, dispatch.degraded) == (1, given, degraded)


def test_fallback() -> None:
    """A class that may fall back is served by the smaller model at once, clamped, at that pool's charge."""
    dispatch = only(arrive(pressed(2), 1, priority="batch"), Dispatch)
    assert (dispatch.pool, dispatch.replica) == ("small", "s0")
    assert dispatch.degraded == ("clamp=4", "fallback=small")
    assert dispatch.max_tokens == 4


def test_no_fallback_to_where_it_would_wait_too() -> None:
    """A pool without room, without replicas, or too small for the request, is no relief."""
    busy = pressed(2)
    arrive(busy, 1, priority="batch")
    assert arrive(busy, 2, priority="batch") == []
    assert arrive(pressed(2, small_replicas=0), 1, priority="batch") == []
    tiny = pressed(2)
    tiny.handle(ReplicaSeen(replica="s0", kv_capacity_tokens=12), 0.0)
    assert arrive(tiny, 1, priority="batch") == []


def test_shed_by_class() -> None:
    """Near the end of the queue one class is refused with a time to come back; others are let in."""
    governor = pressed(3)
    reject = only(arrive(governor, 1, priority="batch"), Reject)
    assert (reject.reason, reject.retry_after_s) == (Reason.SHED, approx(1.0, abs=0.11))
    assert arrive(governor, 2, priority="chat") == []
    assert governor.pools["m"].ladder.names() == ("clamp", "fallback", "shed")


def test_the_protected_are_never_touched() -> None:
    """The pressure that sheds others neither clamps nor moves a protected request."""
    governor = pressed(3)
    assert arrive(governor, 1, priority="safe", tenant="zz") == []
    for done in (1_000, 1_001, 1_002, 1_003):
        commands = governor.handle(Finished(done, 1), 1.0)
    assert sent(commands) == [(1, 1, "r0")]
    assert (only(commands, Dispatch).degraded, only(commands, Dispatch).max_tokens) == ((), None)


def test_steps_end_with_the_pressure() -> None:
    """Once calm for its dwell the ladder lets go, with no request needed to notice it."""
    governor = pressed(3)
    arrive(governor, 1, priority="batch")
    for done in (1_000, 1_001, 1_002, 1_003):
        governor.handle(Finished(done, 1), 1.0)
    ladder = governor.pools["m"].ladder
    assert ladder.names() == ("clamp", "fallback", "shed")
    while governor.next_wakeup() <= 6.0:
        governor.on_wakeup(governor.next_wakeup())
    assert ladder.names() == ()


# -- what cannot be -------------------------------------------------------------------------------


def test_a_prompt_that_fits_no_context_is_refused_for_good() -> None:
    """A prompt whose least possible size exceeds the context gets a 400; one that only may exceed it runs."""
    governor = govern(concurrency=None, pool={"context_tokens": 1_000})
    assert sent(arrive(governor, 1, prompt_bytes=16_000))  # 1,000 tokens at the very least: exactly
    reject = only(arrive(governor, 2, prompt_bytes=16_016), Reject)
    assert (reject.reason, reject.retry_after_s) == (Reason.NEVER_FITS, None)
    assert "at least 1001 tokens" in reject.detail
    assert "shorter" in reject.detail


def test_what_the_engines_tell_bounds_prompts_too() -> None:
    """Context and KV capacity may come from a scrape; the largest replica counts."""
    governor = govern(replicas=2, concurrency=None)
    for replica, kv in [("r0", 100), ("r1", 200)]:
        governor.handle(ReplicaSeen(replica=replica, kv_capacity_tokens=kv, context_tokens=150), 0.0)
    assert sent(arrive(governor, 1, prompt_bytes=0, prompt_tokens_known=150))
    assert refusals(arrive(governor, 2, prompt_bytes=0, prompt_tokens_known=151)) == [(2, "NEVER_FITS")]


def test_an_estimate_never_makes_a_request_impossible() -> None:
    """A prompt that is thought larger than any replica still goes, alone on one."""
    governor = govern(replicas=2, concurrency=9)
    for replica in ("r0", "r1"):
        governor.handle(ReplicaSeen(replica=replica, kv_capacity_tokens=100), 0.0)
    assert sent(arrive(governor, 1, prompt_bytes=1_000))
    assert sent(arrive(governor, 2))  # the other replica
    assert arrive(governor, 3, prompt_bytes=1_000) == []


# -- limits ---------------------------------------------------------------------------------------


def test_which_limits_apply() -> None:
    """Fleet, tenant, key, pool and tenant in pool each refuse whom they concern, and nobody else."""
    one = LimitSettings(max_in_flight=1)
    limited: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any] | None]] = [
        ({"limits": one}, {"tenant": "b"}, None),
        ({"tenants": {"a": TenantSettings(limits=one)}}, {"key": "k2"}, {"tenant": "b"}),
        ({"tenants": {"a": TenantSettings(keys={"k": one})}}, {}, {"key": "k2"}),
        ({"tenants": {"a": TenantSettings(pools={"m": one})}}, {"key": "k2"}, {"tenant": "b"}),
        ({"pools": {"m": PoolSettings(prediction=EXACT, limits=one)}}, {"tenant": "b"}, None),
    ]
    for settings, blocked, free in limited:
        governor = govern(concurrency=9, **settings)
        assert sent(arrive(governor, 1))
        assert refusals(arrive(governor, 2, **blocked)) == [(2, "CONCURRENCY_QUOTA")], settings
        if free is not None:
            assert sent(arrive(governor, 3, **free)), settings


def test_names_that_read_alike_are_not_the_same() -> None:
    """Tenant `a/b` with key `c` and tenant `a` with key `b/c` each have their own limit."""
    one = LimitSettings(max_in_flight=1)
    tenants = {"a": TenantSettings(keys={"b/c": one}), "a/b": TenantSettings(keys={"c": one})}
    governor = govern(concurrency=9, tenants=tenants)
    assert sent(arrive(governor, 1, tenant="a", key="b/c"))
    assert sent(arrive(governor, 2, tenant="a/b", key="c"))
    assert len(governor.admission.scopes()) == 2


def test_refusals_cost_nothing_anywhere() -> None:
    """Unknown models, impossible prompts and shed requests take neither slots nor credits."""
    limits = LimitSettings(requests_per_minute=2, tokens_per_minute=1_000, max_in_flight=1)
    governor = govern(limits=limits, pool={"context_tokens": 100})
    for request_id in range(5):
        assert refusals(arrive(governor, request_id, model="x"))
        assert refusals(arrive(governor, 100 + request_id, prompt_bytes=10_000))
    dispatch = only(arrive(governor, 999), Dispatch)
    assert dispatch.quota is not None
    assert (dispatch.quota.remaining_requests, dispatch.quota.remaining_tokens) == (1, 980)


def test_calls_that_use_no_tokens_cost_none() -> None:
    """What an engine answers with a usage of nothing moves the request counter only."""
    governor = govern(concurrency=99, limits=LimitSettings(requests_per_minute=100, tokens_per_minute=75))
    for request_id in range(75):
        arrive(governor, request_id, prompt_bytes=0, generates=False)
        governor.handle(Finished(request_id, 1, usage=used(0, 0)), 0.0)
    dispatch = only(arrive(governor, 999, prompt_bytes=0, generates=False), Dispatch)
    assert dispatch.quota is not None
    assert (dispatch.quota.remaining_requests, dispatch.quota.remaining_tokens) == (24, 75)


def test_a_hard_scope_uses_the_bound_of_the_context() -> None:
    """Without max_tokens a hard scope reserves what the context leaves; without a context it cannot."""
    hard = LimitSettings(tokens_per_minute=3_000, metering=Metering.HARD)
    governor = govern(concurrency=9, limits=hard, pool={"context_tokens": 2_000})
    quota = only(arrive(governor, 1, prompt_bytes=160), Dispatch).quota
    assert quota is not None
    assert quota.remaining_tokens == 3_000 - (160 + 256) - (2_000 - 10)
    assert refusals(arrive(govern(limits=hard), 1)) == [(1, "NEVER_FITS")]
    assert sent(arrive(govern(limits=hard), 1, max_tokens=100))


def test_weights_apply_to_what_is_reserved_and_to_what_is_settled() -> None:
    """Output at four credits a token is reserved, extended and charged at four."""
    governor = govern(
        limits=LimitSettings(tokens_per_minute=1_000), weights=TokenWeights(input=1, cached_input=0, output=4)
    )
    quota = only(arrive(governor, 1), Dispatch).quota
    assert quota is not None
    assert quota.remaining_tokens == 1_000 - (10 + 40)
    governor.handle(Finished(1, 1, usage=used(10, 20, 5)), 0.0)
    (record,) = governor.take_ended()
    assert record.charged_credits == 5 + 80


# -- who has been here ----------------------------------------------------------------------------


def visit(governor: Governor, request_id: int, tenant: str) -> None:
    """One request that is served at once and ends."""
    only(arrive(governor, request_id, tenant=tenant), Dispatch)
    governor.handle(Finished(request_id=request_id, attempt=1, usage=used(10, 4)), 0.0)


def test_ten_thousand_tenants_seen_once_leave_nothing_behind() -> None:
    """Each is served, its flow is then forgotten, and so is what was worked out for its requests."""
    governor = govern()
    for number in range(10_000):
        visit(governor, number, f"t{number}")

    assert sum(len(lane.flows) for lane in governor.pools["m"].queue.lanes) <= 200
    assert len(governor.admission._standings) <= 2_000
    governor.check()


def test_a_tenant_that_was_forgotten_comes_back() -> None:
    """What was kept of its key and class does not bring back a flow that the queue no longer knows."""
    governor = govern()
    flows = governor.pools["m"].queue.lanes[0].flows
    for number in range(300):
        visit(governor, number, f"t{number}")
    assert "t0" not in flows

    arrive(governor, 300, tenant="t0")
    governor.check()
    assert flows["t0"].running == 1
