"""Which replicas do the tests of the planner know, and how does the simulator serve them?"""

from __future__ import annotations

from math import log, sqrt
from random import Random
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from tidegate.core.curve import Linear
from tidegate.core.records import RequestRecord
from tidegate.plan.laws.batching import Batch
from tidegate.plan.laws.engine import Engine
from tidegate.plan.laws.lengths import Lengths
from tidegate.policy.settings import (
    ClassSettings,
    Deadlines,
    GateSettings,
    GovernorSettings,
    HealthSettings,
    PoolSettings,
    QueueSettings,
)
from tidegate.sim.network import Network
from tidegate.sim.profiles import Profile, named
from tidegate.sim.run import simulate
from tidegate.sim.scenario import ReplicaScenario, Scenario
from tidegate.workload.requests import OpenLoop, PlannedRequest

ROOMY = 2**30
"""KV tokens that never bind."""


class Served(NamedTuple):
    """Requests of a kind at a replica, with a gate of so many."""

    profile: str
    prompt: int
    output: int
    prompt_cv: float
    output_cv: float
    gate: int

    @property
    def batch(self) -> Batch:
        """As the planner sees it."""
        known = named(self.profile)
        engine = Engine(
            curve=known.curve,
            max_num_seqs=self.gate,
            max_batched_tokens=known.replica.max_batched_tokens,
            kv_tokens=ROOMY,
            context_tokens=ROOMY,
        )
        return Batch(engine, Lengths.of(self.prompt, self.output, self.prompt_cv, self.output_cv))

    def request(self, at_s: float, rng: Random) -> PlannedRequest:
        """One request, with lengths of its laws."""
        prompt = self.prompt * _log_normal(self.prompt_cv, rng)
        output = 1 + (self.output - 1) * _log_normal(self.output_cv, rng)
        return PlannedRequest(
            at_s=at_s, prompt_tokens=max(1, round(prompt)), output_tokens=max(1, round(output))
        )


def _log_normal(cv: float, rng: Random) -> float:
    variance = log(1 + cv * cv)
    return rng.lognormvariate(-variance / 2, sqrt(variance)) if cv else 1.0


class Seen(NamedTuple):
    """What the simulator's requests met, those of the beginning left out."""

    records: list[RequestRecord]
    gaps_s: np.ndarray[tuple[int], np.dtype[np.float64]]
    """Steps, each as often as sequences decoded in it."""

    def mean_and_percentiles(self, field: str) -> tuple[float, float, float, float]:
        """Of `ttft_s`, `tpot_s`, `e2e_s`, `itl_s`: mean, p50, p95, p99."""
        values = (
            self.gaps_s
            if field == "itl_s"
            else np.array([value for each in self.records if (value := getattr(each, field)) is not None])
        )
        p50, p95, p99 = np.percentile(values, (50, 95, 99)).tolist()
        return float(values.mean()), p50, p95, p99


def simulated(served: Served, arrivals_at: list[float], replicas: int = 1, seed: int = 1) -> Seen:
    """A governor's queue before replicas with that gate, on a wire without delay."""
    known, rng = named(served.profile), Random(seed)
    profile = Profile(
        curve=known.curve, replica=replace(known.replica, kv_tokens=ROOMY, context_tokens=ROOMY)
    )
    pool = PoolSettings(
        queue=QueueSettings(max_requests=10**6, max_tokens=1e15, max_bytes=2**50),
        deadlines=Deadlines(ttft_s=1e6, total_s=1e6),
        gate=GateSettings(max_concurrency=served.gate),
        health=HealthSettings(interval_s=1e9),
    )
    scenario = Scenario(
        governor=GovernorSettings(pools={"m": pool}, classes={"default": ClassSettings(max_wait_s=1e6)}),
        pools={"m": tuple(ReplicaScenario(name=f"r{n}", profile=profile) for n in range(replicas))},
        network=Network(delay_s=0.0),
    )
    records: list[RequestRecord] = []
    batches: list[tuple[float, float, int, int]] = []
    simulate(
        scenario,
        OpenLoop(served.request(at_s, rng) for at_s in arrivals_at),
        seed,
        on_record=records.append,
        on_batch=lambda _, start, end, steps, decodes, *__: batches.append((start, end, steps, decodes)),
    )
    begin = arrivals_at[len(arrivals_at) // 10]
    late = [batch for batch in batches if batch[0] >= begin]
    gaps_s = np.repeat(
        [(end - start) / steps for start, end, steps, _ in late],
        [steps * decodes for _, _, steps, decodes in late],
    )
    return Seen([each for each in records if each.arrived_at >= begin], gaps_s)


def poisson(rate_per_s: float, count: int, seed: int = 1) -> list[float]:
    """Instants of arrivals."""
    return gamma(rate_per_s, 1.0, count, seed)


def gamma(rate_per_s: float, cv2: float, count: int, seed: int = 1) -> list[float]:
    """Instants of arrivals with gamma-distributed gaps of that squared coefficient of variation."""
    rng, at_s, instants = Random(seed), 0.0, []
    for _ in range(count):
        at_s += rng.gammavariate(1 / cv2, cv2 / rate_per_s)
        instants.append(at_s)
    return instants


def flat(step_s: float = 1e-3, gate: int = 400) -> Engine:
    """An engine whose every step takes the same time."""
    return Engine(
        curve=Linear(a_s=step_s),
        max_num_seqs=gate,
        max_batched_tokens=ROOMY,
        kv_tokens=ROOMY,
        context_tokens=ROOMY,
    )


LINE = {
    "h100, equal": Served("h100-8b", 512, 200, 0.0, 0.0, 64),
    "h100, long prompts": Served("h100-8b", 2000, 100, 1.0, 0.7, 32),
    "demo, equal": Served("demo", 1000, 200, 0.0, 0.0, 32),
    "demo, mixed": Served("demo", 1000, 200, 0.8, 0.8, 32),
    "demo, three chunks": Served("demo-128k", 6000, 100, 0.0, 0.0, 16),
    "cpu, mixed": Served("vllm-cpu-tiny", 200, 60, 0.5, 0.5, 16),
}
