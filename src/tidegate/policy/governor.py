"""The governor: given what happened, what must be done?

    commands = governor.handle(event, now)      # due deadlines pass first
    wake_at  = governor.next_wakeup()           # inf for never
    commands = governor.on_wakeup(now)

It composes the mechanisms of this package. A request passes through them in this order: `admission` (relief,
limits: a charge) -> queue -> `dispatching` (gate, routing: a hold) -> attempt(s) -> settlement. Every ending
runs through `_end`, which settles the charge and writes the record, once. `fleet` keeps the replicas.

Given the same events at the same instants it gives the same commands: `rng` is its only dice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any, Final

from tidegate.core.errors import CallerError
from tidegate.core.messages import (
    Abort,
    Arrived,
    Cancelled,
    Command,
    DrainAsked,
    Event,
    Evict,
    Failed,
    FailureKind,
    Finished,
    FirstToken,
    Probed,
    Progressed,
    Reject,
    ReplicaAdded,
    ReplicaRemoved,
    ReplicaSeen,
    ShutdownAsked,
    Truncate,
)
from tidegate.core.reasons import ANSWERS, Reason
from tidegate.core.records import RequestRecord
from tidegate.core.request import Request, Usage
from tidegate.policy.admission import Admission, Refusal
from tidegate.policy.calls import (
    ENDED,
    ENDING,
    RETRYING,
    RUNNING,
    STREAMING,
    WAITING,
    Call,
    record_of_refusal,
    said_of,
)
from tidegate.policy.dispatching import Dispatcher
from tidegate.policy.fleet import NEUTRAL, Fleet
from tidegate.policy.invariants import check
from tidegate.policy.limits import quota
from tidegate.policy.pool import Member, Pool
from tidegate.policy.settings import GovernorSettings
from tidegate.policy.timers import Timers

RETRY_AFTER_MIN_S, RETRY_AFTER_MAX_S = 1.0, 120.0
"""The official SDKs do not retry at all after a Retry-After above 120 s."""

UNSPENT: Final = frozenset({FailureKind.CONNECT, FailureKind.BUSY, FailureKind.DENIED})
"""The engine has computed nothing."""
KILLING: Final = frozenset({FailureKind.RESET, FailureKind.GARBAGE})
"""What a request that crashes its engine looks like: tried on one more replica, not on all the others."""

REASON_OF_FAILURE = {
    FailureKind.BUSY: Reason.UPSTREAM_BUSY,
    FailureKind.STALLED: Reason.UPSTREAM_TIMEOUT,
}

NO_USAGE: Final = Usage(prompt_tokens=0, output_tokens=0)


class Stop:
    """The timer of a shutdown's end."""


STOP = Stop()


@dataclass(slots=True, eq=False)
class Governor:
    """The composition of all policies, for one fleet."""

    settings: GovernorSettings
    rng: Random
    pools: dict[str, Pool] = field(init=False)
    members: dict[str, Member] = field(init=False)
    """Every replica of every pool, by its name, which is unique in the fleet."""
    admission: Admission = field(init=False)
    ended: list[RequestRecord] = field(default_factory=list)

    _calls: dict[int, Call] = field(default_factory=dict)
    _timers: Timers[object] = field(init=False)
    _fleet: Fleet = field(init=False)
    _dispatcher: Dispatcher = field(init=False)
    _stopping: bool = False
    _handlers: dict[type, Callable[[Any, float, list[Command]], None]] = field(init=False)

    def __post_init__(self) -> None:
        classes = self.settings.classes
        self.pools = {name: Pool.of(name, each, classes) for name, each in self.settings.pools.items()}
        self.admission = Admission(self.settings, self.pools, self.rng)
        self._timers = Timers(_is_dead)
        self._fleet = Fleet(self.pools, self._timers)
        self._dispatcher = Dispatcher(self.rng, self._timers)
        self.members = self._fleet.members
        self._handlers = {
            Arrived: self._on_arrived,
            FirstToken: self._on_first_token,
            Progressed: self._on_progressed,
            Finished: self._on_finished,
            Failed: self._on_failed,
            Cancelled: self._on_cancelled,
            Probed: self._on_probed,
            ReplicaSeen: self._on_seen,
            ReplicaAdded: self._on_added,
            ReplicaRemoved: self._on_removed,
            DrainAsked: self._on_drain_asked,
            ShutdownAsked: self._on_shutdown_asked,
        }

    # -- the contract -----------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Command]:
        """Tell it what happened; it says what to do. Deadlines that are due at `now` pass first."""
        out: list[Command] = self.on_wakeup(now) if self._timers.any_due(now) else []
        self._handlers[type(event)](event, now, out)
        return out

    def next_wakeup(self) -> float:
        """The instant at which `on_wakeup` must be called; inf for never."""
        return self._timers.next_at()

    def on_wakeup(self, now: float) -> list[Command]:
        """Let the deadlines pass that are due; only then send anything, so that nothing expired is sent."""
        out: list[Command] = []
        stirred: dict[str, Pool] = {}
        while (item := self._timers.pop_due(now)) is not None:
            if isinstance(item, Call):
                self._on_due(item, now, out)
                stirred[item.pool.name] = item.pool
            elif isinstance(item, Pool):
                if item.wake_at <= now:
                    item.wake_at = inf
                    stirred[item.name] = item
            elif isinstance(item, Member):
                if item.probe_at <= now:
                    self._fleet.probe(item, out)
            else:
                self._cut_all(now, out)
        for pool in stirred.values():
            self._pump(pool, now, out)
        return out

    def take_ended(self) -> list[RequestRecord]:
        """Records of what ended since the last time, oldest first."""
        ended, self.ended = self.ended, []
        return ended

    @property
    def live(self) -> int:
        """Requests that have arrived and not ended."""
        return len(self._calls)

    # -- arrival and dispatch ---------------------------------------------------------------------

    def _on_arrived(self, event: Arrived, now: float, out: list[Command]) -> None:
        request = event.request
        request_id: int = request.request_id
        if request_id in self._calls:
            raise CallerError(f"request {request_id} arrived twice")
        if self._stopping:
            refusal = Refusal(Reason.SHUTTING_DOWN, "the gateway is shutting down", RETRY_AFTER_MIN_S)
            self._reject(request, refusal, now, out)
            return
        call = self.admission.admit(request, now)
        if isinstance(call, Refusal):
            self._reject(request, call, now, out)
        elif self._dispatcher.send_at_once(call, now, out):
            self._calls[request_id] = call
        elif (full := self._make_room(call, now, out)) is not None:
            self._reject(request, full, now, out)
        else:
            self._calls[request_id] = call
            self._enqueue(call, now, out)

    def _enqueue(self, call: Call, now: float, out: list[Command]) -> None:
        cost = call.prompt_tokens + call.output_tokens
        call.waiting = call.pool.queue.push(call, call.flow, cost, call.request.body_bytes, call.due_at)
        self._pump(call.pool, now, out)
        if call.stage is WAITING:
            self._dispatcher.arm(call)

    def _pump(self, pool: Pool | None, now: float, out: list[Command]) -> None:
        """Something may have changed for a pool."""
        if pool is not None:
            self._dispatcher.pump(pool, now, out)

    def _make_room(self, call: Call, now: float, out: list[Command]) -> Refusal | None:
        """A place in the queue, displacing others where that is just; else why not, its charge voided."""
        pool, queue = call.pool, call.pool.queue
        cost = call.prompt_tokens + call.output_tokens
        wait_s = pool.drain.wait_s(queue.ahead_of(call.flow, cost))
        if now + wait_s > call.due_at:
            detail = f"the wait for {pool.name} would be {wait_s:.0f} s, longer than this request may wait"
            return self._full(call, Reason.WAIT_TOO_LONG, detail, now)
        if queue.fits(cost, call.request.body_bytes):
            return None
        victims = queue.make_room(call.flow, cost, call.request.body_bytes)
        if victims is None:
            return self._full(call, Reason.QUEUE_FULL, f"the queue of {pool.name} is full", now)
        for victim in victims:
            assert isinstance(victim.item, Call)
            detail = f"displaced from the full queue of {pool.name}"
            self._evict(victim.item, Reason.DISPLACED, detail, now, out)
        return None

    def _full(self, call: Call, reason: Reason, detail: str, now: float) -> Refusal:
        call.charge.void()
        wait_s = call.pool.book(now, self.rng, call.prompt_tokens + call.output_tokens)
        return Refusal(reason, detail, wait_s, quota(now, call.charge.scopes))

    # -- while it runs ----------------------------------------------------------------------------

    def _running(self, request_id: int, attempt: int) -> Call | None:
        """The call whose current attempt that is; what a dead attempt still reports is ignored."""
        call = self._calls.get(request_id)
        return call if call is not None and call.hold is not None and call.attempt == attempt else None

    def _on_first_token(self, event: FirstToken, now: float, out: list[Command]) -> None:
        call = self._running(event.request_id, event.attempt)
        if call is None or call.stage is not RUNNING:
            return
        assert call.hold is not None
        call.stage = STREAMING
        call.first_token_at = now
        replica = call.hold.replica
        replica.on_first_token(call.hold)
        if replica.prefill_limit is not None:
            self._pump(call.pool, now, out)

    def _on_progressed(self, event: Progressed, now: float, out: list[Command]) -> None:
        call = self._running(event.request_id, event.attempt)
        if call is None:
            return
        assert call.hold is not None
        call.produced = max(call.produced, event.output_tokens)
        if call.produced <= call.output_tokens:
            return
        call.pool.queue.correct(call.flow, call.produced - call.output_tokens)
        call.output_tokens = float(call.produced)
        weights = self.admission.weights
        call.charge.extend(now, call.prompt_tokens * weights.input + call.produced * weights.output)
        call.hold.replica.grow(call.hold, call.prompt_tokens + call.produced)
        if call.pool.queue.requests:
            self._pump(call.pool, now, out)  # the correction may have put another tenant first, who fits

    # -- how an attempt ends ----------------------------------------------------------------------

    def _on_finished(self, event: Finished, now: float, out: list[Command]) -> None:
        call = self._running(event.request_id, event.attempt)
        if call is None:
            return
        member = self._release(call)
        if call.cut is None:
            self._fleet.answered(member, call.request, event.status, call.trial, now)
        else:
            member.breaker.on_neutral(call.trial)
        status, reported = event.status, event.usage
        used = NO_USAGE if reported is None and status >= 400 else call.usage(reported, event.output_tokens)
        if reported is not None and call.cut is None:
            call.pool.predictor.learn(call.request, used.prompt_tokens, used.output_tokens)
        self._end(call, used, call.cut, status, now)
        self._dispatcher.pump(call.pool, now, out)

    def _on_failed(self, event: Failed, now: float, out: list[Command]) -> None:
        call = self._running(event.request_id, event.attempt)
        if call is None:
            return
        member = self._release(call)
        if call.stage is ENDING:
            member.breaker.on_neutral(call.trial)  # we cut it ourselves
        else:
            self._fleet.failed(member, event.kind, call.trial, now, out, event.retry_after_s)
        spent = event.kind not in UNSPENT
        call.spent = call.spent or spent
        reason = REASON_OF_FAILURE.get(event.kind, Reason.UPSTREAM_ERROR)
        if event.committed or call.stage is ENDING:
            used = call.usage(event.usage, event.output_tokens) if spent else NO_USAGE
            self._end(call, used, call.cut or reason, ANSWERS[reason].status, now)
        elif self._may_retry(call, member, event.kind, now):
            call.stage = RETRYING
            call.queue_until = now + call.max_wait_s
            call.produced = 0
            call.first_token_at = None
            call.pool.retrying.append(call)
            self._dispatcher.arm(call)
        else:
            self._evict(call, reason, said_of(event), now, out, event.retry_after_s)
        self._pump(call.pool, now, out)

    def _may_retry(self, call: Call, member: Member, kind: FailureKind, now: float) -> bool:
        """Another attempt: on another replica, except that one which was only busy may be asked again."""
        pool, settings = call.pool, call.pool.settings.retry
        if self._stopping or call.attempt >= settings.max_attempts or (kind in KILLING and call.attempt >= 2):
            return False
        if kind not in NEUTRAL:
            call.tried = (*call.tried, member.replica.name)
        until = min(call.due_at, now + call.max_wait_s)
        others = any(
            name not in call.tried and each.back_at(now) < until for name, each in pool.members.items()
        )
        call.unaffordable = others and not pool.retries.spend(now)
        return others and not call.unaffordable

    def _on_cancelled(self, event: Cancelled, now: float, out: list[Command]) -> None:
        call = self._calls.get(event.request_id)
        if call is None:
            return
        used = self._withdraw(call, event.usage, event.output_tokens)
        self._end(call, used, call.cut or Reason.CLIENT_GONE, ANSWERS[Reason.CLIENT_GONE].status, now)
        self._pump(call.pool, now, out)

    # -- deadlines --------------------------------------------------------------------------------

    def _on_due(self, call: Call, now: float, out: list[Command]) -> None:
        call.armed_at = inf
        if call.due_at > now:
            self._dispatcher.arm(call)
        elif call.stage is STREAMING and call.streams:
            self._truncate(call, Reason.TOTAL_TIMEOUT, now, out)
        else:
            self._expire(call, now, out)

    def _expire(self, call: Call, now: float, out: list[Command]) -> None:
        """A deadline passed before anything could be sent to the client."""
        if now >= call.total_until:
            reason, detail = Reason.TOTAL_TIMEOUT, "no answer within the total deadline"
        elif call.stage is WAITING or (call.stage is RETRYING and now >= call.queue_until):
            reason, detail = Reason.QUEUE_TIMEOUT, f"no replica of {call.pool.name} had room in time"
        else:
            reason, detail = Reason.TTFT_TIMEOUT, "no first token within its deadline"
        if call.hold is not None:
            member, trial = call.member, call.trial
            assert member is not None
            assert call.dispatched_at is not None
            # A replica is to blame only for what it had most of the time for, and only by our own deadline.
            callers = call.caller_timeout and now >= call.total_until
            blamed = not callers and 2 * (now - call.dispatched_at) >= now - call.arrived_at
            out.append(Abort(request_id=call.request_id, attempt=call.attempt))
            self._release(call)
            call.spent = True
            if blamed:
                self._fleet.failed(member, FailureKind.STALLED, trial, now, out)
            else:
                member.breaker.on_neutral(trial)
        self._evict(call, reason, detail, now, out)

    def _truncate(self, call: Call, reason: Reason, now: float, out: list[Command]) -> None:
        call.stage = ENDING
        call.cut = reason
        out.append(Truncate(request_id=call.request_id, attempt=call.attempt, reason=reason))

    # -- how a request ends -----------------------------------------------------------------------

    def _reject(self, request: Request, refusal: Refusal, now: float, out: list[Command]) -> None:
        out.append(
            Reject(
                request_id=request.request_id,
                reason=refusal.reason,
                detail=refusal.detail,
                retry_after_s=_honest(refusal.retry_after_s),
                quota=refusal.quota,
            )
        )
        self.ended.append(record_of_refusal(request, refusal.reason, now))

    def _evict(
        self,
        call: Call,
        reason: Reason,
        detail: str,
        now: float,
        out: list[Command],
        retry_after_s: float | None = None,
    ) -> None:
        """End a request that no answer of an engine can be passed on to."""
        used = self._withdraw(call, None, 0)
        self._end(call, used, reason, ANSWERS[reason].status, now)
        if ANSWERS[reason].retryable and retry_after_s is None:
            back_s = call.pool.back_at(now) - now
            booked_s = call.pool.book(now, self.rng, call.prompt_tokens + call.output_tokens)
            retry_after_s = max(booked_s, back_s if back_s < inf else 0.0)
        out.append(
            Evict(
                request_id=call.request_id,
                reason=reason,
                detail=detail,
                retry_after_s=_honest(retry_after_s),
                quota=quota(now, call.charge.scopes),
                # Another gateway may serve what this one can no longer.
                final=reason is not Reason.SHUTTING_DOWN and (call.attempt > 1 or call.unaffordable),
            )
        )

    def _withdraw(self, call: Call, reported: Usage | None, produced: int) -> Usage:
        """Take a call out of wherever it stands; what it has used so far."""
        if call.waiting is not None:
            call.pool.queue.remove(call.waiting)
            call.waiting = None
        elif call.stage is RETRYING:
            call.pool.retrying.remove(call)
        if call.hold is not None:
            self._release(call).breaker.on_neutral(call.trial)
            call.spent = True
        return call.usage(reported, produced) if call.spent else NO_USAGE

    def _release(self, call: Call) -> Member:
        """End the hold of the running attempt."""
        assert call.hold is not None
        assert call.member is not None
        call.hold.replica.release(call.hold)
        call.hold = None
        return call.member

    def _end(self, call: Call, used: Usage, reason: Reason | None, status: int, now: float) -> None:
        """The one ending: settle the charge, correct the fair share, write the record."""
        prompt, output, cached = used.prompt_tokens, used.output_tokens, used.cached_tokens
        credits = self.admission.weights.cost(prompt, cached, output)
        call.charge.settle(now, credits)
        if call.dispatched_at is not None:
            reserved = call.prompt_tokens + call.output_tokens
            call.pool.queue.settle(call.flow, prompt + output - reserved)
        call.stage = ENDED
        del self._calls[call.request_id]
        self._timers.forget()
        self.ended.append(call.record(used, credits, reason, status, now))

    # -- replicas ---------------------------------------------------------------------------------

    def _on_added(self, event: ReplicaAdded, now: float, out: list[Command]) -> None:
        self._pump(self._fleet.add(event, now), now, out)

    def _on_removed(self, event: ReplicaRemoved, now: float, out: list[Command]) -> None:
        self._fleet.remove(event.replica)

    def _on_drain_asked(self, event: DrainAsked, now: float, out: list[Command]) -> None:
        self._pump(self._fleet.drain(event.replica, now, event.drain), now, out)

    def _on_seen(self, event: ReplicaSeen, now: float, out: list[Command]) -> None:
        self._pump(self._fleet.seen(event, now), now, out)

    def _on_probed(self, event: Probed, now: float, out: list[Command]) -> None:
        self._pump(self._fleet.probed(event, now), now, out)

    # -- shutdown ---------------------------------------------------------------------------------

    def _on_shutdown_asked(self, event: ShutdownAsked, now: float, out: list[Command]) -> None:
        self._stopping = True
        for call in list(self._calls.values()):
            if call.stage in (WAITING, RETRYING):
                self._evict(call, Reason.SHUTTING_DOWN, "the gateway is shutting down", now, out)
        self._timers.set(now + event.grace_s, STOP)

    def _cut_all(self, now: float, out: list[Command]) -> None:
        for call in list(self._calls.values()):
            if call.stage is STREAMING and call.streams:
                self._truncate(call, Reason.SHUTTING_DOWN, now, out)
            elif call.stage is not ENDING:
                out.append(Abort(request_id=call.request_id, attempt=call.attempt))
                self._evict(call, Reason.SHUTTING_DOWN, "the gateway is shutting down", now, out)

    # -- invariants -------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert that every count is the sum of what it counts. Tests call it after each step."""
        check(list(self._calls.values()), self.pools.values(), self.admission.scopes())


def _honest(retry_after_s: float | None) -> float | None:
    """Within what clients honour."""
    if retry_after_s is None:
        return None
    return min(max(retry_after_s, RETRY_AFTER_MIN_S), RETRY_AFTER_MAX_S)


def _is_dead(item: object) -> bool:
    if isinstance(item, Call):
        return item.stage is ENDED
    return isinstance(item, Member) and item.removed
