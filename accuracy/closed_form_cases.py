"""Which loads is the closed form of latencies compared with simulations of, and how is one simulated?

Each group of cases was written down before any of it was run. The tests beside which
`tidegate.plan.laws.steady` was made have other lengths and seeds, and of these engines `h100-8b` only.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tidegate.catalog.catalog import Catalog
from tidegate.config.traces import load_trace
from tidegate.perf.deployment import Deployment
from tidegate.plan.arrivals import load_of_streams
from tidegate.plan.ask import Kind, Load
from tidegate.plan.deployed import deployed
from tidegate.plan.laws.batching import Batch
from tidegate.plan.laws.engine import Engine
from tidegate.plan.served import lengths_of
from tidegate.planning.loads import trace_stream
from tidegate.policy.settings import (
    ClassSettings,
    Deadlines,
    GateSettings,
    GovernorSettings,
    LimitSettings,
    PoolSettings,
    QueueSettings,
    TenantSettings,
)
from tidegate.sim.network import Network
from tidegate.sim.profiles import Profile, named
from tidegate.sim.run import simulate
from tidegate.sim.scenario import ReplicaScenario, Scenario
from tidegate.sim.settings import ReplicaSettings
from tidegate.simulate import columns
from tidegate.workload.requests import OpenLoop, PlannedRequest

Floats = NDArray[np.float64]

H100_8B, LLAMA_70B, QWEN_30B = "h100-8b", "Llama 3.1 70B fp8, 4 x H100", "Qwen3 30B-A3B, 1 x H100"
ENGINES: Final = (H100_8B, LLAMA_70B, QWEN_30B)
TRACE: Final = "azure-conv"
LENGTHS: Final[dict[str, tuple[int, int] | None]] = {
    "512/200": (512, 200),
    "4000/300": (4000, 300),
    "Azure conversation": None,
    "2000/150": (2000, 150),
}
"""Prompt and output tokens of each request; None: pairs drawn from the trace."""
MOST_SEQUENCES: Final = 64
"""Of a replica's batch, so that a run of some thousand requests fills it often."""
LOADS: Final = (0.3, 0.5, 0.7, 0.8, 0.9)
"""Of the sustained rate at the gate."""
BURSTY: Final = 2.0
"""Coefficient of variation of the gaps, which are gamma-distributed."""
SEEDS: Final = range(7001, 7006)
WARM_UP: Final = 0.25
"""Of the requests, that are not counted."""


class Case(NamedTuple):
    """An engine, what is asked of it, and how it comes."""

    engine: str
    lengths: str
    replicas: int = 1
    gap_cv: float = 1.0

    def __str__(self) -> str:
        """As the page names it."""
        gaps = "Poisson" if self.gap_cv == 1 else f"gaps of cv {self.gap_cv:g}"
        several = f"{self.replicas} replicas" if self.replicas > 1 else "1 replica"
        return f"{self.engine}; {self.lengths}; {several}; {gaps}"

    @property
    def load(self) -> Load:
        """As a plan has it: of a trace, 25 cells of similar lengths."""
        if (pair := LENGTHS[self.lengths]) is None:
            return _traced()
        return Load(kinds=(Kind(prompt_tokens=pair[0], output_tokens=pair[1]),), requests_per_s=1.0)

    @property
    def batch(self) -> Batch:
        """As the closed form has it."""
        return Batch(_engine(self.engine), lengths_of(self.load))

    def requests(self, load: float) -> int:
        """Of a run: more where the gate closes, and where there is more to fill."""
        return (800 if load < 0.75 else 2000) * (2 if self.replicas > 1 else 1)


SINGLE: Final = tuple(Case(engine, lengths) for engine in ENGINES for lengths in list(LENGTHS)[:3])
POOLED: Final = (
    Case(H100_8B, "512/200", replicas=4),
    Case(LLAMA_70B, "Azure conversation", replicas=4),
    Case(QWEN_30B, "4000/300", replicas=4),
)
BURSTS: Final = (
    Case(H100_8B, "4000/300", gap_cv=BURSTY),
    Case(LLAMA_70B, "512/200", gap_cv=BURSTY),
    Case(QWEN_30B, "Azure conversation", gap_cv=BURSTY),
)
POOLED_BURSTS: Final = (
    Case(H100_8B, "Azure conversation", replicas=4, gap_cv=BURSTY),
    Case(LLAMA_70B, "4000/300", replicas=4, gap_cv=BURSTY),
    Case(QWEN_30B, "512/200", replicas=4, gap_cv=BURSTY),
)
SECOND: Final = (
    Case(LLAMA_70B, "2000/150", replicas=2, gap_cv=BURSTY),
    Case(QWEN_30B, "Azure conversation", replicas=3, gap_cv=BURSTY),
    Case(H100_8B, "512/200", replicas=3, gap_cv=BURSTY),
    Case(H100_8B, "2000/150", replicas=6),
)
"""Named, and run for the first time, after those above had led to a correction of TPOT's spread with several
replicas. They led to one of TTFT."""
CASES: Final = (*SINGLE, *POOLED, *BURSTS, *POOLED_BURSTS, *SECOND)
LAST: Final = (
    Case(LLAMA_70B, "512/200", replicas=3),
    Case(QWEN_30B, "2000/150", replicas=2, gap_cv=BURSTY),
    Case(H100_8B, "Azure conversation", replicas=5),
    Case(LLAMA_70B, "2000/150", replicas=5, gap_cv=BURSTY),
)
"""Named, and run for the first time, after both corrections."""


@cache
def _engine(name: str) -> Engine:
    if name == H100_8B:
        known = named(name)
        bounds = known.replica
        return Engine(
            curve=known.curve,
            max_num_seqs=MOST_SEQUENCES,
            max_batched_tokens=bounds.max_batched_tokens,
            kv_tokens=bounds.kv_tokens,
            context_tokens=bounds.context_tokens,
        )
    catalog = Catalog.shipped()
    model, tp, weights = {
        LLAMA_70B: ("Llama-3.1-70B", 4, "fp8"),
        QWEN_30B: ("Qwen3-30B-A3B", 1, None),
    }[name]
    deployment = Deployment(
        model=catalog.model(model), accelerator=catalog.accelerator("h100-sxm"), tp=tp, weights=weights
    )
    return replace(deployed(deployment).engine, max_num_seqs=MOST_SEQUENCES)


@cache
def _traced() -> Load:
    return load_of_streams([trace_stream(TRACE)])


@cache
def _pairs() -> list[tuple[int, int]]:
    return [(row.prompt_tokens, row.output_tokens) for row in load_trace(TRACE)]


def figures_of(case: Case, gate: int, rate_per_s: float, load: float, seed: int) -> dict[str, Floats]:
    """TTFT, TPOT and E2E of the requests of one run."""
    kept = columns.Columns()
    requests = case.requests(load)
    outcome = simulate(
        _scenario(case, gate), OpenLoop(_requests(case, rate_per_s, requests, seed)), seed, on_record=kept.add
    )
    assert outcome.counts.finished == requests
    rows = kept.rows()[int(WARM_UP * requests) :]
    tpot_s = columns.tpot_s(rows)
    return {"ttft_s": columns.ttft_s(rows), "tpot_s": tpot_s[tpot_s > 0], "e2e_s": columns.e2e_s(rows)}


def disorder(case: Case, gate: int, rate_per_s: float, seed: int) -> float:
    """Of how many arrivals it takes until a replica gets one again: the variance over that of a draw.

    `tidegate.plan.laws.population.DISORDER` rests on it.
    """
    kept = columns.Columns()
    requests = 4000
    arriving = OpenLoop(_requests(case, rate_per_s, requests, seed))
    simulate(_scenario(case, gate), arriving, seed, on_record=kept.add)
    chosen = kept.rows()["replica"][int(WARM_UP * requests) :]
    turns = [np.diff(np.flatnonzero(chosen == replica)) for replica in range(case.replicas)]
    return float(np.mean([each.var() for each in turns])) / (case.replicas * (case.replicas - 1))


def _requests(case: Case, rate_per_s: float, count: int, seed: int) -> Iterator[PlannedRequest]:
    rng, at_s, cv2 = Random(seed), 0.0, case.gap_cv**2
    pair = LENGTHS[case.lengths]
    for _ in range(count):
        at_s += rng.gammavariate(1 / cv2, cv2 / rate_per_s)
        prompt, output = pair or rng.choice(_pairs())
        yield PlannedRequest(
            at_s=at_s, tenant="tenant", prompt_tokens=max(1, prompt), output_tokens=max(1, output)
        )


def _scenario(case: Case, gate: int) -> Scenario:
    """A whole governor as in `benchmarks.simulator`, its queue at the gate; one tenant: first come, first
    served. The wire takes no time, for the closed form has none.
    """
    engine = _engine(case.engine)
    bounds = ReplicaSettings(
        max_num_seqs=engine.max_num_seqs,
        max_batched_tokens=engine.max_batched_tokens,
        kv_tokens=engine.kv_tokens,
        context_tokens=engine.context_tokens,
        block_tokens=engine.block_tokens,
    )
    limits = LimitSettings(tokens_per_minute=1e15, requests_per_minute=1e15)
    pool = PoolSettings(
        queue=QueueSettings(max_requests=10**6, max_tokens=1e15, max_bytes=2**50),
        deadlines=Deadlines(ttft_s=1e6, total_s=1e6),
        gate=GateSettings(max_concurrency=gate),
    )
    profile = Profile(curve=engine.profile_curve, replica=bounds)
    return Scenario(
        governor=GovernorSettings(
            pools={"pool": pool},
            classes={"default": ClassSettings(max_wait_s=1e6)},
            tenants={"tenant": TenantSettings(limits=limits)},
            limits=limits,
        ),
        pools={"pool": tuple(ReplicaScenario(name=f"r{n}", profile=profile) for n in range(case.replicas))},
        network=Network(delay_s=0.0),
    )
