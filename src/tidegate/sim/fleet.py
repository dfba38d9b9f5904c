"""What happens at the far end of the wire: replicas, their work, and how they are found when probed?

A `Node` is a replica as it really is; what the gateway believes of it is the governor's. News takes
`delay_s` either way: the fleet puts it on the agenda, and the gateway hears it then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random

from tidegate.core.messages import Event, FailureKind, Probed, ReplicaSeen
from tidegate.sim.agenda import Agenda
from tidegate.sim.disaggregated import Engine
from tidegate.sim.happening import FINISHED, Happening
from tidegate.sim.network import Network
from tidegate.sim.sequence import Sequence


class Attempt:
    """One try of a request at one replica, at both ends of the wire."""

    __slots__ = ("closed", "committed", "node", "number", "open", "request_id", "sequence", "streams")

    def __init__(
        self, request_id: int, number: int, node: Node, sequence: Sequence, *, streams: bool
    ) -> None:
        self.request_id = request_id
        self.number = number
        self.node = node
        self.sequence = sequence
        self.streams = streams
        self.open = True  # the gateway still listens
        self.committed = False  # a part of its answer has reached the client
        self.closed = False  # the node knows that the gateway does not listen any more


@dataclass(slots=True, eq=False)
class Node:
    """A replica, and the gateway's connections to it."""

    name: str
    engine: Engine
    rng: Random
    """Its own dice: which requests a partial failure strikes."""
    way: Random
    """Other dice: how long requests take to it."""
    up: bool = False
    errors: list[tuple[float, int]] = field(default_factory=list)
    """Shares of the requests that fail at present, and with which status."""
    attempts: dict[int, Attempt] = field(default_factory=dict)
    """What its engine holds, by the id of the sequence."""
    armed_at: float = inf
    """When its engine is next heard; another entry of the agenda is an old one."""
    open_attempts: int = 0
    """At the gateway's end."""
    known: bool = False
    """The gateway has asked for its size since it last failed a probe."""
    leaving: bool = False
    """To be removed once it is idle."""
    gone: bool = False


@dataclass(slots=True, eq=False)
class Fleet:
    """All nodes. What they tell is heard by the four callables, which are given the instant first."""

    agenda: Agenda
    network: Network
    nodes: dict[str, Node]
    on_happenings: Callable[[float, list[tuple[Attempt, Happening]]], None]
    """A part of an answer, or all of it."""
    on_status: Callable[[float, tuple[Attempt, int]], None]
    """Another answer than the one asked for: its status."""
    on_broken: Callable[[float, tuple[Attempt, FailureKind]], None]
    on_event: Callable[[float, Event], None]
    """What a probe has found."""

    # -- the gateway's end ------------------------------------------------------------------------

    def send(self, now: float, attempt: Attempt) -> None:
        """A request leaves for its node."""
        node, network = attempt.node, self.network
        node.open_attempts += 1
        at = now + network.delay_s
        if network.jitter_s:
            at += node.way.expovariate(1 / network.jitter_s)
        self.agenda.at(at, self._receive, attempt)

    def stop(self, now: float, attempt: Attempt) -> int:
        """The connection is closed at this end; output tokens that the engine has said by now."""
        said = attempt.node.engine.tokens_at(attempt.sequence, now)
        self.agenda.at(now + self.network.delay_s, self._cancel, attempt)
        return said

    def probe(self, now: float, name: str) -> None:
        """Ask for health; what is found is told once it is known, as the gateway's prober does."""
        self.agenda.at(now + self.network.delay_s, self._asked_for_health, self.nodes[name])

    # -- a node's end -----------------------------------------------------------------------------

    def _receive(self, now: float, attempt: Attempt) -> None:
        node, back_at = attempt.node, now + self.network.delay_s
        if attempt.closed:
            return  # the gateway hung up before all of the request was here
        if not node.up:
            self.agenda.at(back_at, self.on_broken, (attempt, FailureKind.CONNECT))
        elif node.errors and (status := self._struck(node)):
            self.agenda.at(back_at, self.on_status, (attempt, status))
        elif node.engine.submit(now, attempt.sequence) is None:
            node.attempts[attempt.sequence.id] = attempt
            self.arm(node)
        else:  # it can never be served: an engine says so at once
            self.agenda.at(back_at, self.on_status, (attempt, 400))

    @staticmethod
    def _struck(node: Node) -> int:
        """The status with which a partial failure answers; 0 if it spares the request."""
        return next((status for share, status in node.errors if node.rng.random() < share), 0)

    def _cancel(self, now: float, attempt: Attempt) -> None:
        node = attempt.node
        attempt.closed = True
        if node.attempts.pop(attempt.sequence.id, None) is not None:
            node.engine.cancel(now, attempt.sequence)
            self.arm(node)

    def arm(self, node: Node) -> None:
        """Have its engine heard when what it says next has come over the wire: nobody needs it before."""
        agenda, next_at = self.agenda, node.engine.next_at()
        if next_at <= agenda.now:  # time has passed for it: what it said meanwhile is on the wire
            self._send_news(agenda.now, node)
            next_at = node.engine.next_at()
        heard_at = next_at + self.network.delay_s
        if heard_at != node.armed_at:
            node.armed_at = heard_at
            agenda.at(heard_at, self._hear, node)

    def _hear(self, now: float, node: Node) -> None:
        if now == node.armed_at:  # else it was armed for another instant since
            news = self._news(now, node)
            self.arm(node)
            if news:
                self.on_happenings(now, news)

    def _news(self, now: float, node: Node) -> list[tuple[Attempt, Happening]]:
        """What has come over the wire by now. What has happened since then comes later."""
        arrived: list[tuple[Attempt, Happening]] = []
        news, later_at = arrived, now
        node.armed_at = inf
        attempts, delay_s = node.attempts, self.network.delay_s
        for happening in node.engine.advance(now):
            if happening.kind == FINISHED:
                attempt = attempts.pop(happening.sequence.id, None)
            else:
                attempt = attempts.get(happening.sequence.id)
            if attempt is None:
                continue  # the gateway has hung up
            heard_at = happening.at + delay_s
            if heard_at != later_at:
                later_at, news = heard_at, []
                self.agenda.at(heard_at, self.on_happenings, news)
            news.append((attempt, happening))
        return arrived

    def _send_news(self, now: float, node: Node) -> None:
        arrived = self._news(now, node)
        if arrived:
            self.agenda.at(now, self.on_happenings, arrived)

    def lose(self, now: float, node: Node) -> None:
        """All its work is lost, and the connections break. What it had said is on the wire."""
        self._send_news(now, node)
        node.engine.clear(now)
        for attempt in node.attempts.values():
            self.agenda.at(now + self.network.delay_s, self.on_broken, (attempt, FailureKind.RESET))
        node.attempts.clear()

    # -- probes: health first, then what it is, then how loaded it is ------------------------------------

    def _asked_for_health(self, now: float, node: Node) -> None:
        back_at = now + self.network.delay_s
        if node.up:
            self.agenda.at(back_at, self._healthy, node)
        else:
            node.known = False
            self.agenda.at(back_at, self.on_event, Probed(replica=node.name, ok=False))

    def _healthy(self, now: float, node: Node) -> None:
        if node.known:
            self._scrape(now, node)
        else:
            self.agenda.at(now + 2 * self.network.delay_s, self._discovered, node)

    def _discovered(self, now: float, node: Node) -> None:
        node.known = True
        self.on_event(now, ReplicaSeen(replica=node.name, context_tokens=node.engine.settings.context_tokens))
        self._scrape(now, node)

    def _scrape(self, now: float, node: Node) -> None:
        self.agenda.at(now + self.network.delay_s, self._asked_for_load, (node, node.open_attempts))

    def _asked_for_load(self, now: float, asked: tuple[Node, int]) -> None:
        node, before = asked
        back_at = now + self.network.delay_s
        if node.up:
            engine = node.engine
            engine.let_pass(now)
            seen = ReplicaSeen(
                replica=node.name,
                running=engine.running,
                waiting=engine.waiting,
                kv_used_ratio=engine.kv_used_ratio,
                kv_capacity_tokens=engine.settings.kv_tokens,
                in_flight_before=before,
            )
            back_at += self.network.scrape_delay_s
            self.agenda.at(back_at, self.on_event, seen)
        self.agenda.at(back_at, self.on_event, Probed(replica=node.name, ok=True))
