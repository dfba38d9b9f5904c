"""Who tells the governor what happens, and does what it says? This, on the agenda.

The same part as `gateway.driver`, with the same rules: one event at a time, commands in their order, each
attempt reported to its one end. Requests that still live are its `flights`; whoever asked for one is told of
its end by `on_end`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from math import inf

from tidegate.core.messages import (
    Abort,
    Arrived,
    Cancelled,
    Command,
    Dispatch,
    Event,
    Evict,
    Failed,
    FailureKind,
    Finished,
    FirstToken,
    Probe,
    Progressed,
    Reject,
    ReplicaRemoved,
    Truncate,
    failure_of,
)
from tidegate.core.reasons import ANSWERS, Reason
from tidegate.core.records import RequestRecord
from tidegate.core.request import Request, Usage
from tidegate.policy.contract import Policy
from tidegate.policy.governor import RETRY_AFTER_MIN_S
from tidegate.sim.agenda import Agenda
from tidegate.sim.clients import Refusal
from tidegate.sim.counts import Counts
from tidegate.sim.fleet import Attempt, Fleet, Node
from tidegate.sim.happening import FINISHED, FIRST_TOKEN, PROGRESS, Happening
from tidegate.sim.network import Network
from tidegate.sim.sequence import Sequence
from tidegate.workload.requests import PlannedRequest

BLOCK_TOKENS = 16
"""Where a prompt has no prefix, any number of tokens will do."""


class Flight:
    """A request of a client that the governor has been told of and that has not ended."""

    __slots__ = ("attempt", "first_token", "planned", "rank", "retries")

    def __init__(self, planned: PlannedRequest, retries: int, rank: int) -> None:
        self.planned = planned
        self.retries = retries
        self.rank = rank  # of its class; 0 is the highest
        self.attempt: Attempt | None = None
        self.first_token = False


class Driver:
    """The governor's event loop in simulated time."""

    def __init__(
        self,
        policy: Policy,
        agenda: Agenda,
        network: Network,
        nodes: dict[str, Node],
        on_record: Callable[[RequestRecord], None],
    ) -> None:
        self.policy = policy
        self.on_record = on_record
        self.counts = Counts()
        self.flights: dict[int, Flight] = {}
        self.on_end: Callable[[float, Flight, Refusal | None], None]
        """Told of each request's end: None for an answer."""
        self.fleet = Fleet(
            agenda, network, nodes, self._on_happenings, self._on_status, self._on_broken, self.tell
        )
        self._agenda = agenda
        self._sequences = count(1)
        self._pending: list[Event] = []
        self._wake_at = inf

    # -- the governor -----------------------------------------------------------------------------

    def tell(self, now: float, event: Event) -> None:
        """Something happened."""
        policy = self.policy
        commands = policy.handle(event, now)
        if commands:  # mostly there are none
            self._obey(now, commands)
        if policy.ended:
            self._take_records()
        wake_at = policy.next_wakeup()
        if wake_at < self._wake_at:
            self._arm(wake_at)

    def _wake(self, now: float, _: None) -> None:
        if now == self._wake_at:  # else it was armed for an earlier instant since
            self._wake_at = inf
            self._obey(now, self.policy.on_wakeup(now))
            self._take_records()
            self._arm(self.policy.next_wakeup())

    def _arm(self, wake_at: float) -> None:
        self._wake_at = wake_at
        self._agenda.at(wake_at, self._wake, None)

    def _take_records(self) -> None:
        for record in self.policy.take_ended():
            self.on_record(record)

    def _obey(self, now: float, commands: list[Command]) -> None:
        pending = self._pending
        for command in commands:
            self._carry_out(now, command)
        while pending:
            for command in self.policy.handle(pending.pop(0), now):
                self._carry_out(now, command)

    def _carry_out(self, now: float, command: Command) -> None:
        if isinstance(command, Probe):
            self.fleet.probe(now, command.replica)
        elif (flight := self.flights.get(command.request_id)) is None:
            pass  # it has ended by an event that waits, or by one that let this deadline pass first
        elif isinstance(command, Dispatch):
            self._dispatch(now, flight, command)
        elif isinstance(command, Truncate):
            said = self._stop(now, flight)
            self.counts.finished += 1
            del self.flights[command.request_id]
            self.on_end(now, flight, None)
            self._pending.append(Finished(command.request_id, command.attempt, output_tokens=said))
        elif isinstance(command, Abort):
            self._stop(now, flight)
        else:
            self._refuse(now, flight, command)

    # -- requests ---------------------------------------------------------------------------------

    def arrive(self, now: float, flight: Flight, request: Request) -> None:
        """A client's request has reached the gateway."""
        self.counts.arrived += 1
        self.flights[request.request_id] = flight
        self.tell(now, Arrived(request=request))

    def leave(self, now: float, request_id: int) -> None:
        """Its client leaves: the engine is stopped at once, then the governor is told."""
        flight = self.flights.pop(request_id)
        said = self._stop(now, flight)
        self.counts.cancelled += 1
        self.tell(now, Cancelled(request_id=request_id, output_tokens=said))

    def _dispatch(self, now: float, flight: Flight, command: Dispatch) -> None:
        planned, bound = flight.planned, command.max_tokens
        output_tokens = planned.output_tokens
        if planned.max_tokens is not None and planned.max_tokens < output_tokens:
            output_tokens = planned.max_tokens
        if bound is not None and bound < output_tokens:
            output_tokens = bound
        sequence = Sequence(
            next(self._sequences),
            planned.prompt_tokens,
            output_tokens,
            max_tokens=max(output_tokens, bound or planned.max_tokens or 0),
            priority=flight.rank,
            mark=command.progress_from_tokens,
            prefix=planned.prefix,
            prefix_block_tokens=planned.prefix_block_tokens or BLOCK_TOKENS,
        )
        node = self.fleet.nodes[command.replica]
        flight.attempt = Attempt(command.request_id, command.attempt, node, sequence, streams=planned.streams)
        self.fleet.send(now, flight.attempt)

    def _refuse(self, now: float, flight: Flight, command: Reject | Evict) -> None:
        self._stop(now, flight)
        del self.flights[command.request_id]
        if isinstance(command, Reject):
            self.counts.rejected += 1
        else:
            self.counts.evicted += 1
        answer = ANSWERS[command.reason]
        wait_s = (command.retry_after_s or RETRY_AFTER_MIN_S) if answer.retryable else None
        again = answer.retryable and not (isinstance(command, Evict) and command.final)
        self.on_end(now, flight, Refusal(answer.status, again, wait_s))

    def _stop(self, now: float, flight: Flight) -> int:
        """Close the engine's connection, if there is one; output tokens that it has said."""
        attempt, flight.attempt = flight.attempt, None
        if attempt is None or not attempt.open:
            return 0
        self._close(now, attempt)
        return self.fleet.stop(now, attempt)

    def _close(self, now: float, attempt: Attempt) -> None:
        """Nothing that this attempt still says is heard."""
        attempt.open = False
        node = attempt.node
        node.open_attempts -= 1
        if node.leaving and not node.open_attempts:
            self._agenda.at(now, self.remove, node)

    # -- what engines say ---------------------------------------------------------------------------

    def _on_happenings(self, now: float, news: list[tuple[Attempt, Happening]]) -> None:
        for attempt, happening in news:
            kind = happening.kind
            # Of an answer that is not streamed the gateway sees nothing before its end.
            if not attempt.open or not (attempt.streams or kind == FINISHED):
                continue
            if kind == PROGRESS:
                self.tell(now, Progressed(attempt.request_id, attempt.number, happening.output_tokens))
            elif kind == FIRST_TOKEN:
                attempt.committed = True
                self.flights[attempt.request_id].first_token = True
                self.tell(now, FirstToken(attempt.request_id, attempt.number))
            else:
                self._on_finished(now, attempt, happening.output_tokens)

    def _on_finished(self, now: float, attempt: Attempt, output_tokens: int) -> None:
        self._close(now, attempt)
        sequence = attempt.sequence
        usage = Usage(
            prompt_tokens=sequence.prompt_tokens,
            output_tokens=output_tokens,
            cached_tokens=sequence.cached_tokens,
        )
        self._finish(now, Finished(attempt.request_id, attempt.number, 200, usage, output_tokens))

    def _finish(self, now: float, event: Finished) -> None:
        """An answer is complete, of whatever status; the client has it."""
        self.counts.finished += 1
        flight = self.flights.pop(event.request_id)
        self.tell(now, event)
        self.on_end(now, flight, None if event.status < 400 else Refusal(event.status))

    def _on_status(self, now: float, news: tuple[Attempt, int]) -> None:
        attempt, status = news
        if not attempt.open:
            return
        if (kind := failure_of(status)) is None:
            self._close(now, attempt)
            self._finish(now, Finished(attempt.request_id, attempt.number, status))
        else:
            self._fail(now, attempt, kind, status)

    def _on_broken(self, now: float, news: tuple[Attempt, FailureKind]) -> None:
        attempt, kind = news
        if attempt.open:
            self._fail(now, attempt, kind, 0)

    def _fail(self, now: float, attempt: Attempt, kind: FailureKind, status: int) -> None:
        """An attempt has failed. Whether another follows is the governor's to say, unless a part is out."""
        self._close(now, attempt)
        request_id = attempt.request_id
        flight = self.flights[request_id]
        flight.attempt = None
        failed = Failed(
            request_id, attempt.number, kind, attempt.committed, status, attempt.sequence.produced
        )
        if not attempt.committed:
            self.tell(now, failed)
            return
        self.counts.broken += 1
        del self.flights[request_id]
        self.tell(now, failed)
        self.on_end(now, flight, Refusal(ANSWERS[Reason.UPSTREAM_ERROR].status, retryable=False))

    # -- replicas ---------------------------------------------------------------------------------

    def remove(self, now: float, node: Node) -> None:
        """A replica is gone for good, with what still runs there."""
        if not node.gone:
            node.gone = True
            node.up = node.leaving = False
            self.fleet.lose(now, node)
            self.tell(now, ReplicaRemoved(replica=node.name))

    def close(self) -> Counts:
        """The run is over: the counts, which are whole."""
        counts = self.counts
        counts.in_flight = len(self.flights)
        ended = counts.finished + counts.broken + counts.rejected + counts.evicted + counts.cancelled
        assert counts.arrived == ended + counts.in_flight, f"requests were lost or made: {counts}"
        return counts
