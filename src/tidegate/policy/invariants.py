"""Is every count the sum of what it counts? Asserted by tests after each step of a governor."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.policy.calls import ENDING, RETRYING, RUNNING, STREAMING, WAITING, Call
from tidegate.policy.limits import Scope
from tidegate.policy.pool import Pool

HOLDING = (RUNNING, STREAMING, ENDING)


def check(calls: list[Call], pools: Iterable[Pool], scopes: Iterable[Scope]) -> None:
    """Assert it for the live calls of a governor, its pools and its scopes."""
    for pool in pools:
        _check_pool(pool, [call for call in calls if call.pool is pool])
    for scope in scopes:
        assert scope.in_flight == sum(scope in call.charge.scopes for call in calls)
    for call in calls:
        assert (call.hold is not None) == (call.stage in HOLDING)
        assert (call.waiting is not None) == (call.stage is WAITING)
        assert not call.charge.settled


def _check_pool(pool: Pool, calls: list[Call]) -> None:
    pool.queue.check()
    for lane in pool.queue.lanes:
        for flow in lane.flows.values():
            sent = [call for call in calls if call.flow is flow and call.dispatched_at is not None]
            assert flow.running == len(sent)
    assert all(call.flow.lane.flows[call.flow.tenant] is call.flow for call in calls)
    assert pool.queue.requests == sum(call.stage is WAITING for call in calls)
    retrying = [call for call in calls if call.stage is RETRYING]
    assert set(map(id, pool.retrying)) == set(map(id, retrying))
    for member in pool.members.values():
        replica = member.replica
        held = [call.hold for call in calls if call.hold and call.hold.replica is replica]
        assert replica.in_flight == len(held)
        assert abs(replica.kv_held - sum(hold.kv_tokens for hold in held)) < 1e-3
        assert abs(replica.prefill_held - sum(hold.prefill_tokens for hold in held)) < 1e-3
        assert member.breaker.trials <= member.breaker.settings.half_open_trials
