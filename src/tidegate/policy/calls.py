"""One request while it lives: where it stands, what it holds, and when it is next due.

    WAITING ──dispatch──> RUNNING ──first token──> STREAMING ──> ENDED
       ^                     │                        │
       └── RETRYING <──fail──┘        truncate ──> ENDING ──> ENDED

Data only; the governor moves it. A charge lives as long as the call, a hold as long as one attempt.
"""

from __future__ import annotations

from enum import Enum, auto
from math import inf
from typing import Final

from tidegate.core.messages import Failed
from tidegate.core.reasons import ANSWERS, Reason
from tidegate.core.records import RequestRecord
from tidegate.core.request import Request, Usage
from tidegate.policy.limits import Charge
from tidegate.policy.pool import Member, Pool
from tidegate.policy.queueing import Flow, Waiting
from tidegate.policy.replicas import Hold


class Stage(Enum):
    """Where a call stands."""

    WAITING = auto()
    RETRYING = auto()
    RUNNING = auto()
    STREAMING = auto()
    ENDING = auto()
    """Truncated: the driver still owes what it had produced."""
    ENDED = auto()


# By themselves: a look-up on the enum costs as much as a call.
WAITING: Final = Stage.WAITING
RETRYING: Final = Stage.RETRYING
RUNNING: Final = Stage.RUNNING
STREAMING: Final = Stage.STREAMING
ENDING: Final = Stage.ENDING
ENDED: Final = Stage.ENDED


class Call:
    """A live request."""

    # Without, each would own a dictionary of a kilobyte: Python shares the keys of up to 30 attributes only.
    __slots__ = (
        "armed_at",
        "arrived_at",
        "attempt",
        "caller_timeout",
        "charge",
        "cut",
        "degraded",
        "dispatched_at",
        "first_token_at",
        "flow",
        "hold",
        "kv_tokens",
        "max_tokens",
        "max_wait_s",
        "member",
        "output_tokens",
        "pool",
        "produced",
        "prompt_tokens",
        "queue_until",
        "request",
        "request_id",
        "spent",
        "stage",
        "streams",
        "total_until",
        "trial",
        "tried",
        "ttft_until",
        "unaffordable",
        "waiting",
    )

    def __init__(
        self,
        *,
        request: Request,
        pool: Pool,
        flow: Flow,
        charge: Charge,
        arrived_at: float,
        max_wait_s: float,
        ttft_until: float,
        total_until: float,
        prompt_tokens: float,
        output_tokens: float,
        kv_tokens: float,
        max_tokens: int | None,
        degraded: tuple[str, ...],
        caller_timeout: bool,
    ) -> None:
        self.request = request
        self.request_id: Final[int] = request.request_id  # these two by themselves: they are read often
        self.streams: Final[bool] = request.streams
        self.pool = pool
        self.flow = flow
        self.charge = charge
        self.arrived_at = arrived_at
        self.max_wait_s = max_wait_s  # for a first attempt, and again for each retry
        self.queue_until = arrived_at + max_wait_s
        self.ttft_until = ttft_until
        self.total_until = total_until
        self.prompt_tokens = prompt_tokens  # estimate
        self.output_tokens = output_tokens  # reserved
        self.kv_tokens = kv_tokens  # what it holds on a replica
        self.max_tokens = max_tokens  # as dispatched, per choice
        self.degraded = degraded
        self.caller_timeout = caller_timeout  # `total_until` is the caller's own deadline

        self.stage: Stage = WAITING
        self.waiting: Waiting | None = None
        self.attempt: int = 0
        self.member: Member | None = None
        self.hold: Hold | None = None
        self.trial: int = 0
        self.tried: tuple[str, ...] = ()
        self.dispatched_at: float | None = None
        self.first_token_at: float | None = None
        self.produced: int = 0  # output tokens of the running attempt
        self.spent: bool = False  # some engine has computed for it
        self.unaffordable: bool = False  # the retry budget forbade another attempt
        self.cut: Reason | None = None
        self.armed_at: float = inf  # the earliest timer that is set for it

    @property
    def due_at(self) -> float:
        """When the next of its deadlines passes."""
        stage = self.stage
        if stage is ENDING:
            return inf
        due_at = self.total_until
        if stage is not STREAMING and self.streams and self.ttft_until < due_at:
            due_at = self.ttft_until
        if (stage is WAITING or stage is RETRYING) and self.queue_until < due_at:
            due_at = self.queue_until
        return due_at

    def usage(self, reported: Usage | None, produced: int) -> Usage:
        """What it has used: the engine's totals, else the estimate and what was counted."""
        if reported is not None:
            return reported
        return Usage(prompt_tokens=round(self.prompt_tokens), output_tokens=max(self.produced, produced))

    def record(
        self, used: Usage, credits: float, reason: Reason | None, status: int, now: float
    ) -> RequestRecord:
        """What became of it, now that it has ended."""
        request = self.request
        return RequestRecord(
            request_id=self.request_id,
            tenant=request.tenant,
            key=request.key,
            priority=request.priority,
            pool=self.pool.name,
            replica=self.member.replica.name if self.member else "",
            attempts=self.attempt,
            arrived_at=self.arrived_at,
            dispatched_at=self.dispatched_at,
            first_token_at=self.first_token_at,
            ended_at=now,
            prompt_tokens=used.prompt_tokens,
            output_tokens=used.output_tokens,
            cached_tokens=used.cached_tokens,
            charged_credits=credits,
            reason=reason,
            status=status,
        )


def record_of_refusal(request: Request, reason: Reason, now: float) -> RequestRecord:
    """What became of a request that never was a call."""
    return RequestRecord(
        request_id=request.request_id,
        tenant=request.tenant,
        key=request.key,
        priority=request.priority,
        pool=request.model,
        arrived_at=now,
        ended_at=now,
        reason=reason,
        status=ANSWERS[reason].status,
    )


def said_of(event: Failed) -> str:
    """How the last attempt of a call ended, for its client."""
    what = f"answered {event.status}" if event.status else f"failed ({event.kind.value})"
    said = f": {event.detail}" if event.detail else ""
    attempts = "1 attempt" if event.attempt == 1 else f"{event.attempt} attempts"
    return f"the engine {what}, after {attempts}{said}"
