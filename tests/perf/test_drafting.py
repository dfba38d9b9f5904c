"""Steps that guess ahead: what they cost, and where they lose."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.perf.shapes import DEEPSEEK, GPT_OSS, LLAMA_8B, LLAMA_70B, QWEN_7B, STATES, device
from tidegate.catalog.models import Model
from tidegate.core.errors import ConfigurationError
from tidegate.perf.deployment import GIB, Deployment
from tidegate.perf.drafting import bound_of_step, steps_of
from tidegate.perf.efficiencies import efficiencies_of
from tidegate.perf.heads import draft_model, eagle_head, layered_head, lookup, medusa_head, mtp_head
from tidegate.perf.memory import draft_weights_bytes, memory_of
from tidegate.perf.roofline import bound_at, curve_of, roofline_of
from tidegate.perf.speculative import Draft, Speculation, Verifying

MODELS = st.sampled_from([LLAMA_8B, LLAMA_70B, DEEPSEEK, GPT_OSS, STATES])
RATIO = st.floats(0, 1)
GUESSES = st.integers(1, 8)
DECODES = st.integers(1, 600)
CONTEXT = st.integers(1, 60_000)


def on(
    model: Model, draft: Draft | None = None, ratio: float = 0.8, guesses: int = 4, **settings: Any
) -> Deployment:
    """That model on 8 devices with ample memory."""
    guessing = None
    if draft is not None:
        guessing = Speculation(draft=draft, acceptance_ratio=ratio, draft_tokens=guesses)
    values: dict[str, Any] = {"tp": 8, "max_num_seqs": 600} | settings
    return Deployment(model=model, accelerator=device(640), speculation=guessing, **values)


def token_s(deployment: Deployment, decodes: int, context: int) -> float:
    """Of a step that only decodes, by the tokens that it yields."""
    curve = steps_of(deployment)
    yielded = curve.tokens_per_step if isinstance(curve, Verifying) else 1.0
    return curve.step_s(decodes, float(decodes * context)) / yielded


def test_free_guesses_at_one_sequence_are_nearly_as_many_times_as_fast() -> None:
    """70B in bf16 on 8 devices, 3.36 tokens per step: weights are read once for all of them."""
    faster = token_s(on(LLAMA_70B), 1, 1000) / token_s(on(LLAMA_70B, lookup()), 1, 1000)
    assert 0.95 * 3.3616 < faster < 3.3616


def test_many_sequences_are_slower_for_guesses() -> None:
    """Of 600 sequences the products bind: at 30 % nothing is won that is not lost more than once."""
    plain, guessing = on(LLAMA_70B), on(LLAMA_70B, lookup(), ratio=0.3)
    assert token_s(guessing, 1, 1000) < 0.75 * token_s(plain, 1, 1000)
    assert token_s(guessing, 600, 1000) > 1.5 * token_s(plain, 600, 1000)


def test_each_guess_of_a_draft_model_is_a_step_of_its_own() -> None:
    """8B beside 70B: four guesses more are four steps of 8B more, and the products of four tokens."""
    four, eight = (steps_of(on(LLAMA_70B, draft_model(LLAMA_8B), guesses=count)) for count in (4, 8))
    free = [steps_of(on(LLAMA_70B, lookup(), guesses=count)) for count in (4, 8)]
    drafted_s = (eight.step_s(1, 1000.0) - four.step_s(1, 1000.0)) - (
        free[1].step_s(1, 1000.0) - free[0].step_s(1, 1000.0)
    )
    own = roofline_of(on(LLAMA_8B))
    step_s = own.tokens_s(1) + own.sequences_s(1) - own.reached.sequence_s + own.decode_s(1, 1000)
    assert drafted_s == pytest.approx(4 * step_s, rel=1e-3)


def test_medusa_guesses_at_once() -> None:
    """One pass of all heads, however many guesses: cheaper than a head that is run for each."""
    medusa, eagle = (
        steps_of(on(LLAMA_8B, draft, tp=1)) for draft in (medusa_head(LLAMA_8B, 4), eagle_head(LLAMA_8B))
    )
    plain_s = steps_of(on(LLAMA_8B, lookup(), tp=1)).step_s(1, 0.0)
    read_s = 2 * 4 * (4096**2 + 4096 * 128256) / 3.35e12
    reached = efficiencies_of("vllm")
    pass_s = read_s / reached.read[0] + reached.step_s
    assert medusa.step_s(1, 0.0) - plain_s == pytest.approx(pass_s, rel=0.1)
    assert medusa.step_s(1, 0.0) < eagle.step_s(1, 0.0)


def test_guesses_choose_experts_of_their_own() -> None:
    """Of 256 experts of DeepSeek one token reads 8, five read nearly 38: there guesses cost what they win."""
    dense, experts = (
        token_s(on(each), 1, 1000) / token_s(on(each, lookup()), 1, 1000) for each in (LLAMA_70B, DEEPSEEK)
    )
    assert experts < 0.8 * dense


@given(MODELS, GUESSES, DECODES, CONTEXT)
def test_guesses_that_are_never_right_never_pay(
    model: Model, guesses: int, decodes: int, context: int
) -> None:
    """Whatever drafts them: a step takes at least as long, and yields one token."""
    plain = on(model, max_batched_tokens=8192)
    for draft in (lookup(), eagle_head(model)):
        guessing = on(model, draft, ratio=0.0, guesses=guesses)
        assert token_s(guessing, decodes, context) >= token_s(plain, decodes, context) * (1 - 1e-9)


@given(MODELS, RATIO, RATIO, GUESSES, DECODES)
def test_the_more_are_right_the_faster_are_tokens(
    model: Model, one: float, other: float, guesses: int, decodes: int
) -> None:
    """A step takes as long whether guesses are right or not."""
    low, high = sorted((one, other))
    seconds = [
        token_s(on(model, lookup(), ratio=ratio, guesses=guesses), decodes, 1000) for ratio in (low, high)
    ]
    assert seconds[1] <= seconds[0] * (1 + 1e-9)


@settings(max_examples=40)
@given(MODELS, GUESSES, DECODES, CONTEXT)
def test_the_table_is_the_formula(model: Model, guesses: int, decodes: int, context: int) -> None:
    """Verifying, within 3 %: tokens as those of a prompt, attention that reads the cache once."""
    deployment = on(model, lookup(), guesses=guesses)
    roof = roofline_of(deployment)
    expected = roof.tokens_s(decodes * (1 + guesses)) + roof.sequences_s(decodes)
    found_s = steps_of(deployment).step_s(decodes, float(decodes * context))
    least_s, most_s = (
        roof.decode_s(decodes, context),
        roof.decode_s(decodes * (1 + guesses), context + guesses),
    )
    head_s = roof.sequences_s(decodes * (1 + guesses)) - roof.sequences_s(decodes)
    assert (expected + least_s) * 0.97 <= found_s <= (expected + most_s + head_s) * 1.021


def test_without_guesses_it_is_the_roofline() -> None:
    """The same table."""
    assert steps_of(on(LLAMA_8B)) == curve_of(on(LLAMA_8B))
    assert bound_of_step(on(LLAMA_8B), 8, 8000.0) == bound_at(on(LLAMA_8B), 8, 8000.0)


def test_prompts_are_computed_by_the_draft_too() -> None:
    """8B computes a prompt of 4,096 tokens in about 8/70 of what 70B takes; a lookup takes nothing."""
    plain, free, drafted = (
        steps_of(on(LLAMA_70B, draft)).step_s(0, 0.0, [(4096, 0)])
        for draft in (None, lookup(), draft_model(LLAMA_8B))
    )
    assert free == plain
    assert drafted / plain - 1 == pytest.approx(8.03 / 70.6, rel=0.35)


def test_a_draft_takes_weights_and_cache() -> None:
    """70B on 4 devices: 15 GiB and 128 KiB a token for 8B, 4 KiB for a head, nothing for a lookup."""
    plain = memory_of(on(LLAMA_70B, tp=4))
    for draft, weights_gib, kv_kib in (
        (draft_model(LLAMA_8B), 14.96, 128),
        (eagle_head(LLAMA_70B), 1.85, 4),
        (layered_head(LLAMA_70B, 2), 3.19, 8),
        (lookup(), 0, 0),
    ):
        deployment = on(LLAMA_70B, draft, tp=4)
        found = memory_of(deployment)
        assert 4 * draft_weights_bytes(deployment) / GIB == pytest.approx(weights_gib, abs=0.01)
        assert 4 * (found.weights_bytes - plain.weights_bytes) / GIB == pytest.approx(weights_gib, abs=0.01)
        assert found.kv_bytes_per_token - plain.kv_bytes_per_token == kv_kib * 1024
        assert found.kv_tokens <= plain.kv_tokens


def test_what_does_not_fit_with_its_draft_says_so() -> None:
    """8B in 16 GiB is too large as it is; the sentence names what else was asked for."""
    with pytest.raises(ConfigurationError, match="and its draft needs"):
        memory_of(msgspec.structs.replace(on(LLAMA_8B, eagle_head(LLAMA_8B), tp=1), accelerator=device(16)))


def test_a_draft_is_sharded_as_its_model_or_whole() -> None:
    """28 heads of a 7B go with 4 devices, and not with 8; a model keeps its own precision."""
    target = msgspec.structs.replace(LLAMA_70B, vocabulary=QWEN_7B.vocabulary)
    for tp, expected in ((4, 4), (8, 1)):
        draft = on(target, draft_model(QWEN_7B), tp=tp, weights="fp8").draft
        assert draft is not None
        assert (draft.tp, draft.precision) == (expected, "bf16")
    assert on(target, lookup()).draft is None
    head = on(DEEPSEEK, mtp_head(DEEPSEEK)).draft
    assert head is not None
    assert head.precision == "fp8"


def test_many_guesses_bind_by_computing() -> None:
    """What reads at one sequence computes at 600 with guesses; the draft's part is in it."""
    deployment = on(LLAMA_70B, draft_model(LLAMA_8B), tp=4)
    assert bound_of_step(deployment, 1, 1000.0).name == "bandwidth"
    assert bound_of_step(deployment, 600, 600_000.0).name == "compute"
    free = bound_of_step(on(LLAMA_70B, lookup()), 1, 1000.0)
    assert bound_of_step(deployment, 1, 1000.0).bandwidth_s > 1.3 * free.bandwidth_s


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"draft": draft_model(DEEPSEEK)}, "billion parameters, more than"),
        ({"draft": lookup(), "pp": 2}, "beside a model in stages"),
        ({"draft": lookup(), "guesses": 19}, "600 sequences with 19 guesses each has 12,000 tokens"),
    ],
)
def test_drafts_that_cannot_be_deployed(settings: dict[str, Any], words: str) -> None:
    """The fault is named."""
    with pytest.raises(ConfigurationError, match=words):
        on(LLAMA_8B, **settings)
