"""Is a plan that guesses ahead simulated as it guesses, and a full batch not before it is full?"""

from __future__ import annotations

from msgspec.structs import replace

from tests.plan.advice.test_advising import asked
from tests.planning.verify.test_simulating import verified
from tidegate.core.curve import Linear
from tidegate.perf.speculative import Verifying
from tidegate.plan.ask import Kind, Load
from tidegate.plan.laws.engine import Engine

CURVE = Linear(a_s=10e-3, b_s_per_sequence=0.1e-3, c_s_per_context_token=1e-8, d_s_per_prefill_token=20e-6)
ENGINE = Engine(
    curve=Verifying(curve=CURVE, draft_tokens=3, acceptance_ratio=0.7),
    max_num_seqs=64,
    max_batched_tokens=4096,
    kv_tokens=10**6,
    context_tokens=10**5,
)
LOAD = Load(kinds=(Kind(prompt_tokens=500, output_tokens=150),), requests_per_s=8.0)


def test_guesses_are_drawn_and_what_is_planned_holds() -> None:
    """TPOT and E2E of 2.53 tokens a step, at every percentile, beside dice."""
    found = verified(asked(1.0, LOAD, ENGINE, tpot_s=0.05))
    assert all(each.agrees for each in found.figures if each.name.startswith(("tpot_s", "e2e_s")))


def test_a_full_batch_is_measured_when_it_is_full() -> None:
    """Alone an answer takes 1 s, in a full batch 7 s: what is sustained is not counted from the first 2 s."""
    slow = replace(ENGINE, curve=Linear(a_s=6e-3, b_s_per_sequence=0.6e-3, d_s_per_prefill_token=5e-6))
    found = verified(asked(1.0, replace(LOAD, requests_per_s=1.0), slow, tpot_s=0.1))
    (sustained,) = (each for each in found.figures if each.name == "requests_per_s_per_replica")
    assert sustained.agrees, found.sentence
