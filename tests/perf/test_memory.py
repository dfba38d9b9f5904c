"""Weights, blocks and sequences are those that engines report and that people work out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.perf.shapes import (
    DEEPSEEK,
    GPT_OSS,
    LLAMA_2_7B,
    LLAMA_8B,
    LLAMA_70B,
    QWEN_7B,
    QWEN_32B,
    STATES,
    device,
)
from tidegate.catalog.models import Model
from tidegate.core.errors import ConfigurationError
from tidegate.perf.deployment import GIB, Deployment
from tidegate.perf.memory import device_weights_bytes, memory_of


@pytest.mark.parametrize(
    ("model", "usable_gib", "tp", "blocks"),
    [
        (LLAMA_2_7B, 79.1, 1, 7_463),
        (LLAMA_70B, 79.1, 4, 30_251),  # with 8,192 tokens in a step
        (LLAMA_70B, 79.1, 4, 30_425),  # with 2,048
        (QWEN_7B, 79.1, 1, 65_352),
        (LLAMA_8B, 23.52, 1, 2_588),
    ],
)
def test_blocks_are_within_two_percent_of_what_vllm_reported(
    model: Model, usable_gib: float, tp: int, blocks: int
) -> None:
    """H100 at 0.9 by BLIS's runs, RTX 4090 by LLMServingSim's; no figure was fitted to one of them alone."""
    memory = memory_of(Deployment(model=model, accelerator=device(usable_gib), tp=tp))
    assert memory.kv_blocks == pytest.approx(blocks, rel=0.02)


def test_8b_on_one_l40s() -> None:
    """199,418 tokens if norms weigh nothing; 48 sessions of 4K or 6 of 32K."""
    memory = memory_of(Deployment(model=LLAMA_8B, accelerator=device(45)))

    assert memory.kv_tokens == pytest.approx(199_418, rel=5e-5)
    assert memory.kv_blocks == memory.kv_tokens // 16
    assert (memory.sequences(4096), memory.sequences(32768)) == (48, 6)


def test_70b_on_eight_devices() -> None:
    """131.4 GiB of weights leave 428 GiB: 42 sequences of 32K, 85 in fp8."""
    deployment = Deployment(model=LLAMA_70B, accelerator=device(), tp=8)
    memory = memory_of(deployment)
    fp8 = memory_of(Deployment(model=LLAMA_70B, accelerator=device(), tp=8, kv="fp8"))

    assert 8 * memory.weights_bytes / GIB == pytest.approx(131.4, abs=0.05)
    assert 8 * memory.pool_bytes / GIB == pytest.approx(428, abs=0.5)
    assert memory.kv_bytes_per_token == 320 * 1024
    assert (memory.sequences(32768), fp8.sequences(32768)) == (42, 85)


def test_what_is_repeated_on_every_device_is_counted_there() -> None:
    """Latent vectors are not sharded, KV heads until one is on each; copies have pools of their own."""
    for model, per_token, each in [
        (DEEPSEEK, 61 * 576 * 2, 61 * 576 * 2),
        (LLAMA_70B, 80 * 2048 * 2, 80 * 2048 * 2 / 8),
        (QWEN_7B, 28 * 1024 * 2, 28 * 256 * 2),
    ]:
        tp = 7 if model is QWEN_7B else 8
        deployment = Deployment(model=model, accelerator=device(178), tp=tp, weights="fp8")
        memory = memory_of(deployment)
        assert memory.kv_bytes_per_token == per_token
        assert memory.kv_bytes_per_token_per_device == each
    together = memory_of(Deployment(model=DEEPSEEK, accelerator=device(178), tp=8))
    apart = memory_of(Deployment(model=DEEPSEEK, accelerator=device(178), attention_dp=8, ep=8))
    assert 5 * together.kv_tokens < apart.kv_tokens < 8 * together.kv_tokens


def test_windows_and_states_do_not_grow() -> None:
    """Half of gpt-oss keeps a window; three of four layers here keep a state, and take half of it at most."""
    oss = memory_of(Deployment(model=GPT_OSS, accelerator=device()))
    assert oss.kv_bytes_per_token == 18 * 2 * 8 * 64 * 2
    assert oss.bounded_bytes_per_sequence == 18 * 2 * 8 * 64 * 2 * (128 + 16)

    few = memory_of(Deployment(model=STATES, accelerator=device(), max_num_seqs=64))
    many = memory_of(Deployment(model=STATES, accelerator=device(), max_num_seqs=10**6))
    assert few.bounded_bytes_per_sequence == 3 * 1_000_000 * 4
    assert few.sequences_limit == 64
    assert many.sequences_limit == int(many.pool_bytes / 2 / 12e6)
    assert many.kv_tokens == pytest.approx(many.pool_bytes / 2 / 1024, rel=1e-3)


def test_four_bits_leave_attention_and_embeddings_as_they_were() -> None:
    """DeepSeek-R1 in NVFP4 is 397 GB on the hub, gpt-oss-120b 65 GB; dense models are converted whole."""
    for model, gigabytes, tolerance in [(DEEPSEEK, 397, 0.05), (GPT_OSS, 65, 0.06), (QWEN_32B, 20.6, 0.05)]:
        deployment = Deployment(model=model, accelerator=device(640), weights="fp4")
        assert device_weights_bytes(deployment) / 1e9 == pytest.approx(gigabytes, rel=tolerance)


def test_stages_share_the_layers() -> None:
    """The fullest of three stages has 27 of 80 layers."""
    one = Deployment(model=LLAMA_70B, accelerator=device(), tp=4)
    three = Deployment(model=LLAMA_70B, accelerator=device(), tp=4, pp=3)
    table = 128256 * 8192 * 2 / 4
    assert device_weights_bytes(three) - table == pytest.approx(
        (device_weights_bytes(one) - 2 * table) * 27 / 80, rel=1e-4
    )


def test_a_model_larger_than_memory_is_refused_with_the_figures() -> None:
    """Needs 132.6 GiB, has 71.2."""
    with pytest.raises(
        ConfigurationError, match=r"needs 132\.6 GiB on each of 1 device, which have 71\.2 GiB"
    ):
        memory_of(Deployment(model=LLAMA_70B, accelerator=device()))


@given(
    st.sampled_from([LLAMA_8B, GPT_OSS, STATES]),
    st.floats(75, 640),
    st.integers(1, 5000),
    st.sampled_from(["bf16", "fp8"]),
)
def test_what_fits_fits(model: Model, usable_gib: float, tokens: int, kv: str) -> None:
    """So many sequences are within the pool, and one more is not; more memory never holds less."""
    memory = memory_of(Deployment(model=model, accelerator=device(usable_gib), kv=kv))
    count, each = memory.sequences(tokens), memory.sequence_bytes(tokens)
    more = memory_of(Deployment(model=model, accelerator=device(usable_gib + 8), kv=kv))

    assert count * each <= memory.pool_bytes < (count + 1) * each * (1 + 1e-9)
    assert 0 <= memory.kv_tokens <= more.kv_tokens
    assert memory.sequence_bytes(tokens + 1) >= each
