"""Parameters are those that the models' makers count."""

from __future__ import annotations

import pytest

from tests.perf.shapes import DEEPSEEK, GPT_OSS, LATENT, LLAMA_2_7B, LLAMA_8B, LLAMA_70B, QWEN_7B, grouped
from tidegate.catalog.models import CompressedAttention, GroupedAttention, Model, NoAttention
from tidegate.perf.parameters import attention_parameters, parameters_of


@pytest.mark.parametrize(
    ("model", "total", "tolerance"),
    [
        (LLAMA_2_7B, 6_738_415_616, 0),  # as the safetensors of the hub sum up
        (LLAMA_8B, 8_030_261_248, 0),
        (LLAMA_70B, 70_553_706_496, 0),
        (QWEN_7B, 7_615_616_512, 1e-4),  # biases of the queries are left out
        (DEEPSEEK, 671_026_419_200, 1e-6),
        (GPT_OSS, 116_829_156_672, 1e-3),
    ],
    ids=["llama-2-7b", "llama-8b", "llama-70b", "qwen-7b", "deepseek", "gpt-oss"],
)
def test_totals_are_those_of_the_checkpoints(model: Model, total: int, tolerance: float) -> None:
    """Without a mixture of experts all but the embedding is active."""
    parameters = parameters_of(model)

    assert parameters.total == pytest.approx(total, rel=tolerance)
    if not parameters.experts:
        assert parameters.active == parameters.total - parameters.embedding


def test_a_token_goes_through_what_the_makers_call_active() -> None:
    """DeepSeek-V3: 37 B; gpt-oss-120b: 5.1 B (both reports)."""
    assert parameters_of(DEEPSEEK).active == pytest.approx(37e9, rel=0.02)
    assert parameters_of(GPT_OSS).active == pytest.approx(5.13e9, rel=0.01)


def test_kv_heads_are_repeated_where_devices_are_more() -> None:
    """8 KV heads on 16 devices: each has one, twice its share."""
    whole, hidden = attention_parameters(grouped(64, 8), 8192), 8192
    for tp, kv in [(1, 8), (4, 2), (8, 1), (16, 1)]:
        assert attention_parameters(grouped(64, 8), hidden, tp) == hidden * 128 * (2 * 64 // tp + 2 * kv), tp
    assert 16 * attention_parameters(grouped(64, 8), hidden, 16) > whole


def test_what_has_no_heads_is_on_every_device() -> None:
    """Latent attention: both down projections, 7168 x (1536 + 512 + 64)."""
    one, two = (attention_parameters(LATENT, 7168, tp) for tp in (1, 2))
    assert 2 * two - one == 7168 * (1536 + 512 + 64)


def test_other_forms_of_attention() -> None:
    """A gate is as large as the query; a shared key and value saves a matrix; no attention has none."""
    plain = attention_parameters(grouped(8, 2), 1024)
    gated = GroupedAttention(heads=8, kv_heads=2, head_dim=128, gated=True)
    shared = GroupedAttention(heads=8, kv_heads=2, head_dim=128, shared_kv=True)
    compressed = CompressedAttention(
        heads=8, head_dim=128, q_rank=256, o_rank=64, o_groups=4, window_tokens=128, ratio=4
    )
    assert attention_parameters(gated, 1024) - plain == 1024 * 8 * 128
    assert plain - attention_parameters(shared, 1024) == 1024 * 2 * 128
    assert attention_parameters(NoAttention(), 1024) == 0
    assert attention_parameters(compressed, 1024) == (
        1024 * (256 + 128) + 256 * 8 * 128 + 64 * (8 * 128 + 4 * 1024) + 2 * 1024 * 128
    )
