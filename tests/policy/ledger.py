"""What must hold of every command that a governor gives, whatever happened to make it give it?

The ledger is told what the governor was told and what it answered, keeps its own account of each request
and replica, and objects at once. It knows nothing of how the governor decides.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

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
    Reject,
    ReplicaAdded,
    ReplicaRemoved,
    ShutdownAsked,
    Truncate,
)
from tidegate.core.reasons import ANSWERS, Reason
from tidegate.core.records import RequestRecord
from tidegate.core.request import Request
from tidegate.policy.settings import GovernorSettings

COMPUTES_NOTHING = {FailureKind.CONNECT, FailureKind.BUSY, FailureKind.DENIED}


@dataclass(slots=True)
class Seen:
    """A replica as an outsider knows it."""

    concurrency: int
    draining: bool = False
    up: bool = True
    probing: bool = False
    good: int = 0
    bad: int = 0
    running: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Life:
    """A request as an outsider knows it."""

    request: Request
    arrived_at: float
    attempt: int = 0
    running_on: str | None = None
    streaming: bool = False
    cut: Reason | None = None
    tried: set[str] = field(default_factory=set)
    computed: bool = False  # some attempt may have cost an engine tokens
    first_tried_at: float | None = None


@dataclass(slots=True)
class Ledger:
    """The account. `count` names what was seen, for tests that want to know what they have reached."""

    settings: GovernorSettings
    open: dict[int, Life] = field(default_factory=dict)
    replicas: dict[str, Seen] = field(default_factory=dict)
    outcomes: dict[int, Reason | None] = field(default_factory=dict)
    lives: dict[int, Life] = field(default_factory=dict)
    records: list[RequestRecord] = field(default_factory=list)
    count: Counter[str] = field(default_factory=Counter)
    stopping: bool = False
    requests: int = 0
    retries: int = 0

    # -- what the governor is told ----------------------------------------------------------------

    def told(self, event: Event, now: float) -> None:
        """An event is about to be handled; deadlines that were due have passed."""
        match event:
            case Arrived(request=request):
                assert request.request_id not in self.lives, "a test's request ids are unique"
                self.open[request.request_id] = self.lives[request.request_id] = Life(request, now)
            case FirstToken() if life := self._running(event):
                life.streaming = True
            case Finished() if life := self._running(event):
                self._stop(life, computed=event.usage is not None or event.status < 400)
                self._end(event.request_id, life.cut)
            case Failed() if life := self._running(event):
                self.count[f"failed:{event.kind.value}"] += 1
                if event.kind is not FailureKind.BUSY:
                    life.tried.add(str(life.running_on))
                self._stop(life, computed=event.kind not in COMPUTES_NOTHING)
                if event.committed or life.cut:
                    self._end(event.request_id, life.cut or _of(event.kind))
            case Cancelled() if life := self.open.get(event.request_id):
                where = "queued" if not life.attempt else "streaming" if life.streaming else "running"
                self.count[f"cancelled:{where if life.running_on or not life.attempt else 'retrying'}"] += 1
                self._stop(life, computed=life.running_on is not None)
                self._end(event.request_id, life.cut or Reason.CLIENT_GONE)
            case FirstToken() | Finished() | Failed() | Cancelled():
                self.count["stale"] += 1
            case ReplicaAdded():
                self.replicas[event.replica] = Seen(event.max_concurrency or 256)
            case ReplicaRemoved():
                self.replicas.pop(event.replica, None)
            case DrainAsked() if event.replica in self.replicas:
                self.replicas[event.replica].draining = event.drain
            case Probed() if event.replica in self.replicas:
                self._probed(self.replicas[event.replica], event.ok)
            case ShutdownAsked():
                self.stopping = True

    def _running(self, event: FirstToken | Finished | Failed) -> Life | None:
        life = self.open.get(event.request_id)
        return life if life and life.running_on is not None and life.attempt == event.attempt else None

    def _probed(self, seen: Seen, ok: bool) -> None:
        seen.probing = False
        seen.good, seen.bad = (seen.good + 1, 0) if ok else (0, seen.bad + 1)
        if seen.up != (seen.bad < 3 if seen.up else seen.good >= 2):
            seen.up = not seen.up
            self.count["back up" if seen.up else "found down"] += 1

    # -- what it answers --------------------------------------------------------------------------

    def answered(self, command: Command, now: float) -> None:
        """A command was given."""
        self.count[type(command).__name__.lower()] += 1
        match command:
            case Dispatch():
                self._dispatched(command, now)
            case Reject():
                life = self.open[command.request_id]
                assert life.attempt == 0
                assert life.arrived_at == now, "whoever waited is evicted, not rejected"
                self._refused(command)
            case Evict():
                life = self.open[command.request_id]
                assert life.running_on is None, "an attempt is aborted before its request is evicted"
                self._refused(command)
            case Truncate():
                life = self.open[command.request_id]
                assert life.streaming
                assert life.request.streams
                assert life.cut is None, "once"
                assert life.running_on is not None
                assert life.attempt == command.attempt
                self.count[f"truncate:{command.reason.name}"] += 1
                life.cut = command.reason
            case Abort():
                life = self.open[command.request_id]
                assert life.running_on is not None
                assert life.attempt == command.attempt
                assert not (life.streaming and life.request.streams), "what the client has begun is truncated"
                self._stop(life, computed=True)
            case Probe():
                seen = self.replicas[command.replica]
                assert not seen.probing, "one probe at a time"
                seen.probing = True

    def _dispatched(self, command: Dispatch, now: float) -> None:
        life, pool = self.open[command.request_id], self.settings.pools[command.pool]
        seen = self.replicas[command.replica]
        assert not self.stopping
        assert life.running_on is None, "one attempt at a time"
        assert command.attempt == life.attempt + 1 <= pool.retry.max_attempts
        assert command.replica not in life.tried
        assert seen.up
        assert not seen.draining
        assert len(seen.running) < seen.concurrency
        first_by = min(pool.deadlines.total_s, life.request.timeout_s or 1e9)
        assert now - life.arrived_at <= first_by + 1e-9, "no dispatch after its deadline"
        assert command.queued_s == now - life.arrived_at
        life.attempt, life.running_on, life.streaming = command.attempt, command.replica, False
        seen.running.add(command.request_id)
        if command.attempt == 1:
            self.requests += 1
            life.first_tried_at = now
            self.count["dispatch after waiting"] += now > life.arrived_at
            self.count["fallback"] += command.pool != life.request.model
        else:
            self.retries += 1
            self.count["retry"] += 1
            self.count["retry after waiting"] += now > life.arrived_at and life.first_tried_at != now
        if any(step.startswith("clamp") for step in command.degraded):
            self.count["clamp"] += 1
            assert command.max_tokens is not None
            assert life.request.max_tokens is None or command.max_tokens <= life.request.max_tokens

    def _refused(self, command: Reject | Evict) -> None:
        kind = type(command).__name__.lower()
        self.count[f"{kind}:{command.reason.name}"] += 1
        assert command.detail, "a refusal says why"
        if ANSWERS[command.reason].retryable:
            assert command.retry_after_s is not None, command
        if command.retry_after_s is not None:
            assert 1.0 <= command.retry_after_s <= 120.0, command
        self._end(command.request_id, command.reason)

    def _stop(self, life: Life, computed: bool) -> None:
        life.computed = life.computed or computed
        if life.running_on in self.replicas:
            self.replicas[life.running_on].running.discard(life.request.request_id)
        life.running_on = None

    def _end(self, request_id: int, reason: Reason | None) -> None:
        del self.open[request_id]
        assert request_id not in self.outcomes, "one outcome"
        self.outcomes[request_id] = reason

    # -- its records ------------------------------------------------------------------------------

    def recorded(self, record: RequestRecord, now: float) -> None:
        """A record was taken: it tells of an outcome that was seen, and of nothing else."""
        self.records.append(record)
        life = self.lives[record.request_id]
        assert self.outcomes.pop(record.request_id, "no outcome") is record.reason
        assert record.attempts == life.attempt
        assert (record.arrived_at, record.tenant) == (life.arrived_at, life.request.tenant)
        reached = [record.arrived_at, record.dispatched_at, record.first_token_at, record.ended_at]
        instants = [at for at in reached if at is not None]
        assert instants == sorted(instants), record
        assert record.ended_at <= now
        assert (record.dispatched_at is None) == (life.attempt == 0)
        if not life.computed:
            assert record.charged_credits == 0, "who cost no engine anything pays nothing"
        elif record.ok:
            assert record.charged_credits > 0
        if record.reason is not None and record.reason is not Reason.TOTAL_TIMEOUT:
            assert record.status == ANSWERS[record.reason].status or life.streaming


def _of(kind: FailureKind) -> Reason:
    return {FailureKind.BUSY: Reason.UPSTREAM_BUSY, FailureKind.STALLED: Reason.UPSTREAM_TIMEOUT}.get(
        kind, Reason.UPSTREAM_ERROR
    )
