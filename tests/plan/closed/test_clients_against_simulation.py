"""Does a benchmark's run, simulated request by request, meet the mean and the spread of the closed form?"""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from tests.plan.replicas import ROOMY
from tidegate.core.records import RequestRecord
from tidegate.plan.answer import Gates
from tidegate.plan.ask import Kind, Load, Replica, Terms
from tidegate.plan.closed.clients import ClosedCrowd
from tidegate.plan.laws.engine import Engine
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
from tidegate.workload.laws.lengths import Independent
from tidegate.workload.laws.numbers import Quantiles
from tidegate.workload.requests import PlannedRequest
from tidegate.workload.sources.closed_loop import ClosedLoop, ClosedLoopSettings

KNOWN = named("h100-8b")
TURNS = 10
"""Requests of a client, one after the other: `closed_loop.REQUESTS_PER_CLIENT`."""
SHORTEST = 0.8
"""Of a nominal length: as InferenceMAX draws them (see docs/accuracy.md)."""


def drawn(tokens: int) -> Quantiles:
    """Even between the shortest and the nominal length."""
    return Quantiles(points=((0, SHORTEST * tokens), (1, tokens)))


class Benchmark(ClosedLoop):
    """Clients that begin at once and have enough after some requests."""

    def after(self, planned: PlannedRequest, ended_at_s: float, ok: bool) -> PlannedRequest | None:
        """None after the last."""
        return None if planned.turn >= TURNS - 1 else super().after(planned, ended_at_s, ok)


def simulated(users: int, prompt: int, output: int, seats: int) -> list[RequestRecord]:
    """A replica that has so many seats, behind a gateway that lets all in."""
    bounds = replace(KNOWN.replica, max_num_seqs=seats, kv_tokens=ROOMY, context_tokens=ROOMY)
    pool = PoolSettings(
        queue=QueueSettings(max_requests=10**6, max_tokens=1e15, max_bytes=2**50),
        deadlines=Deadlines(ttft_s=1e6, total_s=1e6),
        gate=GateSettings(max_concurrency=10**5),
        health=HealthSettings(interval_s=1e9),
    )
    scenario = Scenario(
        governor=GovernorSettings(pools={"m": pool}, classes={"default": ClassSettings(max_wait_s=1e6)}),
        pools={"m": (ReplicaScenario(name="r", profile=Profile(curve=KNOWN.curve, replica=bounds)),)},
        network=Network(delay_s=0.0),
    )
    records: list[RequestRecord] = []
    settings = ClosedLoopSettings(clients=users, lengths=Independent(drawn(prompt), drawn(output)))
    simulate(scenario, Benchmark(settings, 1), 1, on_record=records.append)
    return records


def crowd(users: int, prompt: float, output: float, seats: int) -> ClosedCrowd:
    """The same by the closed form, at mean lengths."""
    engine = Engine(
        curve=KNOWN.curve,
        max_num_seqs=seats,
        max_batched_tokens=KNOWN.replica.max_batched_tokens,
        kv_tokens=ROOMY,
        context_tokens=ROOMY,
    )
    mean = (1 + SHORTEST) / 2
    kinds = (Kind(prompt_tokens=mean * prompt, output_tokens=mean * output),)
    load = Load(kinds=kinds, users=users)
    return ClosedCrowd(Replica(name="r", engine=engine), load, Gates(batch=seats))


@pytest.mark.parametrize(
    "users, prompt, output, seats",
    [(40, 2000, 500, 256), (128, 1000, 1000, 256), (64, 4000, 500, 40), (200, 1000, 500, 64)],
)
def test_a_benchmark_meets_it(users: int, prompt: int, output: int, seats: int) -> None:
    """TPOT within 3 %, mean TTFT within 10 %, its percentiles within 25 %: where all have a seat, and where
    others wait.
    """
    found = crowd(users, prompt, output, seats).latencies(Terms())
    records = simulated(users, prompt, output, seats)
    ttfts_s = np.array([each.ttft_s for each in records])
    tpots_s = np.array([each.tpot_s for each in records])

    assert len(records) == TURNS * users
    assert found.tpot_s.mean == pytest.approx(tpots_s.mean(), rel=0.03)
    assert found.ttft_s.mean == pytest.approx(ttfts_s.mean(), rel=0.1)
    for name, level in (("p50", 50), ("p95", 95), ("p99", 99)):
        assert getattr(found.ttft_s, name) == pytest.approx(np.percentile(ttfts_s, level), rel=0.25), name
