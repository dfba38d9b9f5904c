"""A batch whose engine guesses ahead: beside the simulator, which draws what is right, and by hand."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.replicas import ROOMY, poisson
from tidegate.core.curve import Linear
from tidegate.core.records import RequestRecord
from tidegate.perf.speculative import Verifying, accepted_tokens, left_over
from tidegate.plan.laws.batching import Batch
from tidegate.plan.laws.engine import Engine
from tidegate.plan.laws.lengths import Lengths
from tidegate.plan.laws.population import Arrivals
from tidegate.plan.laws.speculating import (
    SpeculatingBatch,
    batch_of,
    by_luck,
    of_tokens,
    pace_of,
    steps_for,
    tpot_of,
    tpots_of,
)
from tidegate.plan.laws.spread import Spread
from tidegate.plan.laws.steady import steady
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
from tidegate.sim.profiles import Profile
from tidegate.sim.run import simulate
from tidegate.sim.scenario import ReplicaScenario, Scenario
from tidegate.sim.settings import ReplicaSettings, Speculation
from tidegate.workload.requests import OpenLoop, PlannedRequest

CURVE = Linear(a_s=10e-3, b_s_per_sequence=0.1e-3, c_s_per_context_token=5e-8, d_s_per_prefill_token=40e-6)


class Guessing(NamedTuple):
    """Requests at an engine that guesses, with a gate of so many."""

    ratio: float
    draft_tokens: int
    prompt: int = 500
    output: int = 200
    gate: int = 32

    @property
    def engine(self) -> Engine:
        """With room for all."""
        curve = Verifying(curve=CURVE, draft_tokens=self.draft_tokens, acceptance_ratio=self.ratio)
        return Engine(
            curve=curve,
            max_num_seqs=self.gate,
            max_batched_tokens=2048,
            kv_tokens=ROOMY,
            context_tokens=ROOMY,
        )

    @property
    def batch(self) -> Batch:
        """As the planner sees it."""
        return batch_of(self.engine, Lengths.of(self.prompt, self.output))

    def simulated(self, arrivals_at: list[float]) -> list[RequestRecord]:
        """By one replica behind a governor, on a wire without delay."""
        bounds = ReplicaSettings(
            max_num_seqs=self.gate,
            max_batched_tokens=2048,
            kv_tokens=ROOMY,
            context_tokens=ROOMY,
            speculation=Speculation(draft_tokens=self.draft_tokens, acceptance_ratio=self.ratio),
        )
        profile = Profile(curve=self.engine.profile_curve, replica=bounds)
        pool = PoolSettings(
            queue=QueueSettings(max_requests=10**6, max_tokens=1e15, max_bytes=2**50),
            deadlines=Deadlines(ttft_s=1e6, total_s=1e6),
            gate=GateSettings(max_concurrency=self.gate),
            health=HealthSettings(interval_s=1e9),
        )
        scenario = Scenario(
            governor=GovernorSettings(pools={"m": pool}, classes={"default": ClassSettings(max_wait_s=1e6)}),
            pools={"m": (ReplicaScenario(name="r", profile=profile),)},
            network=Network(delay_s=0.0),
        )
        records: list[RequestRecord] = []
        asked = [
            PlannedRequest(at_s=at_s, prompt_tokens=self.prompt, output_tokens=self.output)
            for at_s in arrivals_at
        ]
        simulate(scenario, OpenLoop(asked), 1, on_record=records.append)
        return sorted(records, key=lambda each: each.ended_at)


CASES = [Guessing(0.8, 4), Guessing(0.5, 2), Guessing(1.0, 3), Guessing(0.3, 3, output=60)]


@pytest.mark.parametrize("case", CASES)
def test_a_full_batch_sustains_what_the_simulator_completes(case: Guessing) -> None:
    """1,000 requests that come at once are worked off at that rate, and at that TPOT, within 3 %."""
    seen = case.simulated([1e-6 * n for n in range(1000)])
    first, last = len(seen) // 5, len(seen) * 4 // 5
    rate = (last - first) / (seen[last].ended_at - seen[first].ended_at)
    tpots = [each.tpot_s for each in seen[first:last] if each.tpot_s is not None]

    assert case.batch.saturated(case.gate).requests_per_s == pytest.approx(rate, rel=0.03)
    assert tpot_of(case.batch, case.gate) == pytest.approx(sum(tpots) / len(tpots), rel=0.03)


@pytest.mark.parametrize("case", CASES[:2])
def test_latencies_are_the_simulators(case: Guessing) -> None:
    """At half of that rate: TPOT in the mean within 3 % and at P95 and P99, which are luck, within 6 %."""
    batch = case.batch
    rate = 0.5 * batch.saturated(case.gate).requests_per_s
    seen = case.simulated(poisson(rate, 2000))[200:]
    found = steady(batch, Arrivals(rate_per_s=rate), case.gate)
    tpots = tpots_of(batch, found.tpot_s)
    drawn = np.array([each.tpot_s for each in seen])
    ttfts, e2es = np.array([each.ttft_s for each in seen]), np.array([each.e2e_s for each in seen])

    assert tpots.mean == pytest.approx(drawn.mean(), rel=0.03)
    for level in (95, 99):
        assert tpots.quantile(level / 100) == pytest.approx(np.percentile(drawn, level), rel=0.06)
        assert found.e2e_s.quantile(level / 100) == pytest.approx(np.percentile(e2es, level), rel=0.06)
    assert found.ttft_s.mean == pytest.approx(ttfts.mean(), rel=0.1)


def test_steps_of_an_output_by_hand() -> None:
    """199 tokens after the first at 3.3616 a step, of the last of which 1.56 are left over: 59.7 steps."""
    case = Guessing(0.8, 4)
    over = left_over(0.8, 4)
    assert over == pytest.approx(1.563, abs=1e-3)
    assert case.batch.decode_steps == pytest.approx((199 + over) / 3.3616)
    assert pace_of(case.batch) == pytest.approx(199 / case.batch.decode_steps)
    assert tpot_of(case.batch, 1) * pace_of(case.batch) == case.batch.saturated(1).tpot_s


def test_what_is_of_tokens_stays() -> None:
    """The context that is attended to, and what a cache holds."""
    lengths = Lengths.of(1000, 201)
    case = Guessing(0.7, 3).engine
    plain = Batch(case, lengths)
    batch = batch_of(case, lengths)
    assert isinstance(batch, SpeculatingBatch)
    assert (batch.kv_gate, batch.context_tokens) == (plain.kv_gate, plain.context_tokens)
    assert of_tokens(batch).decode_steps == of_tokens(plain).decode_steps == 200
    assert batch.engine.max_batched_tokens == 2048 - 3 * 32
    assert batch.decode_s(4) == pytest.approx(CURVE.step_s(4, 4 * (1100.5 + 3), [], 12))


def test_the_gate_of_a_tpot_budget_is_of_tokens() -> None:
    """The last number whose tokens come within it, though its steps do not."""
    batch = Guessing(0.8, 4, gate=256).batch
    gate = batch.tpot_gate(10e-3)
    assert tpot_of(batch, gate) <= 10e-3 < tpot_of(batch, gate + 1)
    assert batch.saturated(gate).step_s > 10e-3


@given(st.floats(0, 1), st.integers(1, 8), st.floats(1, 2000))
def test_steps_are_fewer_than_tokens_and_one_at_least(ratio: float, guesses: int, tokens: float) -> None:
    """And never fewer than if every guess were right."""
    curve = Verifying(curve=CURVE, draft_tokens=guesses, acceptance_ratio=ratio)
    assert max(1.0, tokens / accepted_tokens(ratio, guesses)) <= steps_for(tokens, curve) * (1 + 1e-9)
    assert steps_for(tokens, curve) <= tokens * (1 + 1e-9) + 1 / 2
    assert steps_for(0.0, curve) == 0.0
    assert steps_for(tokens, CURVE) == tokens


def test_luck_spreads_what_all_share() -> None:
    """Steps of 10 ms for all: a TPOT with the mean and the deviation that drawing each guess gives."""
    curve = Verifying(curve=CURVE, draft_tokens=4, acceptance_ratio=0.8)
    seconds, shares = by_luck((np.array([10e-3]), np.ones(1)), curve, 200.0)
    mean = float((seconds * shares).sum())
    rng, drawn = Random(3), []
    for _ in range(3000):
        tokens, steps = 200, 0
        while tokens > 0:
            right = 0
            while right < 4 and rng.random() < 0.8:
                right += 1
            tokens, steps = tokens - 1 - right, steps + 1
        drawn.append(10e-3 * steps / 200)
    assert mean == pytest.approx(np.mean(drawn), rel=0.01)
    assert float(np.sqrt(((seconds - mean) ** 2 * shares).sum())) == pytest.approx(np.std(drawn), rel=0.05)


def test_without_guesses_nothing_is_changed() -> None:
    """The batch and its spread are as they were; what never comes stays that."""
    engine = Engine(
        curve=CURVE, max_num_seqs=8, max_batched_tokens=512, kv_tokens=ROOMY, context_tokens=ROOMY
    )
    batch = batch_of(engine, Lengths.of(100, 50))
    spread = Spread.never()
    assert type(batch) is Batch
    assert pace_of(batch) == 1
    assert tpots_of(batch, spread) is spread
    assert tpots_of(CASES[0].batch, spread).p95 == float("inf")
    assert (engine.draft_tokens, engine.tokens_per_step, engine.profile_curve) == (0, 1.0, CURVE)
