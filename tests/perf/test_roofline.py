"""Step times follow from what is read, computed and exchanged."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.perf.shapes import DEEPSEEK, GPT_OSS, LLAMA_8B, LLAMA_70B, STATES, device
from tidegate.catalog.models import Model
from tidegate.core.curve import Chunk, Table
from tidegate.perf.activations import STORED
from tidegate.perf.deployment import SOFTWARE, Deployment
from tidegate.perf.efficiencies import efficiencies_of, waiting_of
from tidegate.perf.roofline import Roofline, above, bound_at, curve_of, either, least, most, roofline_of
from tidegate.perf.work import UNLIMITED, work_of

MODELS = st.sampled_from([LLAMA_8B, LLAMA_70B, DEEPSEEK, GPT_OSS, STATES])
DECODES = st.integers(1, 600)
CONTEXT = st.integers(1, 60_000)
CHUNKS = st.lists(st.tuples(st.integers(1, 8192), st.integers(0, 60_000)), max_size=3)


def on(model: Model, **settings: object) -> Deployment:
    """That model on 8 devices with ample memory."""
    return msgspec.structs.replace(Deployment(model=model, accelerator=device(640), tp=8), **settings)


def exact(roof: Roofline, decodes: int, context_tokens: float, chunks: list[Chunk]) -> float:
    """The formula, without a table."""
    new = sum(tokens for tokens, _ in chunks)
    return (
        roof.tokens_s(decodes + new)
        + roof.sequences_s(decodes + len(chunks))
        + roof.decode_s(decodes, context_tokens)
        + sum(roof.prefill_s(*chunk) for chunk in chunks)
    )


def test_a_lone_sequence_reads_all_weights_once() -> None:
    """8B in bf16 at 3.35 TB/s: 4.5 ms at the very best, 5 to 8 ms with what is reached and layers between."""
    alone_s = curve_of(on(LLAMA_8B, tp=1)).step_s(1, 100.0)
    assert 2 * 7.5e9 / 3.35e12 < alone_s < 8e-3


def test_what_a_device_reads_and_computes_is_its_share() -> None:
    """70B: 2 bytes and 2 products a parameter; on 8 devices an eighth, and two all-reduces a layer."""
    one, eight = work_of(on(LLAMA_70B, tp=1)), work_of(on(LLAMA_70B))
    parameters = 80 * 8192 * (128 * (2 * 64 + 2 * 8) + 3 * 28672)

    assert one.read_bytes == (2.0 * parameters, 0, 0, 0)
    assert one.flops_per_token[0] == 2 * parameters
    assert [8 * each for each in eight.read_bytes] == pytest.approx(list(one.read_bytes))
    assert (one.reduces, eight.reduces) == (0, 160)
    assert one.spans[0].read_bytes == 320 * 1024
    assert one.spans[0].limit_tokens == UNLIMITED


def test_parts_are_read_in_the_precision_that_they_are_stored_in() -> None:
    """gpt-oss in four bits: attention and routers in 16."""
    work = work_of(on(GPT_OSS))
    by_name = dict(zip(STORED, work.expert_bytes, strict=True))
    assert work.read_bytes[0] > 0
    assert work.read_bytes[1:] == (0, 0, 0)
    assert by_name["fp4"] == pytest.approx(36 * 128 * 3 * 2880 * 2880 * 4.5 / 8 / 8)
    assert work.chosen_share == 4 / 128


def test_experts_are_read_as_far_as_tokens_reach_them() -> None:
    """1 token of gpt-oss chooses 4 of 128; a thousand choose all; a window is read up to its end."""
    roof = roofline_of(on(GPT_OSS))
    all_s = roof.expert_reading_s(1e6)
    assert roof.expert_reading_s(1) == pytest.approx(all_s * 4 / 128)
    assert roof.expert_reading_s(32) == pytest.approx(all_s * (1 - (1 - 4 / 128) ** 32))
    half_s = roof.decode_s(1, 256) - roof.decode_s(1, 128)
    assert roof.decode_s(1, 128) == pytest.approx(2 * half_s, rel=1e-6)


def test_a_prompt_attends_to_what_is_before_it() -> None:
    """In pieces it takes as long as at once."""
    roof = roofline_of(on(GPT_OSS))
    pieces = sum(roof.prefill_s(1000, before) for before in range(0, 8000, 1000))
    assert pieces == pytest.approx(roof.prefill_s(8000, 0))


@pytest.mark.parametrize("value", [0.0, 1.0, 3.0])
def test_the_smaller_and_the_larger_one(value: float) -> None:
    """As min and max."""
    assert (least(value, 2.0), most(value, 2.0), above(value - 2)) == (
        min(value, 2.0),
        max(value, 2.0),
        max(value - 2, 0.0),
    )
    assert max(value, 2.0) <= either(value, 2.0) <= 1.19 * max(value, 2.0)


@given(MODELS, DECODES, CONTEXT, CHUNKS, st.sampled_from(SOFTWARE))
def test_the_curve_is_the_sum_of_its_parts(
    model: Model, decodes: int, context: int, chunks: list[Chunk], software: str
) -> None:
    """A valid table, 2 % above the formula at most."""
    deployment = on(model, software=software)
    curve = curve_of(deployment)
    roof = roofline_of(deployment)
    step_s = curve.step_s(decodes, decodes * context, chunks)

    assert isinstance(curve, Table)
    assert msgspec.json.decode(msgspec.json.encode(curve), type=Table) == curve
    assert step_s == pytest.approx(exact(roof, decodes, context, chunks), rel=0.02)


@given(MODELS, DECODES, CONTEXT, CHUNKS, st.sampled_from(SOFTWARE))
def test_what_binds_is_the_largest_part_of_the_step(
    model: Model, decodes: int, context: int, chunks: list[Chunk], software: str
) -> None:
    """The four sum up to the formula."""
    deployment = on(model, software=software)
    bound = bound_at(deployment, decodes, decodes * context, chunks)
    parts = {name: getattr(bound, f"{name}_s") for name in ("compute", "bandwidth", "link", "overhead")}

    assert sum(parts.values()) == pytest.approx(exact(roofline_of(deployment), decodes, context, chunks))
    assert parts[bound.name] == max(parts.values())


@given(MODELS, DECODES, CONTEXT, st.integers(1, 8192), st.floats(1.05, 4))
def test_more_work_is_never_faster_and_a_better_device_never_slower(
    model: Model, decodes: int, context: int, new: int, better: float
) -> None:
    """In tokens, context and prompts; in bandwidth, peak and link."""
    curve = curve_of(on(model))
    step_s = curve.step_s(decodes, decodes * context, [(new, 0)])
    faster = {
        "bandwidth_bytes_per_s": 3.35e12 * better,
        "bf16_flops_per_s": 989e12 * better,
        "link_bytes_per_s": 450e9 * better,
    }

    assert curve.step_s(decodes + 1, (decodes + 1) * context, [(new, 0)]) >= step_s
    assert curve.step_s(decodes, decodes * (context + 100), [(new, 0)]) >= step_s
    assert curve.step_s(decodes, decodes * context, [(new + 1, 0)]) >= step_s
    assert curve.step_s(decodes, decodes * context, [(new, 100)]) >= step_s
    for name, value in faster.items():
        other = curve_of(on(model, accelerator=device(640, **{name: value})))
        assert other.step_s(decodes, decodes * context, [(new, 0)]) <= step_s * (1 + 1e-9), name


def test_what_binds_changes_with_the_batch() -> None:
    """Few sequences read weights, a long prompt computes; across nodes it exchanges."""
    few = on(LLAMA_70B, tp=2)
    assert bound_at(few, 4, 4000.0).name == "bandwidth"
    assert bound_at(few, 4, 4000.0, [(8192, 0)]).name == "compute"
    across = on(LLAMA_70B, tp=16)
    assert bound_at(across, 1, 100.0, [(8192, 0)]).name == "link"
    assert bound_at(on(STATES), 1, 10.0).name == "overhead"


def test_copies_of_attention_and_stages_share_what_is_in_a_step() -> None:
    """Of 8 copies each reads an eighth of the caches, and all of attention's weights."""
    together, apart = work_of(on(DEEPSEEK)), work_of(on(DEEPSEEK, tp=1, attention_dp=8, ep=8))
    assert (together.parts, apart.parts) == (1, 8)
    assert apart.read_bytes[1] > together.read_bytes[1]
    assert apart.expert_bytes == together.expert_bytes
    one, two = roofline_of(on(LLAMA_70B)), roofline_of(on(LLAMA_70B, pp=2))
    assert two.decode_s(64, 1000) == one.decode_s(32, 1000)


@pytest.mark.parametrize("software", SOFTWARE)
def test_constants_are_shares_and_seconds(software: str) -> None:
    """Of each engine's software; experts may be read faster than evenly, never 1.5 times as fast."""
    reached, waiting = efficiencies_of(software), waiting_of(software)
    assert all(0 < share < 1.5 for share in (*reached.read, *reached.expert_read))
    assert all(0 < share <= 1 for share in (*reached.read, *reached.compute, reached.cache, reached.link))
    assert 0 < reached.step_s < 2e-3
    assert waiting.output_reserved == (1.0 if software == "trtllm" else 0.5)
