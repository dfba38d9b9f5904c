"""Prompts in steps: a queue whose mean is known, and limits that are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.plan.replicas import LINE
from tidegate.core.curve import Linear
from tidegate.plan.laws.batching import Batch
from tidegate.plan.laws.engine import Engine
from tidegate.plan.laws.lengths import Lengths
from tidegate.plan.laws.prompts import prompts
from tidegate.plan.laws.spread import Spread

if TYPE_CHECKING:
    from tidegate.plan.laws.prompts import Law

ENGINE = Engine(
    curve=Linear(a_s=10e-3, d_s_per_prefill_token=20e-6),
    max_num_seqs=256,
    max_batched_tokens=2**20,
    kv_tokens=2**30,
    context_tokens=2**20,
)
"""A step takes 10 ms, and 20 ms more for a prompt of 1000 tokens."""


def mean(law: Law) -> float:
    """Of a law."""
    return float((law[0] * law[1]).sum() / law[1].sum())


@pytest.mark.parametrize("prompt_cv", [0.0, 1.0])
@pytest.mark.parametrize("rate_per_s", [1.0, 10.0, 25.0, 40.0])
def test_the_mean_step_is_what_its_prompts_make_it(rate_per_s: float, prompt_cv: float) -> None:
    """E[S] = T + rate E[S] p: a step has the prompts that came in the one before it."""
    found = prompts(Batch(ENGINE, Lengths.of(1000, 100, prompt_cv)), rate_per_s, 10.0)

    assert found.mean_step_s == pytest.approx(10e-3 / (1 - rate_per_s * 20e-3), rel=0.01)
    assert mean(found.steps) == pytest.approx(found.mean_step_s, rel=1e-6)
    assert found.steps[0][0] == pytest.approx(10e-3)


def test_alone_it_waits_for_the_step_under_way() -> None:
    """Light load: uniform from nothing to a step, then its own step."""
    found = prompts(Batch(ENGINE, Lengths.of(1000, 100)), 1e-3, 10.0)

    assert found.mean_wait_s == pytest.approx(5e-3 + 30e-3, rel=1e-3)
    law = Spread.of(found.waits)
    for ratio in (0.1, 0.5, 0.95):
        assert law.quantile(ratio) == pytest.approx(30e-3 + 10e-3 * ratio, abs=1.2e-3), (
            ratio
        )  # fifths of a step
    assert mean(found.boundary_waits) == pytest.approx(30e-3, rel=1e-3)
    assert found.behind_s == pytest.approx(0.0, abs=1e-4)


def test_a_long_prompt_takes_several_steps() -> None:
    """5000 tokens in steps of 1000 that have 10 sequences to decode: six, all but the last full."""
    batch = Batch(replace(ENGINE, max_batched_tokens=1010), Lengths.of(5500, 100))
    found = prompts(batch, 1e-3, 10.0)

    assert mean(found.boundary_waits) == pytest.approx(6 * 10e-3 + 5500 * 20e-6, rel=0.02)
    assert found.steps_waited == pytest.approx(6.5, abs=0.05)


@given(st.sampled_from(sorted(LINE)), st.floats(0.01, 0.9), st.floats(0.1, 6))
def test_laws_are_laws(name: str, utilisation: float, cv2: float) -> None:
    """Shares sum to one, nothing is shorter than a step without prompts, and waits hold their mean."""
    served = LINE[name]
    batch = served.batch
    rate = utilisation * batch.saturated(served.gate).requests_per_s
    found = prompts(batch, rate, served.gate / 2, cv2)

    for law in (found.steps, found.waits, found.boundary_waits):
        assert float(law[1].sum()) == pytest.approx(1, abs=1e-6)
        assert float(law[0].min()) >= batch.decode_s(served.gate / 2) * (1 - 1e-9)
        assert bool((np.diff(law[0]) >= -1e-12).all())
    assert mean(found.waits) == pytest.approx(found.mean_wait_s, rel=1e-6)
    assert found.mean_wait_s > mean(found.boundary_waits)


@given(st.sampled_from(sorted(LINE)), st.floats(0.02, 0.85))
def test_more_prompts_wait_longer(name: str, utilisation: float) -> None:
    """Waits and steps grow with the rate; bursts wait longer, even arrivals shorter."""
    served = LINE[name]
    batch, decodes = served.batch, served.gate / 2
    rate = utilisation * batch.saturated(served.gate).requests_per_s
    found = prompts(batch, rate, decodes)

    assert prompts(batch, rate * 1.1, decodes).mean_wait_s >= found.mean_wait_s * 0.995
    assert prompts(batch, rate * 1.1, decodes).mean_step_s >= found.mean_step_s
    assert prompts(batch, rate, decodes, 4.0).mean_wait_s >= found.mean_wait_s * 0.995
    assert prompts(batch, rate, decodes, 0.3).mean_wait_s <= found.mean_wait_s * 1.005
