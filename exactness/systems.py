"""What do the simulator's requests wait, where it is set up as a queue that theory knows?

A replica whose steps always take the same is a server. Either it keeps its queue itself, or the governor
does, of a replica that it gives no more than it can compute.

Where several are served at a time, who finds a server free joins the others at their next step, and holds the
server half a step longer than it is served. That is load: with steps of a thousandth of the service, the
losses of M/M/50/50 at 0.95 rise by 0.3 %. Decoding advances in closed form between events, so that shorter
steps cost no more.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Ordered
from math import inf
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidegate.core.curve import Linear
from tidegate.core.reasons import Reason
from tidegate.core.records import RequestRecord
from tidegate.policy.settings import (
    ClassSettings,
    Deadlines,
    GateSettings,
    GovernorSettings,
    HealthSettings,
    PoolSettings,
    QueueSettings,
)
from tidegate.sim.clients import ClientSettings
from tidegate.sim.dice import dice
from tidegate.sim.happening import FINISHED
from tidegate.sim.network import Network
from tidegate.sim.profiles import Profile
from tidegate.sim.replica import Replica
from tidegate.sim.run import simulate
from tidegate.sim.scenario import ReplicaScenario, Scenario
from tidegate.sim.sequence import Sequence
from tidegate.sim.settings import ReplicaSettings
from tidegate.workload.requests import OpenLoop, PlannedRequest

Values = NDArray[np.float64]

STEP_S = 1e-5
"""A hundred thousandth of the mean service."""
ROUNDING_S = 1e-9
"""A difference of instants that is less is none: nobody waits, or waits for less than nothing."""

SERVICES: dict[str, Callable[[Random], float]] = {
    "M": lambda rng: rng.expovariate(1.0),
    "D": lambda rng: 1.0,
    "E2": lambda rng: rng.gammavariate(2.0, 0.5),
}
"""Laws of service with a mean of 1 s: exponential, constant, Erlang's of two phases."""
CV2 = {"M": 1.0, "D": 0.0, "E2": 0.5}


class System(NamedTuple):
    """A queue in Kendall's notation, M/service/servers, and its load (0..1) per server."""

    service: str
    servers: int
    load: float
    governed: bool = False
    """The governor keeps the queue; else the replica itself does."""
    places: int | None = None
    """Of the governor's queue; None: without bound."""

    def __str__(self) -> str:
        loss = "" if self.places is None else f"/{self.servers + self.places}"
        where = "governor" if self.governed else "replica"
        return f"M/{self.service}/{self.servers}{loss} at {self.load:g}, {where}"


class Sample(NamedTuple):
    """One run: gaps and services as drawn, and who waited how long (inf: was refused); seconds."""

    gaps: Values
    services: Values
    waits: Values


def sample(system: System, requests: int, seed: int) -> Sample:
    """Draw the requests and let them through. Outputs are whole numbers of tokens: so many steps."""
    gap_rng, service_rng = dice(seed, "gaps"), dice(seed, "services")
    rate, draw = system.servers * system.load, SERVICES[system.service]
    gaps = [gap_rng.expovariate(rate) for _ in range(requests)]
    tokens = [max(1, round(draw(service_rng) / STEP_S)) for _ in range(requests)]
    waits = (_governed if system.governed else _alone)(system, np.cumsum(gaps).tolist(), tokens)
    return Sample(np.array(gaps), np.array(tokens) * STEP_S, waits)


def _profile(servers: int) -> Profile:
    """As many sequences at a time as there are servers; every step takes the same."""
    bounds = ReplicaSettings(
        max_num_seqs=servers, max_batched_tokens=2**20, kv_tokens=2**40, context_tokens=2**30
    )
    return Profile(curve=Linear(a_s=STEP_S), replica=bounds)


def _alone(system: System, starts: Ordered[float], tokens: Ordered[int]) -> Values:
    engine, waits = Replica(_profile(system.servers)), [inf] * len(starts)

    def advance(now: float) -> None:
        for happening in engine.advance(now):
            if happening.kind == FINISHED:
                one = happening.sequence
                waits[one.id] = happening.at - one.arrived_at - one.output_tokens * STEP_S

    for index, (at, output_tokens) in enumerate(zip(starts, tokens, strict=True)):
        advance(at)
        unheard = output_tokens + 1  # nobody asks how far an output has got
        engine.submit(at, Sequence(id=index, prompt_tokens=1, output_tokens=output_tokens, mark=unheard))
    while (at := engine.next_at()) < inf:
        advance(at)
    found = np.array(waits)
    return np.where(np.abs(found) < ROUNDING_S, 0.0, found)


def _governed(system: System, starts: Ordered[float], tokens: Ordered[int]) -> Values:
    waits = [inf] * len(starts)

    def on_record(record: RequestRecord) -> None:
        if record.reason is not Reason.QUEUE_FULL:
            assert record.ok, record
            waits[record.request_id - 1] = record.queued_s

    places = 10**9 if system.places is None else system.places
    pool = PoolSettings(
        gate=GateSettings(max_concurrency=system.servers),
        queue=QueueSettings(max_requests=places, max_tokens=inf, max_bytes=2**60),
        deadlines=Deadlines(ttft_s=inf, total_s=inf),
        health=HealthSettings(interval_s=inf),
    )
    scenario = Scenario(
        governor=GovernorSettings(pools={"pool": pool}, classes={"default": ClassSettings(max_wait_s=inf)}),
        pools={"pool": (ReplicaScenario(name="replica", profile=_profile(system.servers)),)},
        network=Network(delay_s=0.0),
        clients=ClientSettings(max_retries=0),
    )
    requests = (
        PlannedRequest(at_s=at, prompt_tokens=1, output_tokens=output_tokens, streams=False)
        for at, output_tokens in zip(starts, tokens, strict=True)
    )
    simulate(scenario, OpenLoop(requests), 1, on_record=on_record)
    return np.array(waits)
