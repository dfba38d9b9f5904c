"""Do users, simulated one by one, meet what the closed form says: for ever, and from a start at once?"""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from tests.plan.replicas import ROOMY
from tidegate.core.records import RequestRecord
from tidegate.plan.advice.advising import DELIVERY_S
from tidegate.plan.answer import Gates, Percentiles
from tidegate.plan.ask import USERS_CV, Kind, Load, Replica, Terms
from tidegate.plan.closed.clients import ClosedCrowd
from tidegate.plan.closed.inside import Inside
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
from tidegate.workload.laws.numbers import Exponential, Fixed, Lognormal, Quantiles
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


class Lasting(ClosedLoop):
    """Clients who go on until then."""

    def __init__(self, settings: ClosedLoopSettings, until_s: float) -> None:
        super().__init__(settings, 1)
        self._until_s = until_s

    def after(self, planned: PlannedRequest, ended_at_s: float, ok: bool) -> PlannedRequest | None:
        """None from then on."""
        following = super().after(planned, ended_at_s, ok)
        return None if following is None or following.at_s > self._until_s else following


def simulated(
    clients: ClosedLoop,
    *,
    replicas: int = 1,
    seats: int = 256,
    gate: int = 10**5,
    delay_s: float = 0.0,
) -> list[RequestRecord]:
    """Replicas that have so many seats, behind a gateway that lets so many in, at that distance."""
    bounds = replace(KNOWN.replica, max_num_seqs=seats, kv_tokens=ROOMY, context_tokens=ROOMY)
    pool = PoolSettings(
        queue=QueueSettings(max_requests=10**6, max_tokens=1e15, max_bytes=2**50),
        deadlines=Deadlines(ttft_s=1e6, total_s=1e6),
        gate=GateSettings(max_concurrency=gate),
        health=HealthSettings(interval_s=1e9),
    )
    profile = Profile(curve=KNOWN.curve, replica=bounds)
    scenario = Scenario(
        governor=GovernorSettings(pools={"m": pool}, classes={"default": ClassSettings(max_wait_s=1e6)}),
        pools={"m": tuple(ReplicaScenario(name=f"r{n}", profile=profile) for n in range(replicas))},
        network=Network(delay_s=delay_s),
    )
    records: list[RequestRecord] = []
    simulate(scenario, clients, 1, on_record=records.append)
    return records


def crowd(
    users: int, prompt: float, output: float, seats: int, *, replicas: int = 1, think_s: float = 0.0
) -> ClosedCrowd:
    """The same by the closed form, at mean lengths."""
    engine = Engine(
        curve=KNOWN.curve,
        max_num_seqs=seats,
        max_batched_tokens=KNOWN.replica.max_batched_tokens,
        kv_tokens=ROOMY,
        context_tokens=ROOMY,
    )
    load = Load(
        kinds=(Kind(prompt_tokens=prompt, output_tokens=output),),
        users=users,
        think_s=think_s,
    )
    inside = Inside(Replica(name="r", engine=engine), load, Gates(batch=seats))
    return ClosedCrowd(inside, users, replicas)


def near(
    found: Percentiles, seen: list[float], tolerances: tuple[float, float, float], slack_s: float = 0.0
) -> None:
    """Mean, P50 and P95, and P99 are within so much of each other, or so long."""
    mean, usual, rare = tolerances
    assert found.mean == pytest.approx(np.mean(seen), rel=mean, abs=slack_s)
    for name, level, tolerance in (("p50", 50, usual), ("p95", 95, usual), ("p99", 99, rare)):
        expected = np.percentile(seen, level)
        assert getattr(found, name) == pytest.approx(expected, rel=tolerance, abs=slack_s), name


@pytest.mark.parametrize(
    "users, prompt, output, seats",
    [(40, 2000, 500, 256), (128, 1000, 1000, 256), (64, 4000, 500, 40), (200, 1000, 500, 64)],
)
def test_a_benchmark_meets_its_opening(users: int, prompt: int, output: int, seats: int) -> None:
    """From a start at once mean TTFT is within 10 %, its percentiles within 25 %, TPOT within 3 %: where all
    have a seat, and where others wait. The last of the first tokens comes within 10 % of what is said.
    """
    mean = (1 + SHORTEST) / 2
    planned = crowd(users, mean * prompt, mean * output, seats)
    settings = ClosedLoopSettings(clients=users, lengths=Independent(drawn(prompt), drawn(output)))
    records = simulated(Benchmark(settings, 1), seats=seats)
    opening = planned.opening(planned.run(Terms()))
    first_s = max(each.ttft_s or 0.0 for each in records if each.arrived_at == 0)

    assert len(records) == TURNS * users
    tpot_s = np.mean([each.tpot_s for each in records if each.tpot_s is not None])
    assert planned.latencies(Terms()).tpot_s.mean == pytest.approx(tpot_s, rel=0.03)
    assert opening.ttft_s is not None
    near(opening.ttft_s, [each.ttft_s or 0.0 for each in records], (0.1, 0.25, 0.25))
    assert opening.last_ttft_s == pytest.approx(first_s, rel=0.1 if users <= seats else 0.3)


@pytest.mark.parametrize(
    "users, think_s, prompt, output, gate, replicas",
    [
        (100, 0.0, 2000, 500, 256, 1),
        (100, 0.0, 2000, 500, 256, 3),
        (100, 1.0, 2000, 500, 256, 3),
        (100, 10.0, 2000, 500, 256, 1),
        (150, 20.0, 2000, 500, 256, 2),
        (100, 5.0, 2000, 500, 40, 1),
        (60, 0.0, 2000, 500, 40, 1),
    ],
)
def test_users_meet_it_for_ever(
    users: int, think_s: float, prompt: int, output: int, gate: int, replicas: int
) -> None:
    """Once the opening is past, rates are within 3 %, TPOT within 4 %, TTFT within 25 % or a step, and its
    P99 within 45 %, mostly above. Lengths vary a little, or all would stay in step.
    """
    planned = crowd(users, prompt, output, gate, replicas=replicas, think_s=think_s)
    found = planned.latencies(Terms())
    cycle_s = think_s + found.e2e_s.mean
    lengths = Independent(
        Lognormal(mean=prompt, cv=USERS_CV, least=1), Lognormal(mean=output, cv=USERS_CV, least=1)
    )
    settings = ClosedLoopSettings(
        clients=users, lengths=lengths, think_s=Exponential(think_s) if think_s else Fixed(0.0)
    )
    begin_s, end_s = 4 * cycle_s, 13 * cycle_s
    records = simulated(Lasting(settings, end_s + cycle_s), replicas=replicas, gate=gate, delay_s=DELIVERY_S)
    late = [each for each in records if begin_s <= each.arrived_at < end_s]

    step_s = found.tpot_s.mean
    assert len(late) / (end_s - begin_s) == pytest.approx(planned.rate_per_s, rel=0.03)
    near(found.tpot_s, [each.tpot_s or 0.0 for each in late], (0.04, 0.08, 0.08))
    near(found.ttft_s, [each.ttft_s or 0.0 for each in late], (0.15, 0.25, 0.45), step_s)
