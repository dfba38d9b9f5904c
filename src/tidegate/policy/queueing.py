"""Queue of one pool: who waits, who goes next, and who must leave when there is no room?

Bounded in requests, tokens and bytes; a class bounds its age too. Between classes: strict priority,
except that a class which has not had its guaranteed share goes first. Between the tenants of a class:
start-time fair queueing by tokens. Within a tenant: earliest deadline, then arrival.

Start-time fair queueing: an item of cost c begins at S = max(V, F of its flow), where V is the start of
what was last dispatched; the flow then finishes at F = S + c / weight; the smallest start goes next. A
flow that was idle starts at V: it earns no credit for having been away, and what it still owes (F > V)
stays owed until nothing of the class waits or runs: V is then the last finish of all. Costs are estimates at
dispatch and are corrected when the truth is known. A flow that neither waits nor runs nor owes anything is
like one that never was, and is forgotten.

Source: Goyal, Vin and Cheng, "Start-time fair queueing" (SIGCOMM 1996); tokens as the unit of service
for LLMs: Sheng et al., "Fairness in serving large language models" (OSDI 2024).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from typing import Final

from tidegate.policy.settings import ClassSettings, QueueSettings

FLOWS_KEPT: Final = 64
"""Up to so many of a lane are kept whatever they are."""


class Waiting:
    """A queued request, as little of it as the queue needs. `item` is its owner's."""

    __slots__ = ("body_bytes", "cost", "deadline_at", "flow", "item", "queued", "seq")

    def __init__(
        self, item: object, *, seq: int, cost: float, body_bytes: int, deadline_at: float, flow: Flow
    ) -> None:
        self.queued: bool = False
        self.item = item
        self.seq = seq
        self.cost = cost  # tokens
        self.body_bytes = body_bytes
        self.deadline_at = deadline_at
        self.flow = flow


@dataclass(slots=True, eq=False)
class Flow:
    """One tenant's requests in one class, and how far its service has come in virtual time."""

    tenant: str
    lane: Lane
    weight: float = 1.0
    finish: float = 0.0  # virtual time at which its service so far is paid for
    entries: dict[int, Waiting] = field(default_factory=dict)  # by seq: oldest first, newest last
    order: list[tuple[float, int, Waiting]] = field(default_factory=list)  # by deadline; may hold the gone
    tokens: float = 0.0
    start: float = inf  # virtual start of its head while it has one
    ranked: int = 0  # seq of the place in the lane's backlog that counts; any other is outdated
    running: int = 0  # dispatched and not settled: their costs may still be corrected
    forgotten: bool = False  # whoever kept it must ask for the tenant's flow again

    @property
    def held(self) -> float:
        """Tokens that wait, per weight."""
        return self.tokens / self.weight

    def debt(self) -> float:
        """Tokens that its class has yet to send before it is level with the class again."""
        return max(0.0, self.finish - self.lane.clock) * self.lane.weight

    def head(self) -> Waiting:
        """The request of this flow that goes next."""
        while not self.order[0][2].queued:
            heappop(self.order)
        return self.order[0][2]


@dataclass(slots=True, eq=False)
class Lane:
    """One class: its flows, its virtual clock and its guaranteed share."""

    name: str
    rank: int  # 0 is the highest priority
    settings: ClassSettings
    flows: dict[str, Flow] = field(default_factory=dict)
    backlog: list[tuple[float, int, Flow]] = field(default_factory=list)  # by start; may hold the outdated
    holders: list[tuple[float, int, Flow]] = field(default_factory=list)  # most held first; the same
    requests: int = 0
    tokens: float = 0.0
    weight: float = 0.0  # of the flows that wait
    clock: float = 0.0  # V
    furthest: float = 0.0  # no flow's finish was ever beyond
    running: int = 0  # dispatched and not settled
    credit: float = 0.0  # tokens that its guarantee is owed
    sweep_at: int = FLOWS_KEPT  # flows, at which those that need not be remembered go

    def next_flow(self) -> Flow:
        """The flow with the smallest virtual start."""
        while True:
            start, seq, flow = self.backlog[0]
            if flow.start == start and flow.ranked == seq:
                return flow
            heappop(self.backlog)

    def forget(self) -> None:
        """Drop the flows of which nothing need be known: new ones would be treated alike."""
        for flow in list(self.flows.values()):
            if not flow.entries and not flow.running and flow.finish <= self.clock:
                flow.forgotten = True
                del self.flows[flow.tenant]
        self.sweep_at = max(FLOWS_KEPT, 2 * len(self.flows))

    def rank_holder(self, flow: Flow) -> None:
        """What a flow holds has changed, and it still holds something."""
        heappush(self.holders, (-flow.held, flow.head().seq, flow))
        if len(self.holders) > 64 and len(self.holders) > 4 * len(self.flows):
            self.holders = [triple for triple in self.holders if triple[2].held == -triple[0]]
            heapify(self.holders)


@dataclass(slots=True)
class Queue:
    """Everything that waits for one pool."""

    settings: QueueSettings
    lanes: list[Lane]  # by rank
    requests: int = 0
    tokens: float = 0.0
    body_bytes: int = 0
    _seq: int = 0

    @classmethod
    def of(cls, settings: QueueSettings, classes: dict[str, ClassSettings]) -> Queue:
        """An empty queue with one lane a class."""
        lanes = [Lane(name, rank, each) for rank, (name, each) in enumerate(classes.items())]
        return cls(settings=settings, lanes=lanes)

    def flow(self, rank: int, tenant: str, weight: float) -> Flow:
        """The flow of a tenant in the class of that rank. It may be kept while it is not `forgotten`."""
        lane = self.lanes[rank]
        flow = lane.flows.get(tenant)
        if flow is None:
            if len(lane.flows) >= lane.sweep_at:
                lane.forget()
            flow = lane.flows[tenant] = Flow(tenant, lane, weight)
        return flow

    # -- coming and going -------------------------------------------------------------------------

    def push(self, item: object, flow: Flow, cost: float, body_bytes: int, deadline_at: float) -> Waiting:
        """Let a request wait. The caller has made room."""
        self._seq += 1
        entry = Waiting(
            item, seq=self._seq, cost=cost, body_bytes=body_bytes, deadline_at=deadline_at, flow=flow
        )
        self._enter(entry)
        return entry

    def remove(self, entry: Waiting) -> None:
        """Take a waiting request out, whatever the reason but dispatch."""
        self._leave(entry)
        flow = entry.flow
        if len(flow.order) > 32 and len(flow.order) > 2 * len(flow.entries):
            flow.order = [triple for triple in flow.order if triple[2].queued]
            heapify(flow.order)

    def take(self, entry: Waiting) -> None:
        """Dispatch a waiting request: charge its flow and keep every class's guarantee."""
        flow, lane, cost = entry.flow, entry.flow.lane, entry.cost
        lane.clock = max(lane.clock, flow.start)
        self._charge(flow, flow.start, cost)
        self._leave(entry)
        if flow.entries:
            self._rank(flow)
        self._accrue(lane, cost)

    def pass_by(self, flow: Flow, cost: float) -> None:
        """Charge a request that is dispatched without having waited. Only while nothing waits."""
        lane = flow.lane
        if flow.finish > lane.clock:
            lane.clock = flow.finish
        self._charge(flow, lane.clock, cost)

    def correct(self, flow: Flow, more: float) -> None:
        """What a flow was charged for turned out to cost `more` tokens (negative: fewer)."""
        lane, finish = flow.lane, flow.finish + more / flow.weight
        flow.finish = finish if finish > 0.0 else 0.0
        if finish > lane.furthest:
            lane.furthest = finish
        if flow.entries:
            self._rank(flow)

    def settle(self, flow: Flow, more: float) -> None:
        """Correct a dispatched request for the last time. Owed exactly once for each."""
        lane = flow.lane
        flow.running -= 1
        lane.running -= 1
        self.correct(flow, more)
        if not (lane.running or lane.requests):
            lane.clock = max(lane.clock, lane.furthest)

    # -- who goes next ----------------------------------------------------------------------------

    def head(self) -> Waiting | None:
        """The request that goes next; None when nothing waits."""
        if not self.requests:
            return None
        first = owed = None
        for lane in self.lanes:
            if not lane.requests:
                continue
            first = first or lane
            if lane.credit > 0 and lane.credit >= lane.next_flow().head().cost:
                owed = lane
                break
        lane_next = owed or first
        assert lane_next is not None
        return lane_next.next_flow().head()

    def ahead_of(self, flow: Flow, cost: float) -> float:
        """Tokens that go before a newcomer of that flow and cost, if all others stay as they are.

        All of the higher classes; of its own, what the others may send while its own waiting work and
        it are served at its weight, which is never more than what waits there. The guaranteed share of
        its class bounds the sum: without that, a high class under full load would have all others
        refused for a wait that they do not have.
        """
        own = flow.lane
        higher = sum(lane.tokens for lane in self.lanes[: own.rank])
        weight = own.weight if flow.entries else own.weight + flow.weight
        before = min(own.tokens, flow.tokens * weight / flow.weight + flow.debt())
        share = own.settings.guaranteed_share
        return min(higher + before, (before + cost) / share) if higher and share > 0 else higher + before

    # -- who must leave ---------------------------------------------------------------------------

    def fits(self, cost: float, body_bytes: int) -> bool:
        """Whether one more request is within every bound. An empty queue takes one of any size."""
        settings = self.settings
        return self.requests < settings.max_requests and (
            not self.requests
            or (
                self.tokens + cost <= settings.max_tokens
                and self.body_bytes + body_bytes <= settings.max_bytes
            )
        )

    def make_room(self, newcomer: Flow, cost: float, body_bytes: int) -> list[Waiting] | None:
        """Whom to displace so that the newcomer fits; None if it may not displace enough.

        Lower classes first; then, in the newcomer's own class, whoever is furthest above its share
        loses its newest, while it stays above what the newcomer's tenant would hold. Nothing is
        removed here: the caller does that once it has decided.
        """
        own, room = newcomer.lane, _Room(self, cost, body_bytes)
        for lane in reversed(self.lanes[own.rank + 1 :]):
            if not lane.settings.protected:
                room.displace(lane, lane.requests - lane.settings.guaranteed_places, -inf)
        room.displace(own, own.requests, (newcomer.tokens + cost) / newcomer.weight)
        return room.victims if room.is_enough() else None

    # -- bookkeeping ------------------------------------------------------------------------------

    def _charge(self, flow: Flow, start: float, cost: float) -> None:
        lane = flow.lane
        flow.finish = finish = start + cost / flow.weight
        if finish > lane.furthest:
            lane.furthest = finish
        flow.running += 1
        lane.running += 1

    def _enter(self, entry: Waiting) -> None:
        flow = entry.flow
        lane = flow.lane
        entry.queued = True
        idle = not flow.entries
        flow.entries[entry.seq] = entry
        heappush(flow.order, (entry.deadline_at, entry.seq, entry))
        if idle:
            lane.weight += flow.weight
            self._rank(flow)
        flow.tokens += entry.cost
        lane.rank_holder(flow)
        lane.requests += 1
        lane.tokens += entry.cost
        self.requests += 1
        self.tokens += entry.cost
        self.body_bytes += entry.body_bytes

    def _leave(self, entry: Waiting) -> None:
        flow = entry.flow
        lane = flow.lane
        entry.queued = False
        del flow.entries[entry.seq]
        if not flow.entries:
            flow.order.clear()
            flow.start = inf
            flow.tokens = 0.0
            lane.weight -= flow.weight
        else:
            flow.tokens -= entry.cost
            lane.rank_holder(flow)
        lane.requests -= 1
        lane.tokens = lane.tokens - entry.cost if lane.requests else 0.0
        if not lane.requests:
            lane.weight = 0.0
            lane.credit = 0.0  # a guarantee is for those who wait, not savings for later
        self.requests -= 1
        self.tokens = self.tokens - entry.cost if self.requests else 0.0
        self.body_bytes -= entry.body_bytes

    def _rank(self, flow: Flow) -> None:
        lane = flow.lane
        flow.start = max(lane.clock, flow.finish)
        flow.ranked = flow.head().seq
        heappush(lane.backlog, (flow.start, flow.ranked, flow))
        if len(lane.backlog) > 64 and len(lane.backlog) > 4 * len(lane.flows):
            lane.backlog = [
                triple
                for triple in lane.backlog
                if triple[2].start == triple[0] and triple[2].ranked == triple[1]
            ]
            heapify(lane.backlog)

    def _accrue(self, served: Lane, cost: float) -> None:
        """Every waiting class earns its share of all that is sent; whose work it was pays for it."""
        for lane in self.lanes:
            if lane.requests:
                earned = cost * lane.settings.guaranteed_share - (cost if lane is served else 0.0)
                lane.credit = max(0.0, lane.credit + earned)

    def check(self) -> None:
        """Assert that the counts are those of the entries."""
        entries = [e for lane in self.lanes for f in lane.flows.values() for e in f.entries.values()]
        assert self.requests == len(entries) == sum(lane.requests for lane in self.lanes)
        assert all(entry.queued for entry in entries)
        assert self.body_bytes == sum(entry.body_bytes for entry in entries)
        tokens = sum(entry.cost for entry in entries)
        assert abs(self.tokens - tokens) <= 1e-6 * max(1.0, tokens)
        for lane in self.lanes:
            waiting = [flow for flow in lane.flows.values() if flow.entries]
            assert all(flow.start >= 0 for flow in waiting)
            assert lane.running == sum(flow.running for flow in lane.flows.values())
            assert all(flow.finish <= lane.furthest and not flow.forgotten for flow in lane.flows.values())
            if waiting:
                assert lane.next_flow().start == min(flow.start for flow in waiting)
            assert {(flow.held, flow.tenant) for flow in waiting} <= {
                (-held, flow.tenant) for held, _, flow in lane.holders
            }


@dataclass(slots=True)
class _Room:
    """What a newcomer needs, and who would have to leave for it."""

    queue: Queue
    cost: float
    body_bytes: int
    victims: list[Waiting] = field(default_factory=list)
    _tokens: float = 0.0
    _bytes: int = 0

    def is_enough(self) -> bool:
        """Whether the newcomer fits once the victims have left."""
        queue, bounds = self.queue, self.queue.settings
        return (
            queue.requests - len(self.victims) < bounds.max_requests
            and queue.tokens - self._tokens + self.cost <= bounds.max_tokens
            and queue.body_bytes - self._bytes + self.body_bytes <= bounds.max_bytes
        )

    def displace(self, lane: Lane, at_most: int, share: float) -> None:
        """While it is not enough: the newest of whichever flow of a lane holds most at that moment.

        Ends after `at_most`, or when the largest flow without its newest would fall below `share`.
        """
        heap, left, newest = lane.holders, dict[Flow, float](), dict[Flow, Iterator[Waiting]]()
        while heap and at_most > 0 and not self.is_enough():
            held, seq, flow = heap[0]
            outdated = -held != left.get(flow, flow.held)
            entry = None if outdated else next(newest.setdefault(flow, reversed(flow.entries.values())), None)
            if entry is None:
                heappop(heap)
                continue
            rest = -held - entry.cost / flow.weight
            if rest < share:
                break
            left[flow] = rest
            heapreplace(heap, (-rest, seq, flow))
            self.victims.append(entry)
            self._tokens += entry.cost
            self._bytes += entry.body_bytes
            at_most -= 1
        for flow in left:  # nobody has left yet
            lane.rank_holder(flow)
