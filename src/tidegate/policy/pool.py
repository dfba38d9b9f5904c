"""One pool, put together: which of its replicas may take a request now, and how hard is it pressed?

Composes the mechanisms for the governor, which alone decides what happens to a request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, inf
from random import Random

from tidegate.core.messages import ReplicaAdded, ReplicaSeen
from tidegate.core.request import Request
from tidegate.policy.affinity import PrefixIndex
from tidegate.policy.black_holes import BlackHoles
from tidegate.policy.breakers import CLOSED, Breaker
from tidegate.policy.degradation import Ladder
from tidegate.policy.prediction import DrainRate, Predictor
from tidegate.policy.queueing import Queue
from tidegate.policy.ranking import Ranking
from tidegate.policy.replicas import Replica
from tidegate.policy.retries import RetryBudget
from tidegate.policy.routing import Router, tokens_load
from tidegate.policy.settings import ClassSettings, GateSettings, PoolSettings, RoutingPolicy

NEAR = 0.9
"""Of the longest match: who was sent that much is as good as who was sent all of it."""


@dataclass(slots=True, eq=False)
class Member:
    """A replica of a pool and the breaker that judges it."""

    pool: Pool
    replica: Replica
    breaker: Breaker
    key: int = 0
    """Its number in the pool, in order of coming."""
    removed: bool = False
    context_tokens: int | None = None  # as its engine tells
    probe_at: float = inf  # when the next one is due; an earlier timer is an old one

    def available(self, now: float) -> bool:
        """In the set: up, not drained, not paused, and its breaker lets it be tried."""
        return self.replica.in_set(now) and (self.breaker.state is CLOSED or self.breaker.admits(now))

    def back_at(self, now: float) -> float:
        """When it may be available again by itself; inf if only an event can do that."""
        breaker_at = self.breaker.next_wakeup()
        return max(self.replica.back_at(now), now if breaker_at == inf else breaker_at)

    def changes_at(self, now: float) -> float:
        """When it may take more although nothing happens: a pause ends, or a scrape grows stale; else inf."""
        replica, back_at = self.replica, self.back_at(now)
        when = back_at if back_at > now else inf
        if replica.others and (stale_at := replica.seen_at + replica.stale_after_s) > now:
            when = min(when, stale_at)
        return when

    def state(self, now: float) -> str:
        """One word for status and metrics."""
        if self.replica.draining:
            return "draining"
        if not self.replica.up:
            return "down"
        if self.breaker.state is not CLOSED:
            return self.breaker.state_at(now).value
        return "busy" if now < self.replica.closed_until else "up"


@dataclass(slots=True, eq=False)
class Pool:
    """The replicas of one model and everything that is decided for them together."""

    name: str
    settings: PoolSettings
    queue: Queue
    predictor: Predictor
    retries: RetryBudget
    ladder: Ladder
    router: Router
    drain: DrainRate
    _by_tokens: bool | None = None
    """Whether the least loaded is who holds the least tokens, else requests; None: that alone decides not."""
    prefixes: PrefixIndex | None = None
    """Where prompts decide."""
    black_holes: BlackHoles = field(default_factory=BlackHoles)
    members: dict[str, Member] = field(default_factory=dict)
    retrying: list[object] = field(default_factory=list)  # calls between two attempts, oldest first
    context_seen: int | None = None
    largest_kv: float = inf
    """KV tokens of its largest replica; inf where that is unknown."""
    most_tokens: float = inf
    """No request of more can be served: its context, or what its largest replica holds."""
    wake_at: float = inf  # a timer is set for it
    _replicas: list[Replica] = field(default_factory=list)
    _joined: int = 0
    _by_key: dict[int, Member] = field(default_factory=dict)
    _ranking: Ranking[Member] = field(default_factory=Ranking)
    """Who may have room, by load; kept up with `_stirred` when it is asked."""
    _stirred: list[Replica] = field(default_factory=list)
    _lightest: float = 1.0  # weight
    _changing: dict[int, Member] = field(default_factory=dict)
    """Those, by key, whose standing may change by the mere passing of time."""
    _last_available: Member | None = None

    @classmethod
    def of(cls, name: str, settings: PoolSettings, classes: dict[str, ClassSettings]) -> Pool:
        """A pool with no replicas yet."""
        router = Router(settings.routing)
        return cls(
            name=name,
            settings=settings,
            queue=Queue.of(settings.queue, classes),
            predictor=Predictor.of(settings.prediction),
            retries=RetryBudget(settings.retry),
            ladder=Ladder(settings.degradation),
            router=router,
            drain=DrainRate(),
            _by_tokens=router.by_tokens(),
            prefixes=PrefixIndex() if settings.routing.policy is RoutingPolicy.PREFIX_AFFINITY else None,
            most_tokens=settings.context_tokens or inf,
        )

    @property
    def context_tokens(self) -> int | None:
        """Longest prompt plus output, as configured or as the engines tell; None: unknown."""
        return self.settings.context_tokens or self.context_seen

    # -- members ----------------------------------------------------------------------------------

    def add(self, event: ReplicaAdded, now: float) -> Member:
        """A replica joins. One of the same name takes over from the old one."""
        gate = self.settings.gate
        gate = GateSettings(
            max_concurrency=gate.max_concurrency if event.max_concurrency is None else event.max_concurrency,
            kv_tokens=gate.kv_tokens if event.kv_capacity_tokens is None else event.kv_capacity_tokens,
            max_prefill_tokens=(
                gate.max_prefill_tokens if event.max_prefill_tokens is None else event.max_prefill_tokens
            ),
        )
        replica = Replica(
            event.replica, gate, self.settings.health, event.weight, since=now, stirred=self._stirred
        )
        self._joined += 1
        member = Member(self, replica, Breaker(self.settings.breaker), self._joined)
        self.members[event.replica] = self._by_key[member.key] = member
        self._count()
        return member

    def remove(self, name: str) -> None:
        """A replica leaves; what still runs there keeps its hold until it ends."""
        member = self.members.pop(name)
        member.removed = True
        self._by_key.pop(member.key, None)
        self.on_cache_lost(member)
        self._ranking.drop(member.key)
        self._changing.pop(member.key, None)
        self._count()

    def on_seen(self, member: Member, event: ReplicaSeen, now: float) -> None:
        """A scrape of one of them."""
        replica = member.replica
        before = replica.kv_limit, member.context_tokens
        replica.on_seen(now, event)
        if event.context_tokens is not None:
            member.context_tokens = event.context_tokens
        if (replica.kv_limit, member.context_tokens) != before:
            self._count()
        if replica.others:
            self.look_again_at(member)

    def _count(self) -> None:
        self._replicas = [each.replica for each in self.members.values()]
        told = [each.context_tokens for each in self.members.values() if each.context_tokens is not None]
        self.context_seen = min(told, default=None)  # whichever is chosen, the request must fit there
        self.largest_kv = max((each.kv_limit for each in self._replicas), default=inf)
        self.most_tokens = min(self.context_tokens or inf, self.largest_kv)
        self._lightest = min((each.weight for each in self._replicas), default=1.0)

    def may_open_breaker(self) -> bool:
        """Whether one more breaker may open: never more than the configured share, though always one."""
        # Half open counts: its trial may fail, and then it is open again whatever the others are.
        out = sum(each.breaker.state is not CLOSED for each in self.members.values())
        return out + 1 <= max(1.0, self.settings.health.max_ejected_share * len(self.members))

    # -- choosing ---------------------------------------------------------------------------------

    def choose(
        self,
        now: float,
        rng: Random,
        kv_tokens: float,
        prefill_tokens: float,
        request: Request,
        tried: tuple[str, ...],
    ) -> Member | None:
        """The replica for a request of that size, among those with room and not yet tried."""

        def fits(member: Member) -> bool:
            replica = member.replica
            return (
                member.available(now)
                and replica.has_room(now, kv_tokens, prefill_tokens)
                and not (tried and replica.name in tried)
            )

        if self._by_tokens is not None:
            least = self._least_loaded(fits, kv_tokens, rng)
            if self.prefixes is not None and least is not None and request.prefix:
                return self._nearest(self.prefixes, request.prefix, least, fits, rng)
            return least
        candidates = [member.replica for member in self.members.values() if fits(member)]
        if not candidates:
            return None
        return self.members[self.router.pick(candidates, self._replicas, request.affinity, rng).name]

    def _least_loaded(self, fits: Callable[[Member], bool], kv_tokens: float, rng: Random) -> Member | None:
        """Found without looking at all of them."""
        for replica in self._stirred:
            replica.is_stirred = False
            member = self.members.get(replica.name)
            if member is None or member.replica is not replica:
                continue  # it has left
            if replica.may_have_room():
                held = replica.kv_held if self._by_tokens else replica.in_flight
                self._ranking.place(member.key, member, held / replica.weight)
            else:
                self._ranking.drop(member.key)
        self._stirred.clear()
        most = inf
        if self._by_tokens:
            # Who holds more than this has no KV left for the request; a token more or less is rounding.
            most = max(0.0, self.largest_kv - kv_tokens + 1.0) / self._lightest
        return self._ranking.least(fits, most, rng)

    def _nearest(
        self,
        prefixes: PrefixIndex,
        prefix: tuple[int, ...],
        least: Member,
        fits: Callable[[Member], bool],
        rng: Random,
    ) -> Member:
        """Of those who were sent most of a prompt the least loaded, unless it is loaded too much.

        Then whoever was sent less of it and is not; and if there is none, `least` of all.
        """
        routing = self.settings.routing
        bits = prefixes.match(prefix)
        enough = max(1, ceil(routing.match_ratio * len(prefix)))
        if len(bits) < enough or rng.random() < routing.explore_share:
            return least
        load = tokens_load(least.replica)
        most = max(load * routing.leave_ratio, load + routing.leave_tokens)
        depth = max(enough, ceil(NEAR * len(bits)))
        while depth >= enough:
            holders = bits[depth - 1]
            if prefixes.holds(holders, least.key):
                return least
            found = self._least_among(prefixes, holders, fits, most, rng)
            if found is not None:
                return found
            depth //= 2
        return least

    def _least_among(
        self,
        prefixes: PrefixIndex,
        holders: int,
        fits: Callable[[Member], bool],
        most: float,
        rng: Random,
    ) -> Member | None:
        """The least loaded of a few; of many, whoever comes first in order of load."""
        if holders.bit_count() ** 2 > len(self.members):
            return self._ranking.least(
                lambda member: prefixes.holds(holders, member.key) and fits(member), most, rng
            )
        best: list[Member] = []
        for key in prefixes.keys(holders):
            member = self._by_key[key]
            load = tokens_load(member.replica)
            if load <= most and fits(member):
                if load < most:
                    best.clear()
                best.append(member)
                most = load
        return best[int(rng.random() * len(best))] if best else None

    def on_sent(self, member: Member, request: Request) -> None:
        """A request goes to a replica: its prompt will be in the cache there."""
        if self.prefixes is not None and request.prefix:
            most = float(self.settings.routing.index_blocks)
            if request.prefix_block_tokens > 0:
                most = min(most, member.replica.kv_limit / request.prefix_block_tokens)
            self.prefixes.sent(member.key, request.prefix, int(most))

    def on_cache_lost(self, member: Member) -> None:
        """A replica has left or gone down: if it comes back, then with an empty cache."""
        if self.prefixes is not None:
            self.prefixes.forget(member.key)

    def any_available(self, now: float) -> bool:
        """Whether some replica is in the set, with room or without."""
        last = self._last_available
        if last is not None and not last.removed and last.available(now):
            return True
        for member in self.members.values():
            if member.available(now):
                self._last_available = member
                return True
        return False

    def back_at(self, now: float) -> float:
        """The earliest instant at which some replica may be in the set; inf if only an event can do that."""
        if self.any_available(now):
            return now
        return min((member.back_at(now) for member in self.members.values()), default=inf)

    # -- pressure ---------------------------------------------------------------------------------

    def pressure(self) -> float:
        """How near the queue is to refusing, 0..1: by its bounds, and by its wait against the longest."""
        queue, bounds = self.queue, self.queue.settings
        if not queue.requests:
            return 0.0
        longest_wait_s = max(lane.settings.max_wait_s for lane in queue.lanes)
        return min(
            1.0,
            max(
                queue.requests / bounds.max_requests,
                queue.tokens / bounds.max_tokens,
                queue.body_bytes / bounds.max_bytes,
                self.drain.wait_s(queue.tokens) / longest_wait_s,
            ),
        )

    def press(self, now: float) -> None:
        """Let the pressure of this moment move the ladder."""
        if self.ladder.steps:
            self.ladder.on_pressure(now, self.pressure())

    def book(self, now: float, rng: Random, tokens: float) -> float:
        """Seconds after which a refused request of that size should come back: its own place in the drain."""
        return self.drain.book(now, self.queue.tokens, tokens) * (1.0 + 0.1 * rng.random())

    def recheck_at(self, now: float) -> float:
        """When to look at the queue again although nothing happens: a pause ends, or a scrape grows stale."""
        when = self.ladder.next_wakeup()
        for member in list(self._changing.values()):
            changes_at = member.changes_at(now)
            if changes_at < inf:
                when = min(when, changes_at)
            else:
                del self._changing[member.key]
        return when

    def look_again_at(self, member: Member) -> None:
        """Something has happened to it whose effect may pass with time."""
        self._changing[member.key] = member
