"""The simulator's driver and the gateway's, given the same fleet and the same clients, write the same tape.

Clients, wire and engines are the simulator's for both, with an event loop's timers for an agenda.
What differs is who drives the governor: `sim.driver`, or `gateway.driver` on a clock that jumps.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from tests.parity.reach import COMMANDS, RACES, shows
from tests.parity.virtual_loop import VirtualLoop, virtual_loop
from tidegate.core.messages import (
    Abort,
    Dispatch,
    Event,
    Evict,
    Finished,
    Reject,
    Truncate,
)
from tidegate.core.records import RequestRecord
from tidegate.core.request import Request
from tidegate.gateway import driver as gateway
from tidegate.policy.contract import Policy
from tidegate.policy.settings import (
    BreakerSettings,
    ClampStep,
    ClassSettings,
    Deadlines,
    GateSettings,
    GovernorSettings,
    HealthSettings,
    LimitSettings,
    PoolSettings,
    QueueSettings,
    RetrySettings,
    RoutingPolicy,
    RoutingSettings,
    TenantSettings,
)
from tidegate.policy.tape import Recorder, Tape, replay
from tidegate.sim import driver as simulator
from tidegate.sim import run as sim_run
from tidegate.sim.clients import ClientSettings
from tidegate.sim.faults import Crash, Drain, Errors, Leave, Slow
from tidegate.sim.network import Network
from tidegate.sim.profiles import named
from tidegate.sim.run import simulate
from tidegate.sim.scenario import ReplicaScenario, Scenario
from tidegate.workload.requests import OpenLoop, PlannedRequest

BEGINS_AT = 1_024.0
"""Requests come from here on, for less than as long again. A loop is told delays, an agenda is told instants:
from t to 2t the difference of two instants is exact (Sterbenz's lemma), so that both mean the same. Before it
there are only probes, at multiples of a power of two."""
DELAY_S = 2.0**-11
SPAN_S = 60.0


class LoopAgenda:
    """An agenda of the simulator whose acts are timers of a loop."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.events = 0

    @property
    def now(self) -> float:
        """The loop's time."""
        return self._loop.time()

    def at(self, when: float, act: Callable[[float, Any], None], item: object) -> None:
        """Call `act(when, item)` at `when`."""
        if when < float("inf"):
            self._loop.call_at(when, act, when, item)

    def run(self) -> None:
        """Until all is over."""
        self._loop.run()

    def stop(self) -> None:
        """Let nothing more happen."""
        self._loop.stop()


class Bridged(simulator.Driver):
    """Requests as the simulator carries them, and the gateway's driver between them and the governor."""

    def __init__(
        self,
        policy: Policy,
        agenda: Any,
        network: Network,
        nodes: Any,
        on_record: Callable[[RequestRecord], None],
    ) -> None:
        super().__init__(policy, agenda, network, nodes, on_record)
        loop = asyncio.get_running_loop()
        self.gateway = gateway.Driver(policy, lambda name: self.fleet.probe(loop.time(), name), on_record)
        self.gateway.now = loop.time
        self.flights = self.gateway.flights  # type: ignore[assignment]

    def tell(self, now: float, event: Event) -> None:
        """By way of the gateway's driver, which reads its own clock."""
        assert now == self.gateway.now()
        self.gateway.tell(event)

    def arrive(self, now: float, flight: simulator.Flight, request: Request) -> None:
        """In the form in which the gateway's driver gives commands."""
        super().arrive(now, Carried(self, flight.planned, flight.retries, flight.rank), request)


class Carried(simulator.Flight):
    """A simulated request that takes the gateway's commands."""

    def __init__(self, driver: Bridged, *args: Any) -> None:
        super().__init__(*args)
        self.driver = driver

    @property
    def _now(self) -> float:
        return self.driver.gateway.now()

    def dispatch(self, command: Dispatch) -> None:
        """Send it to its node."""
        self.driver._dispatch(self._now, self, command)

    def refuse(self, command: Reject | Evict) -> None:
        """Tell its client; the gateway's driver has let go of it already."""
        self.driver.flights[command.request_id] = self
        self.driver._refuse(self._now, self, command)

    def truncate(self, command: Truncate) -> None:
        """Stop its engine, and report the end."""
        driver, said = self.driver, self.driver._stop(self._now, self)
        driver.counts.finished += 1
        del driver.flights[command.request_id]
        driver.on_end(self._now, self, None)
        driver.tell(self._now, Finished(command.request_id, command.attempt, output_tokens=said))

    def abort(self, command: Abort) -> None:
        """Stop its engine."""
        self.driver._stop(self._now, self)


# -- what happens ---------------------------------------------------------------------------------


def scenario(routing: RoutingPolicy) -> Scenario:
    """Replicas that are too few, everything that can befall them, and impatient clients that come back."""
    pool = PoolSettings(
        queue=QueueSettings(max_requests=12, max_tokens=20_000),
        routing=RoutingSettings(policy=routing),
        gate=GateSettings(max_concurrency=6, kv_tokens=6_000),
        health=HealthSettings(interval_s=4.0, stale_after_s=10.0),
        breaker=BreakerSettings(consecutive_failures=4, failure_ratio=1.0, open_s=2.0, open_max_s=4.0),
        retry=RetrySettings(floor=200),
        degradation=(ClampStep(above=0.5, below=0.25, max_tokens=150, dwell_s=1.0),),
        deadlines=Deadlines(ttft_s=3.0, total_s=6.0),
    )
    hasty = msgspec.structs.replace(pool, deadlines=Deadlines(ttft_s=2.5, total_s=4.0))
    classes = {"high": ClassSettings(max_wait_s=2.0), "low": ClassSettings(max_wait_s=2.5)}
    limits = LimitSettings(requests_per_minute=200, tokens_per_minute=100_000, burst_s=10, max_in_flight=12)
    at = BEGINS_AT
    return Scenario(
        governor=GovernorSettings(
            pools={"m": pool, "n": hasty}, classes=classes, tenants={"tight": TenantSettings(limits=limits)}
        ),
        pools={
            "m": tuple(ReplicaScenario(name=name, profile=named("demo")) for name in ("a", "b", "c")),
            "n": (ReplicaScenario(name="d", profile=named("demo")),),
        },
        network=Network(delay_s=DELAY_S),
        clients=ClientSettings(patience_s=3.5, hang_up_after_s=5.7),
        callers={"tight": "low"},
        faults=(
            *(Errors(replica=name, at_s=at + 6, share=0.6, for_s=5) for name in "abcd"),
            *(Errors(replica=name, at_s=at + 16, share=0.5, status=503, for_s=4) for name in "ab"),
            Crash(replica="c", at_s=at + 27, restart_after_s=3),
            *(Slow(replica=name, at_s=at + 36, factor=100.0, for_s=9) for name in "abd"),
            Drain(replica="b", at_s=at + 46, for_s=5),
            Leave(replica="c", at_s=at + 56, grace_s=2),
        ),
    )


def requests(seed: int) -> OpenLoop:
    """Bursts and lulls of short and long prompts, from three tenants."""
    rng, at_s, planned = Random(seed), BEGINS_AT, list[PlannedRequest]()
    while at_s < BEGINS_AT + SPAN_S:
        at_s += rng.expovariate(40.0 if at_s % 10 < 4 else 4.0)
        talk = rng.randrange(12)
        planned.append(
            PlannedRequest(
                at_s=at_s,
                tenant=rng.choice(("tight", "one", "other")),
                model=rng.choice(("m", "m", "m", "n")),
                prompt_tokens=rng.choice((50, 200, 3_500)),
                output_tokens=rng.randrange(1, 500),
                max_tokens=rng.choice((None, 300)),
                streams=rng.random() < 0.8,
                prefix=tuple(talk * 100 + n for n in range(3)),
                prefix_block_tokens=16,
            )
        )
    return OpenLoop(planned)


def tape(routing: RoutingPolicy, seed: int) -> list[bytes]:
    """Of a simulated run."""
    lines: list[bytes] = []
    simulate(
        scenario(routing),
        requests(seed),
        seed,
        on_record=lambda record: None,
        govern=lambda settings, dice: Recorder.of(settings, dice, lines.append),
    )
    return lines


RUNS = [(RoutingPolicy.LEAST_TOKENS, 7), (RoutingPolicy.PREFIX_AFFINITY, 5)]


@pytest.mark.parametrize(("routing", "seed"), RUNS, ids=[routing.value for routing, _ in RUNS])
def test_both_drivers_write_the_same_tape(
    routing: RoutingPolicy, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Line by line, to the last bit of each instant."""
    simulated = tape(routing, seed)
    with virtual_loop() as loop:
        monkeypatch.setattr(sim_run, "Driver", Bridged)
        monkeypatch.setattr(sim_run, "Agenda", lambda: LoopAgenda(loop))
        driven = tape(routing, seed)

    for number, (one, other) in enumerate(zip(simulated, driven, strict=True), start=1):
        assert one == other, number


def test_the_tapes_show_every_command_and_every_race() -> None:
    """Else it would not say much that they are the same; and they replay."""
    tapes = [tape(routing, seed) for routing, seed in RUNS]

    shown = sum((shows(Tape.read(lines).calls) for lines in tapes), Counter[str]())
    assert [name for name in COMMANDS + RACES if not shown[name]] == []
    assert [replay(Tape.read(lines)) for lines in tapes] == [None, None]
