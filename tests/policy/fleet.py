"""How does a governor fare with a driver that is honest, engines that are not, and nobody who spares it?

A discrete-event driver on a virtual clock: every command is carried out as the contract of `core.messages`
says, every attempt comes to an end that the dice choose, and a `Ledger` watches each step. The tape holds
every call that was made, so that it can be replayed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import NamedTuple

import msgspec

from tests.policy.ledger import Ledger
from tidegate.core.messages import (
    Abort,
    Arrived,
    Cancelled,
    Command,
    Dispatch,
    DrainAsked,
    Event,
    Failed,
    FailureKind,
    Finished,
    FirstToken,
    Probe,
    Probed,
    Progressed,
    ReplicaAdded,
    ReplicaRemoved,
    ReplicaSeen,
    ShutdownAsked,
    Truncate,
)
from tidegate.core.request import Request, Usage
from tidegate.policy.breakers import BreakerState
from tidegate.policy.calls import Call
from tidegate.policy.governor import Governor
from tidegate.policy.pool import Pool
from tidegate.policy.settings import (
    BreakerSettings,
    ClampStep,
    ClassSettings,
    Deadlines,
    FallbackStep,
    GateSettings,
    GovernorSettings,
    HealthSettings,
    LimitSettings,
    Metering,
    PoolSettings,
    PredictionSettings,
    QueueSettings,
    RetrySettings,
    RoutingPolicy,
    RoutingSettings,
    ShedStep,
    TenantSettings,
)

EARLY = ("connect", "reset", "server_error", "busy", "denied", "garbage", "stalled")
LATE = ("late reset", "late garbage", "late stalled")
FAULTS = (*EARLY, *LATE, "busy", "refused", "hang", "hang", "hang later", "hang later", "silent")

BOTTOMLESS = LimitSettings(requests_per_minute=0.06, tokens_per_minute=0.06, burst_s=1e9, max_in_flight=40)
"""Refills by a thousandth of a credit a second: what has left it is all that was ever spent."""


class Fate(NamedTuple):
    """A replica dies, or is well again. Nobody is told: probes and connects find it out."""

    replica: str
    alive: bool


class Weather(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is: what comes in, and how much of it goes wrong. Shares are 0..1."""

    seed: int
    arrivals_per_s: float = 6.0
    span_s: float = 60.0
    faults: float = 0.2
    """Share of attempts that do not simply succeed."""
    cancels: float = 0.15
    chaos_s: float = 4.0
    """Mean time between things that happen to replicas."""
    routing: RoutingPolicy = RoutingPolicy.LEAST_TOKENS
    patience_s: float = 4.0
    """Longest wait in the queue."""
    slow_start_s: float = 0.0
    tight: bool = True
    """Queues and gates so small that they are always full."""


def settings_of(weather: Weather) -> GovernorSettings:
    """Two pools, three classes, a tenant with tight limits, one with hard ones, and two that are free."""
    small = weather.tight
    pool = PoolSettings(
        queue=QueueSettings(max_requests=6, max_tokens=4_000) if small else QueueSettings(max_requests=60),
        routing=RoutingSettings(policy=weather.routing),
        gate=GateSettings(max_prefill_tokens=600),
        health=HealthSettings(interval_s=1.0, stale_after_s=3.0, slow_start_s=weather.slow_start_s),
        breaker=BreakerSettings(consecutive_failures=3, open_s=2.0, open_max_s=8.0, half_open_trials=1),
        retry=RetrySettings(max_attempts=4, floor=4.0),
        prediction=PredictionSettings(bytes_per_token=4.0, output_tokens=60.0),
        degradation=(
            ClampStep(above=0.4, below=0.2, max_tokens=40, dwell_s=1.3),
            FallbackStep(above=0.5, below=0.3, pool="small", classes=("low",), dwell_s=1.0),
            ShedStep(above=0.9, below=0.6, classes=("low",), dwell_s=0.7),
        ),
        deadlines=Deadlines(ttft_s=6.0, total_s=14.0),
        context_tokens=4_096,
    )
    wait_s = weather.patience_s
    tight = LimitSettings(requests_per_minute=90, tokens_per_minute=9_000, burst_s=10, max_in_flight=4)
    key = LimitSettings(requests_per_minute=12, burst_s=20)
    return GovernorSettings(
        pools={"large": pool, "small": msgspec.structs.replace(pool, degradation=())},
        classes={
            "high": ClassSettings(max_wait_s=wait_s, protected=True, guaranteed_places=1),
            "middle": ClassSettings(max_wait_s=wait_s, guaranteed_places=1),
            "low": ClassSettings(max_wait_s=wait_s * 1.5, guaranteed_share=0.1),
        },
        tenants={
            "tight": TenantSettings(limits=tight, keys={"k1": key}),
            "hard": TenantSettings(
                weight=2.0,
                pools={"large": LimitSettings(tokens_per_minute=20_000, burst_s=12, metering=Metering.HARD)},
            ),
        },
        limits=BOTTOMLESS,
    )


def _conversation(request_id: int) -> tuple[int, ...]:
    """Blocks of one of five conversations, each longer than the last time; every sixth request has none."""
    which, length = request_id % 6, request_id // 6 % 8
    return tuple(which * 1_000 + number for number in range(length)) if which else ()


@dataclass(slots=True)
class Fleet:
    """One run."""

    weather: Weather
    settings: GovernorSettings
    rng: Random
    governor: Governor
    ledger: Ledger
    now: float = 0.0
    tape: list[tuple[float, Event | None, list[Command]]] = field(default_factory=list)
    alive: dict[str, bool] = field(default_factory=dict)
    _stopped: set[tuple[int, int]] = field(default_factory=set)  # attempts that the driver has let go
    _agenda: list[tuple[float, int, Event | Fate]] = field(default_factory=list)
    _seq: int = 0

    @classmethod
    def of(cls, weather: Weather) -> Fleet:
        """A fleet with five replicas and its arrivals and troubles already on the agenda."""
        settings = settings_of(weather)
        fleet = cls(
            weather,
            settings,
            Random(weather.seed),
            Governor(settings, Random(weather.seed)),
            Ledger(settings),
        )
        for number in range(5):
            fleet._join(0.0, number)
        fleet._plan_arrivals()
        fleet._plan_troubles()
        return fleet

    # -- what is planned --------------------------------------------------------------------------

    def _at(self, when: float, event: Event | Fate) -> None:
        self._seq += 1
        heappush(self._agenda, (when, self._seq, event))

    def _join(self, when: float, number: int) -> None:
        pool = "small" if number % 5 == 4 else "large"
        name = f"{pool}-{number}"
        self.alive.setdefault(name, True)
        self._at(
            when,
            ReplicaAdded(pool=pool, replica=name, max_concurrency=2 + number % 2, kv_capacity_tokens=2_500),
        )

    def _plan_arrivals(self) -> None:
        rng, when = self.rng, 0.1
        for request_id in range(int(self.weather.arrivals_per_s * self.weather.span_s)):
            # In bursts: half of all come at the very same instant as the one before.
            when += rng.choice((0.0, rng.expovariate(self.weather.arrivals_per_s / 2)))
            self._at(when, Arrived(request=self._request(request_id)))
            if rng.random() < self.weather.cancels:
                self._at(when + rng.choice((0.0, rng.random() * 6)), Cancelled(request_id=request_id))

    def _request(self, request_id: int) -> Request:
        rng = self.rng
        return Request(
            request_id=request_id,
            model=rng.choices(("large", "small", "none"), (90, 9, 1))[0],
            tenant=rng.choice(("tight", "hard", "free", "freer", "free")),
            key=rng.choice(("k1", "k2")),
            priority=rng.choice(("high", "middle", "low")),
            prompt_bytes=rng.choices((rng.randrange(40, 2_000), 100_000), (99, 1))[0],
            max_tokens=rng.choice((None, 5, 100, 400)),
            choices=rng.choice((1, 1, 1, 2)),
            generates=rng.random() < 0.95,
            streams=rng.random() < 0.8,
            body_bytes=2_000,
            affinity=rng.choice((None, rng.randrange(8) << 40)),
            timeout_s=rng.choice((None, None, None, 1.5, 5.0)),
            prefix=_conversation(request_id),
            prefix_block_tokens=16.0 * (request_id % 3),
        )

    def _plan_troubles(self) -> None:
        rng, when, joined = self.rng, 0.0, 5
        while when < self.weather.span_s:
            when += rng.expovariate(1 / self.weather.chaos_s)
            name = rng.choice(list(self.alive))
            match rng.randrange(6):
                case 0:
                    self._at(when, DrainAsked(replica=name))
                    self._at(when + rng.random() * 5, DrainAsked(replica=name, drain=False))
                case 1:
                    self._at(when, ReplicaRemoved(replica=name))
                    self._join(when + rng.random() * 3, joined)
                    joined += 1
                case 2:
                    self._at(when, Fate(name, alive=False))
                    self._at(when + 2 + rng.random() * 6, Fate(name, alive=True))
                case _:
                    used, running, waiting = rng.random(), rng.randrange(4), rng.randrange(2)
                    seen = ReplicaSeen(replica=name, running=running, waiting=waiting, kv_used_ratio=used)
                    self._at(when, seen)
                    self._at(when + 0.5, seen)

    # -- the run ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Until the span is over; then shut down, and until everything has ended."""
        self._until(self.weather.span_s)
        self._tell(ShutdownAsked(grace_s=2.0))
        self._until(self.now + 30.0)
        self._balance()

    def _until(self, end: float) -> None:
        while self._agenda or self.governor.next_wakeup() < inf:
            event_at = self._agenda[0][0] if self._agenda else inf
            wake_at = self.governor.next_wakeup()
            if min(event_at, wake_at) > end:
                break
            # A busy driver wakes late: then the deadline passes with the next event.
            late = event_at < wake_at + 0.05 and self.rng.random() < 0.5
            self.now = event_at if late else min(event_at, max(wake_at, self.now))
            if self.governor.next_wakeup() <= self.now:
                self._wake()
            else:
                self._happens(heappop(self._agenda)[2])
        self.now = max(self.now, end)

    def _happens(self, event: Event | Fate) -> None:
        match event:
            case Fate():
                self.alive[event.replica] = event.alive
                return
            case ReplicaAdded() if event.replica in self.governor.members:
                return
            case FirstToken() | Progressed() | Finished() | Failed():
                attempt = (event.request_id, event.attempt)
                if attempt in self._stopped and self.rng.random() < 0.7:
                    return  # mostly it keeps still; what a dead attempt still says must not matter
                if isinstance(event, Finished | Failed):
                    self._stopped.add(attempt)
            case Cancelled() if life := self.ledger.open.get(event.request_id):
                self._stopped.add((event.request_id, life.attempt))
            case _:
                pass
        self._tell(event)

    def _tell(self, event: Event) -> None:
        self.ledger.told(event, self.now)
        self._obey(self.governor.handle(event, self.now), event)

    def _wake(self) -> None:
        self._obey(self.governor.on_wakeup(self.now), None)
        assert self.governor.next_wakeup() > self.now, "what has passed is not due again"

    def _obey(self, commands: list[Command], event: Event | None) -> None:
        self.tape.append((self.now, event, commands))
        for command in commands:
            self.ledger.answered(command, self.now)
            match command:
                case Dispatch():
                    self._attempt(command)
                case Truncate():
                    self._cut(command)
                case Abort():
                    self._stopped.add((command.request_id, command.attempt))
                case Probe():
                    ok = self.alive[command.replica]
                    self._at(self.now + 0.01, Probed(replica=command.replica, ok=ok))
                case _:
                    pass
        self._check()

    def _attempt(self, command: Dispatch) -> None:
        """Decide what will become of an attempt: by the replica's state, else by the dice."""
        rng, who = self.rng, (command.request_id, command.attempt)
        fault = rng.choice(FAULTS) if rng.random() < self.weather.faults else ""
        if not self.alive[command.replica]:
            fault = "connect"
        first_at = self.now + 0.02 + rng.expovariate(2.0)
        if fault in EARLY:
            at = self.now + rng.choice((0.0, 0.001, rng.random()))
            pause_s = rng.choice((None, 0.4, 300.0)) if fault == "busy" else None
            self._at(at, Failed(*who, kind=FailureKind(fault), status=500, retry_after_s=pause_s))
            late = (FirstToken(*who), Finished(*who, output_tokens=9), Progressed(*who, output_tokens=900))
            self._at(at + rng.random(), rng.choice(late))  # of an attempt that is over by then
        elif fault == "refused":
            self._at(first_at, Finished(*who, status=400))
        elif fault != "hang":
            self._answer(command, fault, first_at)

    def _answer(self, command: Dispatch, fault: str, first_at: float) -> None:
        """An answer begins, and may still break off, hang, or end without its usage being told."""
        rng, who = self.rng, (command.request_id, command.attempt)
        request = self.ledger.open[command.request_id].request
        bound = command.max_tokens or request.max_tokens or 300
        output = min(rng.randrange(1, 300), bound) * request.choices if request.generates else 0
        if request.streams:
            self._at(first_at, FirstToken(*who))
        for share in (0.25, 0.5):
            produced = round(share * output)
            self._at(first_at + produced * 0.02, Progressed(*who, output_tokens=produced))
        if fault in LATE:
            kind, produced = FailureKind(fault.removeprefix("late ")), rng.randrange(output + 1)
            failed = Failed(*who, kind=kind, committed=request.streams, output_tokens=produced)
            self._at(first_at + produced * 0.02, failed)
        elif fault != "hang later":
            prompt = max(1, request.prompt_bytes // rng.choice((3, 4, 5)))
            usage = Usage(prompt_tokens=prompt, output_tokens=output, cached_tokens=prompt // 2)
            told = None if fault == "silent" else usage
            self._at(first_at + output * 0.02, Finished(*who, usage=told, output_tokens=output))

    def _cut(self, command: Truncate) -> None:
        """Stop the engine; the end is owed, unless it or a reset was already on its way."""
        who = (command.request_id, command.attempt)
        ends = (Finished(*who, output_tokens=20), Failed(*who, kind=FailureKind.RESET, committed=True))
        if who not in self._stopped:
            self._at(self.now + self.rng.random() * 0.1, self.rng.choices(ends, (9, 1))[0])

    # -- the laws ---------------------------------------------------------------------------------

    def _check(self) -> None:
        governor, ledger = self.governor, self.ledger
        governor.check()
        for record in governor.take_ended():
            ledger.recorded(record, self.now)
        assert not ledger.outcomes, "every ending leaves its record at once"
        assert governor.live == len(ledger.open)
        for name, pool in governor.pools.items():
            if pool.prefixes is not None:
                pool.prefixes.check()
                ledger.count["prefix known"] += len(pool.prefixes) > 0
            bounds = self.settings.pools[name].queue
            assert pool.queue.requests <= bounds.max_requests
            assert pool.queue.tokens <= bounds.max_tokens or pool.queue.requests == 1
            out = sum(each.breaker.state is not BreakerState.CLOSED for each in pool.members.values())
            ledger.count["half open"] += any(
                each.breaker.state is BreakerState.HALF_OPEN for each in pool.members.values()
            )
            ledger.count["open"] += out
            ledger.count["queueing"] += pool.queue.requests > 0
            self._check_work_goes_on(pool)
        floors = 4.0 * len(self.settings.pools) * (1.0 + self.now / 10.0)
        assert ledger.retries <= 0.2 * ledger.requests + floors

    def _check_work_goes_on(self, pool: Pool) -> None:
        """Nobody waits while a replica that could take them has room, unless that only starts slowly."""
        head = pool.queue.head()
        for call in (head.item if head else None, *pool.retrying):
            if isinstance(call, Call) and not self.weather.slow_start_s:
                assert not any(
                    name not in call.tried
                    and member.available(self.now)
                    and member.replica.has_room(self.now, call.kv_tokens, call.prompt_tokens)
                    for name, member in pool.members.items()
                )

    def _balance(self) -> None:
        """After the end: everything has come back, and what is missing was used and is on record."""
        governor, ledger = self.governor, self.ledger
        assert governor.live == 0
        assert len(ledger.records) == len(ledger.lives)
        for pool in governor.pools.values():
            assert pool.queue.requests == 0
            assert not pool.retrying
        for member in governor.members.values():
            assert (member.replica.in_flight, member.replica.kv_held) == (0, 0.0)
            assert (member.replica.prefill_held, member.breaker.trials) == (0.0, 0)
        scopes = governor.admission.scopes()
        assert all(scope.in_flight == 0 for scope in scopes)
        if not scopes:
            return  # nothing ever arrived
        bottomless = next(scope for scope in scopes if scope.name == "the fleet")
        assert bottomless.tokens is not None
        assert bottomless.requests is not None
        rejected = sum(count for name, count in ledger.count.items() if name.startswith("reject:"))
        spent = sum(record.charged_credits for record in ledger.records)
        refilled = self.now * bottomless.tokens.rate_per_s
        for bucket, gone in [(bottomless.tokens, spent), (bottomless.requests, len(ledger.lives) - rejected)]:
            left = bucket.available(self.now)
            assert bucket.burst - gone - 1e-3 <= left <= bucket.burst - gone + refilled + 1e-3
