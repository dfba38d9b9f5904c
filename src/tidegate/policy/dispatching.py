"""Dispatch: which waiting call goes now, and to which replica?

Retries first, then the queue in its order, whose head is never overtaken (docs/decisions/0002). A call that
goes takes a hold on its replica before anything else is decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tidegate.core.messages import Command, Dispatch, mark_above
from tidegate.policy.calls import RUNNING, Call
from tidegate.policy.limits import quota
from tidegate.policy.pool import Member, Pool
from tidegate.policy.timers import Timers


@dataclass(slots=True, eq=False)
class Dispatcher:
    """Sends what may be sent."""

    rng: Random
    timers: Timers[object]

    def send_at_once(self, call: Call, now: float, out: list[Command]) -> bool:
        """What most requests meet: nobody waits, and some replica has room."""
        pool = call.pool
        if pool.queue.requests or pool.retrying:
            return False
        member = self._choose(call, now)
        if member is None:
            return False
        pool.queue.pass_by(call.flow, call.prompt_tokens + call.output_tokens)
        self._dispatch(call, member, now, out)
        return True

    def pump(self, pool: Pool, now: float, out: list[Command]) -> None:
        """Send whatever may go. Called whenever something has changed for a pool."""
        queue = pool.queue
        if not (queue.requests or pool.retrying or pool.ladder.steps):
            pool.drain.on_waiting(now, False)
            return
        if pool.retrying:
            self._pump_retries(pool, now, out)
        while (entry := queue.head()) is not None:
            call = entry.item
            assert isinstance(call, Call)
            member = self._choose(call, now)
            if member is None:
                break
            queue.take(entry)
            call.waiting = None
            pool.drain.on_dispatched(now, entry.cost)
            self._dispatch(call, member, now, out)
        pool.drain.on_waiting(now, queue.requests > 0)
        pool.press(now)
        if queue.requests or pool.retrying or pool.ladder.steps:
            recheck_at = pool.recheck_at(now)
            if recheck_at < pool.wake_at:
                pool.wake_at = recheck_at
                self.timers.set(recheck_at, pool)

    def arm(self, call: Call) -> None:
        """Have it looked at when its next deadline passes. An earlier timer of its own re-arms later."""
        due_at = call.due_at
        if due_at < call.armed_at:
            call.armed_at = due_at
            self.timers.set(due_at, call)

    def _pump_retries(self, pool: Pool, now: float, out: list[Command]) -> None:
        for call in list(pool.retrying):
            assert isinstance(call, Call)
            member = self._choose(call, now)
            if member is not None:
                pool.retrying.remove(call)
                self._dispatch(call, member, now, out)

    def _choose(self, call: Call, now: float) -> Member | None:
        return call.pool.choose(now, self.rng, call.kv_tokens, call.prompt_tokens, call.request, call.tried)

    def _dispatch(self, call: Call, member: Member, now: float, out: list[Command]) -> None:
        call.attempt += 1
        call.stage = RUNNING
        call.member = member
        call.hold = member.replica.hold(call.kv_tokens, call.prompt_tokens)
        call.trial = member.breaker.on_dispatch(now)
        call.dispatched_at = now
        if call.pool.prefixes is not None:
            call.pool.on_sent(member, call.request)
        if call.attempt == 1:
            call.pool.retries.on_request(now)
        self.arm(call)
        out.append(
            Dispatch(
                request_id=call.request_id,
                attempt=call.attempt,
                replica=member.replica.name,
                pool=call.pool.name,
                max_tokens=call.max_tokens,
                degraded=call.degraded,
                progress_from_tokens=mark_above(call.output_tokens),
                queued_s=now - call.arrived_at,
                quota=quota(now, call.charge.scopes),
            )
        )
