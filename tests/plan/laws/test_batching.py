"""A batch: its steps, its gates, and what it sustains when it is full, as the simulator has it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.plan.replicas import LINE, Served, flat, simulated
from tidegate.core.curve import Linear
from tidegate.core.errors import CallerError
from tidegate.plan.laws.batching import Batch
from tidegate.plan.laws.engine import Engine
from tidegate.plan.laws.lengths import Kind, Lengths

CURVE = Linear(
    a_s=10e-3,
    b_s_per_sequence=0.1e-3,
    c_s_per_context_token=1e-7,
    d_s_per_prefill_token=50e-6,
    e_s_per_prefill_token_squared=1e-9,
)
ENGINE = Engine(
    curve=CURVE, max_num_seqs=64, max_batched_tokens=2048, kv_tokens=199_418, context_tokens=131_072
)


def test_a_step_is_the_curves() -> None:
    """Sequences attend to the mean context of their decode steps; prompts are whole chunks."""
    batch = Batch(ENGINE, Lengths.of(1000, 201))

    assert batch.context_tokens == pytest.approx(1000 + (1 + 200) / 2)
    for decodes in (0, 1, 7, 16, 32):
        assert batch.decode_s(decodes) == pytest.approx(CURVE.step_s(decodes, decodes * 1100.5))
    assert batch.step_s(4, 1000) == pytest.approx(CURVE.step_s(4, 4 * 1100.5, [(1000, 0)]))
    assert batch.step_s(4, 2000) == pytest.approx(CURVE.step_s(4, 4 * 1100.5, [(1000, 0), (1000, 0)]))
    assert batch.prefill_s(4) == pytest.approx(0.1e-3 + 50e-3 + 1e-3)


@given(st.floats(0, 200), st.floats(1, 1e5))
def test_between_what_was_asked_of_the_curve_steps_are_straight(decodes: float, prompt: float) -> None:
    """A linear curve is met exactly, one number at a time and many at once."""
    batch = Batch(ENGINE, Lengths.of(prompt, 100))
    expected = 10e-3 + decodes * (0.1e-3 + 1e-7 * batch.context_tokens)

    assert batch.decode_s(decodes) == pytest.approx(expected)
    assert batch.decode_many_s(np.array([decodes])) == pytest.approx(expected)


def test_attention_of_prompts_counts_long_ones_more() -> None:
    """The mean of a square: kinds of 1000 and 3000 tokens cost e x 5e6 each, in chunks or not."""
    kinds = tuple(Kind(prompt_tokens=tokens, output_tokens=100) for tokens in (1000, 3000))
    whole = Batch(replace(ENGINE, max_batched_tokens=8192), Lengths(kinds=kinds))
    chunked = Batch(ENGINE, Lengths(kinds=(replace(kinds[1]),)))

    assert whole.prefill_s(0) == pytest.approx(0.1e-3 + 50e-6 * 2000 + 1e-9 * 5e6)
    # 1.46 chunks of 2048; each costs a place in the batch.
    assert chunked.prefill_s(0) == pytest.approx(0.1e-3 * 3000 / 2048 + 50e-6 * 3000 + 1e-9 * 9e6)


@pytest.mark.parametrize(
    ("kv_tokens", "prompt", "output", "gate"),
    [  # figures of issue 4
        (199_418, 3_596, 500, 48),
        (199_418, 32_268, 500, 6),
        (163_840, 500, 100, 269),  # 608 tokens in whole blocks
    ],
)
def test_what_a_cache_holds(kv_tokens: int, prompt: int, output: int, gate: int) -> None:
    """Sequences at their full length, in whole blocks."""
    batch = Batch(replace(ENGINE, kv_tokens=kv_tokens, max_num_seqs=1024), Lengths.of(prompt, output))

    assert batch.kv_gate == gate
    assert batch.gate() == gate
    assert Batch(replace(batch.engine, max_num_seqs=4), batch.lengths).gate() == 4


def test_the_gate_of_a_tpot_budget() -> None:
    """The last number whose TPOT is within it; none where one sequence alone is slower."""
    batch = Batch(ENGINE, Lengths.of(500, 200))
    for budget_s in (12e-3, 15e-3, 20e-3):
        gate = batch.tpot_gate(budget_s)
        assert batch.saturated(gate).tpot_s <= budget_s < batch.saturated(gate + 1).tpot_s
    assert batch.tpot_gate(9e-3) == 0
    assert batch.tpot_gate(1.0) == 64
    assert batch.gate(12e-3) == batch.tpot_gate(12e-3)


def test_answers_of_one_token_are_within_any_tpot() -> None:
    """They have none: no budget for it keeps them out, however long a step takes."""
    batch = Batch(ENGINE, Lengths.of(500, 1))

    assert batch.tpot_gate(1e-9) == batch.batch_gate
    assert batch.gate(1e-9) == batch.gate()


@pytest.mark.parametrize(
    "served",
    [
        *LINE.values(),
        Served("demo", 4000, 10, 0.5, 0.5, 32),
        Served("demo", 1000, 1, 0.0, 0.0, 32),
        Served("demo", 500, 2, 0.0, 0.0, 32),
        Served("demo", 1000, 100, 0.5, 0.5, 2),
    ],
)
def test_a_full_batch_sustains_what_the_simulator_completes(served: Served) -> None:
    """1500 requests that come at once are worked off at that rate, and at that TPOT, within 3 %."""
    seen = simulated(served, [1e-6 * n for n in range(1500)])
    full = served.batch.saturated(served.gate)
    ended = sorted(each.ended_at for each in seen.records)
    first, last = len(ended) // 5, len(ended) * 4 // 5

    assert full.requests_per_s == pytest.approx((last - first) / (ended[last] - ended[first]), rel=0.03)
    # The middle: neither those that came together nor the last, beside whom the batch empties.
    middle = sorted(seen.records, key=lambda each: each.ended_at)[first:last]
    paces = [each.tpot_s for each in middle if each.tpot_s is not None]
    if paces and served.gate < 64:  # equal outputs that began together still go in step then
        assert full.tpot_s == pytest.approx(sum(paces) / len(paces), rel=0.03)
    assert full.binding == ("prefill" if served.output <= 10 else "decode")


@given(st.integers(1, 200), st.floats(1, 2e4), st.floats(1, 2000), st.floats(0, 1.5))
def test_more_room_sustains_more_and_longer_requests_less(
    gate: int, prompt: float, output: float, cv: float
) -> None:
    """The rate rises with the gate and falls with lengths; TPOT rises with the gate."""
    engine = replace(ENGINE, max_num_seqs=256)
    full = Batch(engine, Lengths.of(prompt, output, cv, cv)).saturated(gate)
    more = Batch(engine, Lengths.of(prompt, output, cv, cv)).saturated(gate + 1)
    longer = Batch(engine, Lengths.of(prompt, output * 1.1, cv, cv)).saturated(gate)

    slack = 1.01  # a step has whole chunks and whole tokens
    assert more.requests_per_s * slack >= full.requests_per_s
    assert more.tpot_s * slack >= full.tpot_s
    assert longer.requests_per_s <= full.requests_per_s * slack


def test_no_gate_lets_nobody_in() -> None:
    """Nothing is sustained then, and asking is a mistake."""
    with pytest.raises(CallerError):
        Batch(flat(), Lengths.of(10, 10)).saturated(0)


def test_evenness_of_outputs() -> None:
    """E[min of two] / E[one]: 1 for equal outputs; 3/4 x 0.5 + 1/4 x 1.5 for two that come equally often."""
    two = (Kind(prompt_tokens=1, output_tokens=150), Kind(prompt_tokens=1, output_tokens=50))
    for lengths, evenness in [
        (Lengths.of(100, 200), pytest.approx(1)),
        (Lengths(kinds=two), pytest.approx(0.75 * 0.5 + 0.25 * 1.5)),
        # Log-normal, cv 1: 2 Phi(-sigma / sqrt 2), sigma² = ln 2, is the mean of a minimum of two.
        (Lengths.of(1, 1e6, 0, 1.0), pytest.approx(0.5559, abs=0.005)),
    ]:
        assert Batch(flat(), lengths).evenness == evenness
