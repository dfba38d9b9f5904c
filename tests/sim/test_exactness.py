"""Exactness: a replica whose steps always take the same is a server whose queue theory knows.

Its mean service is a thousand steps. First path by path: each wait is what the recursion of the ideal queue
gives for the same arrivals, up to a step. Then in distribution: means, tails and losses over twenty
replications, with intervals, against closed forms. Heavy loads take minutes of CPU: `make exactness`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from heapq import heapify, heapreplace
from math import inf, sqrt
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.policy.build import approx
from tests.sim import theory
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
from tidegate.sim import replica
from tidegate.sim.agenda import dice
from tidegate.sim.clients import ClientSettings
from tidegate.sim.network import Network
from tidegate.sim.profiles import Profile
from tidegate.sim.run import simulate
from tidegate.sim.scenario import ReplicaScenario, Scenario
from tidegate.sim.settings import ReplicaSettings
from tidegate.sim.statistics import mean_within, t_quantile
from tidegate.workload.requests import OpenLoop, PlannedRequest

Values = NDArray[np.float64]

STEP_S = 1e-3

SERVICES: dict[str, Callable[[Random], float]] = {
    "M": lambda rng: rng.expovariate(1.0),
    "D": lambda rng: 1.0,
    "E2": lambda rng: rng.gammavariate(2.0, 0.5),
}
CV2 = {"M": 1.0, "D": 0.0, "E2": 0.5}


class System(NamedTuple):
    """A queue in Kendall's notation, M/service/servers, and its load (0..1) per server."""

    service: str
    servers: int
    load: float
    governed: bool = False
    """The governor keeps the queue; else the replica itself does."""
    places: int = 10**9
    """Of the governor's queue."""

    def __str__(self) -> str:
        where = "governor" if self.governed else "replica"
        return f"M/{self.service}/{self.servers} at {self.load:g}, {where}"


class Sample(NamedTuple):
    """One replication: gaps and services as drawn, and who waited how long (inf: was refused)."""

    gaps: Values
    services: Values
    waits: Values


def sample(system: System, requests: int, seed: int) -> Sample:
    """Draw the requests and let them through. Outputs are whole numbers of tokens: so many steps."""
    gap_rng, service_rng = dice(seed, "gaps"), dice(seed, "services")
    rate, draw = system.servers * system.load, SERVICES[system.service]
    gaps = [gap_rng.expovariate(rate) for _ in range(requests)]
    tokens = [max(1, round(draw(service_rng) / STEP_S)) for _ in range(requests)]
    waits = (governed if system.governed else alone)(system, np.cumsum(gaps).tolist(), tokens)
    return Sample(np.array(gaps), np.array(tokens) * STEP_S, waits)


def profile(servers: int) -> Profile:
    """As many sequences at a time as there are servers; every step takes the same."""
    bounds = ReplicaSettings(
        max_num_seqs=servers, max_batched_tokens=2**20, kv_tokens=2**40, context_tokens=2**30
    )
    return Profile(curve=Linear(a_s=STEP_S), replica=bounds)


def alone(system: System, starts: Sequence[float], tokens: Sequence[int]) -> Values:
    """A replica keeps its queue itself."""
    engine, waits = replica.Replica(profile(system.servers)), [inf] * len(starts)

    def advance(now: float) -> None:
        for happening in engine.advance(now):
            if happening.kind == replica.FINISHED:
                one = happening.sequence
                waits[one.id] = happening.at - one.arrived_at - one.output_tokens * STEP_S

    for index, (at, output_tokens) in enumerate(zip(starts, tokens, strict=True)):
        advance(at)
        engine.submit(at, replica.Sequence(id=index, prompt_tokens=1, output_tokens=output_tokens))
    while (at := engine.next_at()) < inf:
        advance(at)
    return np.array(waits)


def governed(system: System, starts: Sequence[float], tokens: Sequence[int]) -> Values:
    """The governor keeps the queue of a replica that it gives no more than it can compute."""
    waits = [inf] * len(starts)

    def on_record(record: RequestRecord) -> None:
        if record.reason is not Reason.QUEUE_FULL:
            assert record.ok
            waits[record.request_id - 1] = record.queued_s

    pool = PoolSettings(
        gate=GateSettings(max_concurrency=system.servers),
        queue=QueueSettings(max_requests=system.places, max_tokens=inf, max_bytes=2**60),
        deadlines=Deadlines(ttft_s=inf, total_s=inf),
        health=HealthSettings(interval_s=inf),
    )
    scenario = Scenario(
        governor=GovernorSettings(pools={"pool": pool}, classes={"default": ClassSettings(max_wait_s=inf)}),
        pools={"pool": (ReplicaScenario(name="replica", profile=profile(system.servers)),)},
        network=Network(delay_s=0.0),
        clients=ClientSettings(max_retries=0),
    )
    requests = (
        PlannedRequest(at_s=at, prompt_tokens=1, output_tokens=output_tokens, streams=False)
        for at, output_tokens in zip(starts, tokens, strict=True)
    )
    simulate(scenario, OpenLoop(requests), 1, on_record=on_record)
    return np.array(waits)


# -- path by path ---------------------------------------------------------------------------------


def recursion(servers: int, gaps: Sequence[float], services: Sequence[float]) -> list[float]:
    """Waits of an ideal first-come-first-served queue. Source: Kiefer and Wolfowitz (1955)."""
    now, waits, free_at = 0.0, [], [0.0] * servers
    heapify(free_at)
    for gap, service in zip(gaps, services, strict=True):
        now += gap
        start = max(now, free_at[0])
        heapreplace(free_at, start + service)
        waits.append(start - now)
    return waits


@pytest.mark.parametrize(
    "system",
    [
        System("M", 1, 0.9),
        System("D", 1, 0.9),
        System("E2", 1, 0.9),
        System("M", 4, 0.9),
        System("M", 1, 0.9, governed=True),
        System("M", 4, 0.9, governed=True),
        System("E2", 50, 0.95, governed=True),
    ],
    ids=str,
)
def test_each_wait_is_that_of_the_ideal_queue(system: System) -> None:
    """Up to one step, for who finds a server free joins the others at their next step; alone, to rounding."""
    gaps, services, waits = sample(system, 5_000, seed=1)

    ideal = recursion(system.servers, gaps.tolist(), services.tolist())

    slack = 1e-6 if system.servers == 1 else STEP_S * 1.001
    longer = waits - np.array(ideal)
    assert np.mean(np.array(ideal) > 0) > 0.5
    assert -1e-6 <= longer.min() <= longer.max() <= slack


# -- in distribution ------------------------------------------------------------------------------


class Interval(NamedTuple):
    """A figure over replications, and its standard error."""

    value: float
    error: float
    degrees: int

    def half_width(self, level: float) -> float:
        """Of the interval that holds the true value in that share of cases, 0..1."""
        return t_quantile(0.5 + level / 2, self.degrees) * self.error


def over(values: Sequence[float], controls: NDArray[np.float64] | None = None) -> Interval:
    """The mean over replications, freed of what `controls` explain: columns whose true mean is 0.

    Source: Lavenberg and Welch (1981), control variables with known means: here what was really drawn.
    """
    count, against = len(values), np.ones((len(values), 1))
    if controls is not None:
        against = np.hstack([against, controls[:, np.ptp(controls, axis=0) > 1e-9]])
    inverse = np.linalg.inv(against.T @ against)
    fitted = inverse @ against.T @ np.array(values)
    degrees = count - against.shape[1]
    rest = np.array(values) - against @ fitted
    return Interval(float(fitted[0]), sqrt(float(rest @ rest) / degrees * inverse[0, 0]), degrees)


class Figures(NamedTuple):
    """What one replication says."""

    mean: float
    p99: float
    refused: float
    rate: float
    """Arrivals per second over what was meant, less 1."""
    service: float
    """Mean service over what was meant, less 1."""


def figures(system: System, requests: int, seed: int) -> Figures:
    """Of a replication, without the first tenth, in which the queue fills."""
    gaps, services, waits = (each[requests // 10 :] for each in sample(system, requests, seed))
    served = waits[waits < inf]
    return Figures(
        mean=float(served.mean()),
        p99=float(np.quantile(served, 0.99)),
        refused=1 - len(served) / len(waits),
        rate=float(gaps.mean()) * system.servers * system.load - 1,
        service=float(services.mean()) - 1,
    )


def replications(system: System, requests: int, count: int = 20) -> dict[str, Interval]:
    """Figures over so many replications of so many requests each, on all cores."""
    with ProcessPoolExecutor() as cores:
        runs = list(cores.map(partial(figures, system, requests), range(count)))
    controls = np.array([[run.rate, run.service] for run in runs])
    return {
        "mean": over([run.mean for run in runs], controls),
        "p99": over([run.p99 for run in runs], controls),
        "refused": over([run.refused for run in runs], controls),
    }


def assert_exact(found: Interval, exact: float, most: float) -> None:
    """The 95 % interval is narrow enough, and the 99.9 % interval holds the exact value."""
    assert found.half_width(0.95) <= most * found.value
    assert found.value == approx(exact, abs=found.half_width(0.999))


def assert_waits(system: System, requests: int, count: int = 20) -> None:
    """Mean and, where it is known, P99 of the time in the queue."""
    found = replications(system, requests, count)
    if system.servers == 1:
        assert_exact(found["mean"], theory.mg1_wait(system.load, CV2[system.service]), 0.02)
    if system.service == "M":
        assert_exact(found["mean"], theory.mmc_wait(system.servers, system.load), 0.02)
        assert_exact(found["p99"], theory.mmc_wait_p99(system.servers, system.load), 0.05)


@pytest.mark.parametrize(
    ("servers", "load", "wait", "p99"),
    [
        (10, 0.90, 0.668732, 4.202798),
        (4, 0.90, 1.969383, 10.916500),
        (50, 0.95, 0.251638, 1.656679),
        (1, 0.90, 9.0, 44.998097),
    ],
)
def test_the_closed_forms_give_known_figures(servers: int, load: float, wait: float, p99: float) -> None:
    """Against figures that others have computed."""
    assert theory.mmc_wait(servers, load) == approx(wait, rel=1e-6)
    assert theory.mmc_wait_p99(servers, load) == approx(p99, rel=1e-6)


@pytest.mark.parametrize(
    ("system", "requests"),
    [
        (System("M", 1, 0.5), 13_000),
        (System("D", 1, 0.5), 10_000),
        (System("E2", 1, 0.5), 17_000),
    ],
    ids=str,
)
def test_waits_are_as_theory_has_them(system: System, requests: int) -> None:
    """Mean within 2 %, P99 within 5 %, by intervals that hold the exact values."""
    assert_waits(system, requests)


@pytest.mark.parametrize(("servers", "load", "requests"), [(1, 0.5, 2_000), (4, 0.75, 4_000)])
def test_losses_are_as_theory_has_them(servers: int, load: float, requests: int) -> None:
    """A gateway without a queue refuses what Erlang's formula says."""
    found = replications(System("M", servers, load, governed=True, places=0), requests)

    assert_exact(found["refused"], theory.erlang_b(servers, servers * load), 0.02)


@pytest.mark.exactness
@pytest.mark.parametrize(
    ("system", "requests"),
    [
        (System("M", 1, 0.9), 90_000),
        (System("D", 1, 0.9), 60_000),
        (System("M", 4, 0.9, governed=True), 130_000),
        (System("M", 10, 0.8, governed=True), 80_000),
    ],
    ids=str,
)
@pytest.mark.timeout(1_800)
def test_waits_under_heavy_load(system: System, requests: int) -> None:
    """The same where the queue is long and its memory longer, over forty replications."""
    assert_waits(system, requests, 40)


def covers(system: System, exact: float, requests: int, seed: int) -> bool:
    """Whether the 95 % interval of one run holds the exact mean."""
    waits = sample(system, requests, 1_000 + seed).waits[requests // 10 :]
    found = mean_within(waits)
    return found.low <= exact <= found.high


@pytest.mark.parametrize(
    ("system", "requests"),
    [
        (System("D", 1, 0.5), 1_000),
        pytest.param(System("M", 1, 0.5), 10_000, marks=pytest.mark.exactness),
        pytest.param(System("M", 4, 0.7, governed=True), 10_000, marks=pytest.mark.exactness),
    ],
    ids=str,
)
def test_intervals_hold_what_they_promise(system: System, requests: int) -> None:
    """Of 200 runs the 95 % interval of 90 to 99 % holds the exact mean."""
    exact = (
        theory.mmc_wait(system.servers, system.load)
        if system.service == "M"
        else theory.mg1_wait(system.load, CV2[system.service])
    )
    with ProcessPoolExecutor() as cores:
        held = sum(cores.map(partial(covers, system, exact, requests), range(200)))

    assert 180 <= held <= 198
