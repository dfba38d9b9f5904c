"""The governor: given what happened, what must be done?

    commands = governor.handle(event, now)      # due deadlines pass first
    wake_at  = governor.next_wakeup()           # inf for never
    commands = governor.on_wakeup(now)

It composes the mechanisms of this package. A request passes through them in this order: admission (relief,
limits: a charge) -> queue -> gate and routing (a hold) -> attempt(s) -> settlement. Every ending runs through
`_end`, which settles the charge and writes the record, once.

Given the same events at the same instants it gives the same commands: `rng` is its only dice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any

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
from tidegate.core.reasons import ANSWERS, Reason
from tidegate.core.records import RequestRecord
from tidegate.core.request import Request, Usage
from tidegate.policy.admission import Admission, Refusal
from tidegate.policy.calls import Call, Stage
from tidegate.policy.limits import quota
from tidegate.policy.pool import Member, Pool
from tidegate.policy.settings import GovernorSettings
from tidegate.policy.timers import Timers

RETRY_AFTER_MIN_S, RETRY_AFTER_MAX_S = 1.0, 120.0
"""The official SDKs do not retry at all after a Retry-After above 120 s."""

NEUTRAL = frozenset({FailureKind.BUSY})
"""Says nothing about a replica's health."""
UNSPENT = frozenset({FailureKind.CONNECT, FailureKind.BUSY, FailureKind.DENIED})
"""The engine has computed nothing."""
KILLING = frozenset({FailureKind.RESET, FailureKind.GARBAGE})
"""What a request that crashes its engine looks like: tried on one more replica, not on all the others."""

REASON_OF_FAILURE = {
    FailureKind.BUSY: Reason.UPSTREAM_BUSY,
    FailureKind.STALLED: Reason.UPSTREAM_TIMEOUT,
}

NO_USAGE = Usage(prompt_tokens=0, output_tokens=0)


class Stop:
    """The timer of a shutdown's end."""


STOP = Stop()


@dataclass(slots=True, eq=False)
class Governor:
    """The composition of all policies, for one fleet."""

    settings: GovernorSettings
    rng: Random
    pools: dict[str, Pool] = field(init=False)
    members: dict[str, Member] = field(default_factory=dict)
    """Every replica of every pool, by its name, which is unique in the fleet."""
    admission: Admission = field(init=False)
    ended: list[RequestRecord] = field(default_factory=list)

    _calls: dict[int, Call] = field(default_factory=dict)
    _timers: Timers[Call | Member | Pool | Stop] = field(init=False)
    _stopping: bool = False
    _handlers: dict[type, Callable[[Any, float, list[Command]], None]] = field(init=False)

    def __post_init__(self) -> None:
        classes = self.settings.classes
        self.pools = {name: Pool.of(name, each, classes) for name, each in self.settings.pools.items()}
        self.admission = Admission(self.settings, self.pools, self.rng)
        self._timers = Timers(_is_dead)
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
                    self._probe(item, now, out)
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
        if request.request_id in self._calls:
            raise CallerError(f"request {request.request_id} arrived twice")
        if self._stopping:
            refusal = Refusal(Reason.SHUTTING_DOWN, "the gateway is shutting down", RETRY_AFTER_MIN_S)
            self._reject(request, refusal, now, out)
            return
        call = self.admission.admit(request, now)
        if isinstance(call, Refusal):
            self._reject(request, call, now, out)
        elif (full := self._make_room(call, now, out)) is not None:
            self._reject(request, full, now, out)
        else:
            self._calls[request.request_id] = call
            if not self._send_at_once(call, now, out):
                self._enqueue(call, now, out)

    def _send_at_once(self, call: Call, now: float, out: list[Command]) -> bool:
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

    def _enqueue(self, call: Call, now: float, out: list[Command]) -> None:
        cost = call.prompt_tokens + call.output_tokens
        call.waiting = call.pool.queue.push(call, call.flow, cost, call.request.body_bytes, call.due_at)
        self._pump(call.pool, now, out)
        if call.stage is Stage.WAITING:
            self._arm(call)

    def _make_room(self, call: Call, now: float, out: list[Command]) -> Refusal | None:
        """A place in the queue, displacing others where that is just; else why not, its charge voided."""
        pool, queue = call.pool, call.pool.queue
        if not queue.requests:
            return None
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

    def _pump(self, pool: Pool, now: float, out: list[Command]) -> None:
        """Send what may be sent: retries first, then the queue in its order, its head never overtaken."""
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
                self._timers.set(recheck_at, pool)

    def _pump_retries(self, pool: Pool, now: float, out: list[Command]) -> None:
        for call in list(pool.retrying):
            assert isinstance(call, Call)
            member = self._choose(call, now)
            if member is not None:
                pool.retrying.remove(call)
                self._dispatch(call, member, now, out)

    def _choose(self, call: Call, now: float) -> Member | None:
        affinity = call.request.affinity
        return call.pool.choose(now, self.rng, call.kv_tokens, call.prompt_tokens, affinity, call.tried)

    def _dispatch(self, call: Call, member: Member, now: float, out: list[Command]) -> None:
        call.attempt += 1
        call.stage = Stage.RUNNING
        call.member = member
        call.hold = member.replica.hold(call.kv_tokens, call.prompt_tokens)
        call.trial = member.breaker.on_dispatch()
        call.dispatched_at = now
        if call.attempt == 1:
            call.pool.retries.on_request(now)
        self._arm(call)
        out.append(
            Dispatch(
                request_id=call.request.request_id,
                attempt=call.attempt,
                replica=member.replica.name,
                pool=call.pool.name,
                max_tokens=call.max_tokens,
                degraded=call.degraded,
                queued_s=now - call.arrived_at,
                quota=quota(now, call.charge.scopes),
            )
        )

    # -- while it runs ----------------------------------------------------------------------------

    def _running(self, request_id: int, attempt: int) -> Call | None:
        """The call whose current attempt that is; what a dead attempt still reports is ignored."""
        call = self._calls.get(request_id)
        return call if call is not None and call.hold is not None and call.attempt == attempt else None

    def _on_first_token(self, event: FirstToken, now: float, out: list[Command]) -> None:
        call = self._running(event.request_id, event.attempt)
        if call is None or call.stage is not Stage.RUNNING:
            return
        assert call.hold is not None
        call.stage = Stage.STREAMING
        call.first_token_at = now
        replica = call.hold.replica
        gated = replica.gate.max_prefill_tokens is not None
        replica.on_first_token(call.hold)
        if gated:
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
        call.output_tokens = call.produced
        weights = self.settings.weights
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
            member.breaker.on_success(now, call.trial)
            member.replica.on_success()
        else:
            member.breaker.on_neutral(call.trial)
        refused = event.status >= 400 and event.usage is None
        used = NO_USAGE if refused else call.usage(event.usage, event.output_tokens)
        if event.usage is not None and call.cut is None:
            call.pool.predictor.learn(call.request, used.prompt_tokens, used.output_tokens)
        self._end(call, used, call.cut, event.status, now)
        self._pump(call.pool, now, out)

    def _on_failed(self, event: Failed, now: float, out: list[Command]) -> None:
        call = self._running(event.request_id, event.attempt)
        if call is None:
            return
        member = self._release(call)
        if call.stage is Stage.ENDING:
            member.breaker.on_neutral(call.trial)  # we cut it ourselves
        else:
            self._judge(member, event.kind, call.trial, event.retry_after_s, now, out)
        spent = event.kind not in UNSPENT
        call.spent = call.spent or spent
        reason = REASON_OF_FAILURE.get(event.kind, Reason.UPSTREAM_ERROR)
        if event.committed or call.stage is Stage.ENDING:
            used = call.usage(event.usage, event.output_tokens) if spent else NO_USAGE
            self._end(call, used, call.cut or reason, ANSWERS[reason].status, now)
        elif self._may_retry(call, member, event.kind, now):
            call.stage = Stage.RETRYING
            call.queue_until = now + call.max_wait_s
            call.produced = 0
            call.first_token_at = None
            call.pool.retrying.append(call)
            self._arm(call)
        else:
            what = f"answered {event.status}" if event.status else f"failed ({event.kind.value})"
            said = f": {event.detail}" if event.detail else ""
            detail = f"the engine {what}, after {call.attempt} attempt(s){said}"
            self._evict(call, reason, detail, now, out, event.retry_after_s)
        self._pump(call.pool, now, out)

    def _judge(
        self,
        member: Member,
        kind: FailureKind,
        trial: int,
        pause_s: float | None,
        now: float,
        out: list[Command],
    ) -> None:
        """What a failure says of its replica."""
        if kind in NEUTRAL:
            member.breaker.on_neutral(trial)
            member.replica.on_busy(now, pause_s)
            return
        member.breaker.on_failure(now, trial, member.pool.may_open_breaker())
        if kind is FailureKind.CONNECT and not member.replica.probing and not member.removed:
            self._probe(member, now, out)

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
        return others and pool.retries.spend(now)

    def _on_cancelled(self, event: Cancelled, now: float, out: list[Command]) -> None:
        call = self._calls.get(event.request_id)
        if call is None:
            return
        used = self._withdraw(call, event.usage, event.output_tokens)
        self._end(call, used, call.cut or Reason.CLIENT_GONE, ANSWERS[Reason.CLIENT_GONE].status, now)
        self._pump(call.pool, now, out)

    # -- deadlines --------------------------------------------------------------------------------

    def _arm(self, call: Call) -> None:
        """Have it looked at when its next deadline passes. An earlier timer of its own re-arms later."""
        due_at = call.due_at
        if due_at < call.armed_at:
            call.armed_at = due_at
            self._timers.set(due_at, call)

    def _on_due(self, call: Call, now: float, out: list[Command]) -> None:
        call.armed_at = inf
        if call.due_at > now:
            self._arm(call)
        elif call.stage is Stage.STREAMING and call.request.streams:
            self._truncate(call, Reason.TOTAL_TIMEOUT, now, out)
        else:
            self._expire(call, now, out)

    def _expire(self, call: Call, now: float, out: list[Command]) -> None:
        """A deadline passed before anything could be sent to the client."""
        if now >= call.total_until:
            reason, detail = Reason.TOTAL_TIMEOUT, "no answer within the total deadline"
        elif call.stage is Stage.WAITING or (call.stage is Stage.RETRYING and now >= call.queue_until):
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
            out.append(Abort(request_id=call.request.request_id, attempt=call.attempt))
            self._release(call)
            call.spent = True
            if blamed:
                self._judge(member, FailureKind.STALLED, trial, None, now, out)
            else:
                member.breaker.on_neutral(trial)
        self._evict(call, reason, detail, now, out)

    def _truncate(self, call: Call, reason: Reason, now: float, out: list[Command]) -> None:
        call.stage = Stage.ENDING
        call.cut = reason
        out.append(Truncate(request_id=call.request.request_id, attempt=call.attempt, reason=reason))

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
        self.ended.append(
            RequestRecord(
                request_id=request.request_id,
                tenant=request.tenant,
                key=request.key,
                priority=request.priority,
                pool=request.model,
                arrived_at=now,
                ended_at=now,
                reason=refusal.reason,
                status=ANSWERS[refusal.reason].status,
            )
        )

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
                request_id=call.request.request_id,
                reason=reason,
                detail=detail,
                retry_after_s=_honest(retry_after_s),
                quota=quota(now, call.charge.scopes),
            )
        )

    def _withdraw(self, call: Call, reported: Usage | None, produced: int) -> Usage:
        """Take a call out of wherever it stands; what it has used so far."""
        if call.waiting is not None:
            call.pool.queue.remove(call.waiting)
            call.waiting = None
        elif call.stage is Stage.RETRYING:
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
        credits = self.settings.weights.of(used)
        call.charge.settle(now, credits)
        if call.dispatched_at is not None:
            reserved = call.prompt_tokens + call.output_tokens
            call.pool.queue.correct(call.flow, used.prompt_tokens + used.output_tokens - reserved)
        call.stage = Stage.ENDED
        del self._calls[call.request.request_id]
        self._timers.forget()
        request = call.request
        self.ended.append(
            RequestRecord(
                request_id=request.request_id,
                tenant=request.tenant,
                key=request.key,
                priority=request.priority,
                pool=call.pool.name,
                replica=call.member.replica.name if call.member else "",
                attempts=call.attempt,
                arrived_at=call.arrived_at,
                dispatched_at=call.dispatched_at,
                first_token_at=call.first_token_at,
                ended_at=now,
                prompt_tokens=used.prompt_tokens,
                output_tokens=used.output_tokens,
                cached_tokens=used.cached_tokens,
                charged_tokens=credits,
                reason=reason,
                status=status,
            )
        )

    # -- replicas ---------------------------------------------------------------------------------

    def _on_added(self, event: ReplicaAdded, now: float, out: list[Command]) -> None:
        pool = self.pools.get(event.pool)
        if pool is None:
            raise CallerError(f"replica {event.replica} joins {event.pool}, which is no pool")
        if event.replica in self.members:
            raise CallerError(f"replica {event.replica} is there already")
        member = self.members[event.replica] = pool.add(event, now)
        self._probe_at(now, member)
        self._pump(pool, now, out)

    def _on_removed(self, event: ReplicaRemoved, now: float, out: list[Command]) -> None:
        member = self.members.pop(event.replica, None)
        if member is not None:
            member.pool.remove(event.replica)
            self._timers.forget()

    def _on_drain_asked(self, event: DrainAsked, now: float, out: list[Command]) -> None:
        member = self.members.get(event.replica)
        if member is not None:
            member.replica.on_drain(now, event.drain)
            self._pump(member.pool, now, out)

    def _on_seen(self, event: ReplicaSeen, now: float, out: list[Command]) -> None:
        member = self.members.get(event.replica)
        if member is None:
            return
        member.pool.on_seen(member, event, now)
        self._pump(member.pool, now, out)

    def _probe(self, member: Member, now: float, out: list[Command]) -> None:
        """Ask for a probe unless one is under way. Its answer sets the time of the next one."""
        member.probe_at = inf
        if not member.replica.probing:
            member.replica.probing = True
            out.append(Probe(replica=member.replica.name))

    def _probe_at(self, when: float, member: Member) -> None:
        member.probe_at = when
        self._timers.set(when, member)

    def _on_probed(self, event: Probed, now: float, out: list[Command]) -> None:
        member = self.members.get(event.replica)
        if member is None:
            return
        changed = member.replica.on_probe(now, event.ok)
        self._probe_at(now + member.replica.health.interval_s, member)
        if changed:
            self._pump(member.pool, now, out)

    # -- shutdown ---------------------------------------------------------------------------------

    def _on_shutdown_asked(self, event: ShutdownAsked, now: float, out: list[Command]) -> None:
        self._stopping = True
        for call in list(self._calls.values()):
            if call.stage in (Stage.WAITING, Stage.RETRYING):
                self._evict(call, Reason.SHUTTING_DOWN, "the gateway is shutting down", now, out)
        self._timers.set(now + event.grace_s, STOP)

    def _cut_all(self, now: float, out: list[Command]) -> None:
        for call in list(self._calls.values()):
            if call.stage is Stage.STREAMING and call.request.streams:
                self._truncate(call, Reason.SHUTTING_DOWN, now, out)
            elif call.stage is not Stage.ENDING:
                out.append(Abort(request_id=call.request.request_id, attempt=call.attempt))
                self._evict(call, Reason.SHUTTING_DOWN, "the gateway is shutting down", now, out)

    # -- invariants -------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert that every count is the sum of what it counts. Tests call it after each step."""
        calls = list(self._calls.values())
        for pool in self.pools.values():
            pool.queue.check()
            waiting = [call for call in calls if call.pool is pool and call.stage is Stage.WAITING]
            assert pool.queue.requests == len(waiting)
            retrying = [call for call in calls if call.pool is pool and call.stage is Stage.RETRYING]
            assert set(map(id, pool.retrying)) == set(map(id, retrying))
            for member in pool.members.values():
                held = [call.hold for call in calls if call.hold and call.hold.replica is member.replica]
                replica = member.replica
                assert replica.in_flight == len(held)
                assert abs(replica.kv_held - sum(hold.kv_tokens for hold in held)) < 1e-3
                assert abs(replica.prefill_held - sum(hold.prefill_tokens for hold in held)) < 1e-3
                assert member.breaker.trials <= member.breaker.settings.half_open_trials
        for scope in self.admission.scopes():
            assert scope.in_flight == sum(scope in call.charge.scopes for call in calls)
        for call in calls:
            running = call.stage in (Stage.RUNNING, Stage.STREAMING, Stage.ENDING)
            assert (call.hold is not None) == running
            assert (call.waiting is not None) == (call.stage is Stage.WAITING)
            assert not call.charge.settled


def _honest(retry_after_s: float | None) -> float | None:
    """Within what clients honour."""
    if retry_after_s is None:
        return None
    return min(max(retry_after_s, RETRY_AFTER_MIN_S), RETRY_AFTER_MAX_S)


def _is_dead(item: Call | Member | Pool | Stop) -> bool:
    if isinstance(item, Call):
        return item.stage is Stage.ENDED
    return isinstance(item, Member) and item.removed
