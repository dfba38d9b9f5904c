"""How does a server fare when requests come at their own times, whether it keeps up or not?

Open loop: the plan alone says when a request is sent; no answer is waited for. Latency counts from the
instant that was planned, so that a late send, for whatever reason, shows up in the figures instead of
thinning the load (coordinated omission). How late the generator itself was is each record's `queued_s`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic

import msgspec

from tidegate.bench.answer import DETAIL_CHARS, Answer, ErrorAnswer, Fault, StreamedAnswer, WholeAnswer
from tidegate.bench.prompts import Prompts
from tidegate.bench.target import Target, Template, client_of, origin_of
from tidegate.core.errors import ConfigurationError
from tidegate.core.messages import FailureKind
from tidegate.core.reasons import Reason
from tidegate.core.records import RequestRecord
from tidegate.net.client import Call
from tidegate.net.descriptors import descriptor_limit
from tidegate.net.limits import ClientLimits
from tidegate.workload.requests import PlannedRequest

SPARE_FILES = 64  # of the process beside the connections
MOST_OPEN = 10_000
PROGRESS_EVERY_S = 0.5
BREATHE_EVERY = 16  # sends in a row, when behind, before answers are read again
TIMER_ROUNDING_S = 0.0005  # uvloop rounds to milliseconds; this makes it round up

# Kinds of failure beside `http_<status>[_<code>]`, `error_event[_<code>]`, `bad_stream` and `bad_answer`.
NOT_SENT, UNFINISHED = "not_sent", "unfinished"
FAILURES = {FailureKind.STALLED: "timeout", FailureKind.GARBAGE: "bad_http"}


class LoadRecord(RequestRecord, frozen=True, kw_only=True):
    """A request as its client saw it: from the planned instant; `queued_s` is how late it was sent.

    `status` is 0 when no complete answer came, so that `ok` is False.
    """

    asked_tokens: int
    error: str = ""
    """Kind of failure, a label; empty for success."""
    detail: str = ""

    @property
    def short(self) -> bool:
        """True for a success with fewer output tokens than were asked for."""
        return self.ok and self.output_tokens < self.asked_tokens


class LoadLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When the generator gives up on a request."""

    max_open: int | None = None
    """Requests open at once; what would be more is not sent, and recorded so. None: what open files allow."""
    connect_timeout_s: float = 10.0
    stall_timeout_s: float = 120.0
    """Longest wait for any byte."""
    drain_timeout_s: float = 60.0
    """How long answers may take after the last send."""


DEFAULT_LIMITS = LoadLimits()


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run stands."""

    elapsed_s: float
    sent: int
    open: int
    ok: int
    failed: int


async def run_load(
    target: Target,
    plan: Iterable[PlannedRequest],
    *,
    limits: LoadLimits = DEFAULT_LIMITS,
    seed: int = 0,
    on_record: Callable[[LoadRecord], None] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_deltas: Callable[[int, float, int], None] | None = None,
    stop: asyncio.Event | None = None,
) -> list[LoadRecord]:
    """Send every request of the plan when it is due, and return what became of each, in order of their ends.

    `seed` decides the prompts. `on_deltas` is told of every arrival of deltas of a stream: the request's
    number, the instant, and how many have come by then. Once `stop` is set nothing more is sent, and what is
    open is cut and recorded as unfinished. Raises ConfigurationError, before anything is sent, if open files
    do not suffice.
    """
    load = _Load(target, limits, Prompts(seed, target.bytes_per_token))
    load.on_record, load.on_progress, load.on_deltas = on_record, on_progress, on_deltas
    await load.run(plan, stop or asyncio.Event())
    return load.records


def most_open(asked: int | None) -> int:
    """Requests that may be open at once. Raises ConfigurationError when open files do not allow `asked`."""
    files = descriptor_limit()
    room = max(1, files - SPARE_FILES)
    if asked is None:
        return min(MOST_OPEN, room)
    if asked > room:
        problem = (
            f"{asked} open requests need {asked + SPARE_FILES} open files, and this process may have {files}"
        )
        raise ConfigurationError([f"{problem}: raise `ulimit -n`, or lower the limit to {room}"])
    return asked


class _Load:
    """One run."""

    def __init__(self, target: Target, limits: LoadLimits, prompts: Prompts) -> None:
        self.target, self.limits, self.prompts = target, limits, prompts
        self.max_open = most_open(limits.max_open)
        self.template = Template(target)
        self.client = client_of(
            origin_of(target.url),
            ClientLimits(connect_timeout_s=limits.connect_timeout_s, max_idle=self.max_open),
        )
        self.on_record: Callable[[LoadRecord], None] | None = None
        self.on_progress: Callable[[Progress], None] | None = None
        self.on_deltas: Callable[[int, float, int], None] | None = None
        self.records: list[LoadRecord] = []
        self.open: dict[int, _Flight] = {}
        self.ok = 0
        self.started_at = monotonic()
        self._all_sent = False
        self._quiet = asyncio.Event()

    async def run(self, plan: Iterable[PlannedRequest], stop: asyncio.Event) -> None:
        """Until all is answered, the drain is over, or `stop`; whichever comes first."""
        work = asyncio.create_task(self._send_and_drain(plan))
        ticks = asyncio.create_task(self._tell_progress())
        halt = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait((work, ticks, halt), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (work, ticks, halt):
                task.cancel()
            await asyncio.gather(work, ticks, halt, return_exceptions=True)
            for flight in list(self.open.values()):
                flight.cut(Fault(UNFINISHED, "still open when the run ended"))
            await self.client.close()
        if self.on_progress:
            self.on_progress(self.progress())

    def progress(self) -> Progress:
        """Where it stands now."""
        ended = len(self.records)
        return Progress(
            elapsed_s=monotonic() - self.started_at,
            sent=ended + len(self.open),
            open=len(self.open),
            ok=self.ok,
            failed=ended - self.ok,
        )

    def ended(self, record: LoadRecord) -> None:
        """A request has come to its end."""
        self.open.pop(record.request_id, None)
        self.records.append(record)
        self.ok += record.ok
        if self._all_sent and not self.open:
            self._quiet.set()
        if self.on_record:
            self.on_record(record)

    async def _send_and_drain(self, plan: Iterable[PlannedRequest]) -> None:
        await self._send_all(plan)
        self._all_sent = True
        if self.open:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.limits.drain_timeout_s):
                    await self._quiet.wait()

    async def _send_all(self, plan: Iterable[PlannedRequest]) -> None:
        self.started_at = monotonic()
        for number, planned in enumerate(plan):
            # Made before the wait: making a long prompt must not make its request late.
            prompt = self.prompts.text(number, planned.prompt_tokens)
            head, body = self.template.message(planned, prompt)
            due_at = self.started_at + planned.at_s
            if number % BREATHE_EVERY == 0:
                await asyncio.sleep(0)
            await _until(due_at)
            self._send(number, planned, due_at, head, body)

    def _send(self, number: int, planned: PlannedRequest, due_at: float, head: bytes, body: bytes) -> None:
        flight = _Flight(self, number, planned, due_at)
        if len(self.open) >= self.max_open:
            flight.sent_at = None
            flight.finish(Fault(NOT_SENT, f"{self.max_open} requests were open already"))
            return
        self.open[number] = flight
        flight.call = self.client.send(head, body, flight)
        flight.call.expect_within(self.limits.stall_timeout_s)

    async def _tell_progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_EVERY_S)
            if self.on_progress:
                self.on_progress(self.progress())


class _Flight:
    """One request under way; the sink of its answer."""

    __slots__ = ("_answer", "_due_at", "_ended", "_load", "_number", "_planned", "_status", "call", "sent_at")

    def __init__(self, load: _Load, number: int, planned: PlannedRequest, due_at: float) -> None:
        self._load, self._number, self._planned, self._due_at = load, number, planned, due_at
        self._answer: Answer = StreamedAnswer() if load.target.stream else WholeAnswer()
        self._status = 0
        self._ended = False
        self.sent_at: float | None = monotonic()
        self.call: Call | None = None

    def on_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._status = status
        if not 200 <= status < 300:
            self._answer = ErrorAnswer(status)

    def on_body(self, data: bytes) -> None:
        if self._ended:
            return  # what follows [DONE]; the connection is kept for the next request
        fault = self._feed(data, monotonic())
        if fault:
            self.cut(fault)
        elif self._answer.done:
            self.finish(None)

    def _feed(self, data: bytes, now: float) -> Fault | None:
        answer, told = self._answer, self._load.on_deltas
        if told is None or not isinstance(answer, StreamedAnswer):
            return answer.feed(data, now)
        before = answer.deltas
        fault = answer.feed(data, now)
        if answer.deltas > before:
            told(self._number, now, answer.deltas)
        return fault

    def on_end(self) -> None:
        if not self._ended:
            self.finish(self._answer.end())

    def on_failure(self, kind: FailureKind, detail: str) -> None:
        if not self._ended:
            self._status = 0
            self.finish(Fault(FAILURES.get(kind, kind.value), detail[:DETAIL_CHARS]))

    def cut(self, fault: Fault) -> None:
        """Give the answer up."""
        if self.call:
            self.call.cancel()
        self._status = 0
        self.finish(fault)

    def finish(self, fault: Fault | None) -> None:
        """Record it; `fault` says why it is no success."""
        self._ended = True
        tokens, planned = self._answer.tokens, self._planned
        in_vain = fault is not None and 200 <= self._status < 300
        self._load.ended(
            LoadRecord(
                request_id=self._number,
                tenant=planned.tenant,
                priority="",
                pool=self._load.target.model,
                attempts=0 if self.sent_at is None else 1,
                arrived_at=self._due_at,
                dispatched_at=self.sent_at,
                first_token_at=self._answer.first_token_at,
                ended_at=monotonic(),
                prompt_tokens=tokens.prompt or planned.prompt_tokens,
                output_tokens=tokens.output,
                cached_tokens=tokens.cached,
                reason=_REASONS.get(fault.code) if fault else None,
                status=0 if in_vain else self._status,
                asked_tokens=planned.output_tokens,
                error=fault.kind if fault else "",
                detail=fault.detail if fault else "",
            )
        )


async def _until(at: float) -> None:
    """Return at that instant or soon after, never before: latency counts from there."""
    # uvloop's timers may be early by a millisecond, hence a loop.
    while (wait_s := at - monotonic()) > 0:  # noqa: ASYNC110 - for a time, not for a condition
        await asyncio.sleep(wait_s + TIMER_ROUNDING_S)


_REASONS = {reason.value: reason for reason in Reason}
