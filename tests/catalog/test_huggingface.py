"""A config.json becomes the model that it describes, or is refused by the name of the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.catalog import configs
from tests.catalog.other_configs import OTHERS
from tests.catalog.shipped_models import configs as published
from tests.shared_data import shared
from tidegate.catalog.catalog import Catalog
from tidegate.catalog.huggingface import model_of
from tidegate.catalog.models import (
    Attention,
    CompressedAttention,
    Dense,
    Experts,
    FeedForward,
    GroupedAttention,
    LatentAttention,
    Model,
    NoAttention,
    RecurrentAttention,
)
from tidegate.catalog.shaping import SHAPING
from tidegate.core.errors import ConfigurationError
from tidegate.perf.parameters import parameters_of


def groups(config: Mapping[str, object]) -> list[tuple[int, Attention, FeedForward]]:
    """The groups of layers of a config."""
    return [(each.count, each.attention, each.feed_forward) for each in model_of(config, "it").layers]


def problem(config: Any) -> str:
    """The one line with which it is refused."""
    with pytest.raises(ConfigurationError) as error:
        model_of(config, "it")
    (line,) = error.value.problems
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    "name, total, active",
    [  # billions, as their makers publish them; of MiMo-V2-Flash, DeepSeek-V4-Flash, GLM-5, Kimi-K3 and
        # Step-3.7-Flash as public repositories had them on 2026-11-30
        ("meta-llama/Llama-3.1-8B", 8.03, None),
        ("meta-llama/Llama-3.1-70B", 70.6, None),
        ("meta-llama/Meta-Llama-3.1-405B", 405.9, None),
        ("Qwen/Qwen2.5-7B-Instruct", 7.62, None),
        ("Qwen/Qwen3-0.6B", 0.6, None),
        ("Qwen/Qwen3-14B", 14.8, None),
        ("Qwen/Qwen3-32B", 32.8, None),
        ("Qwen/Qwen3-30B-A3B", 30.5, 3.3),
        ("Qwen/Qwen3-235B-A22B", 235, 22),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", 480, 35),
        ("Qwen/Qwen3.5-27B", 27, None),
        ("Qwen/Qwen3.5-122B-A10B", 122, 10),
        ("Qwen/Qwen3.5-397B-A17B", 397, 17),
        ("mistralai/Mistral-Nemo-Instruct-2407", 12.2, None),
        ("mistralai/Mixtral-8x7B-v0.1", 46.7, 12.9),
        ("mistralai/Mixtral-8x22B-v0.1", 141, 39),
        ("deepseek-ai/DeepSeek-V2-Lite", 15.7, 2.4),
        ("deepseek-ai/DeepSeek-V3", 671, 37),
        ("deepseek-ai/DeepSeek-V4-Flash", 284, 13),
        ("deepseek-ai/DeepSeek-V4-Pro", 1_600, 49),
        ("moonshotai/Kimi-K2-Instruct", 1_026, 32),
        ("zai-org/GLM-5", 744, 40),
        ("openai/gpt-oss-120b", 116.8, 5.13),
        ("openai/gpt-oss-20b", 20.9, 3.6),
        ("MiniMaxAI/MiniMax-M2.5", 229, 10),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 109, 17),
        ("meta-llama/Llama-4-Maverick-17B-128E-Instruct", 400, 17),
        ("google/gemma-4-26B-A4B", 25.2, 3.8),
        ("nvidia/Gemma-4-31B-IT-NVFP4", 30.7, None),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", 49.9, None),
        ("nvidia/Nemotron-H-56B-Base-8K", 56, None),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31.6, 3.2),
        ("XiaomiMiMo/MiMo-V2-Flash", 309, 15),
        ("stepfun-ai/Step-3.7-Flash", 196, 11),
        ("microsoft/Phi-mini-MoE-instruct", 7.6, 2.4),
        ("moonshotai/Kimi-K3", 2_780, 104),
        ("deepseek-ai/DeepSeek-V3.2", 671, 37),
        ("Qwen/Qwen3.5-35B-A3B", 35, 3),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", 120, 12),
        ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", 550, 55),
        ("Qwen/Qwen3-8B", 8.2, None),
        ("01-ai/Yi-34B", 34.4, None),
    ],
)
def test_published_parameters(name: str, total: float, active: float | None) -> None:
    """The shape gives the totals that the makers state; what is active, with the embedding or without it."""
    parameters = parameters_of(Catalog.shipped().model(name))

    assert parameters.total / 1e9 == pytest.approx(total, rel=0.02)
    if active is None:
        assert parameters.active >= parameters.total - parameters.embedding
    else:
        most = parameters.active + parameters.embedding
        assert 0.94 * parameters.active <= active * 1e9 <= 1.06 * most


@pytest.mark.parametrize("name", OTHERS)
def test_models_that_do_not_ship(name: str) -> None:
    """Families beyond those that ship are read as well, defaults that their configs leave out among them."""
    total, config = OTHERS[name]

    assert parameters_of(model_of(config, name)).total / 1e9 == pytest.approx(total, rel=0.01)


def test_every_published_config_is_read() -> None:
    """All 103, and every layer of each is in a group."""
    shared("model-configs/model_configs.jsonl.gz")
    models = [model_of(config, name) for name, _, config in published()]

    assert len(models) == 103
    assert all(group.count > 0 for model in models for group in model.layers)


def test_kinds_of_layers() -> None:
    """Each family's own words become the same few kinds."""
    grouped = GroupedAttention(heads=8, kv_heads=2, head_dim=32)
    dense, mixture = Dense(size=512), Experts(count=8, chosen=2, size=512)
    small = Experts(count=8, chosen=2, size=64)

    def windowed(**changes: int) -> GroupedAttention:
        return msgspec.structs.replace(grouped, **changes)

    every_other = configs.QWEN_MOE | {"mlp_only_layers": [], "decoder_sparse_step": 2}

    cases: list[tuple[dict[str, object], list[tuple[int, Attention, FeedForward]]]] = [
        (configs.LLAMA, [(4, grouped, dense)]),
        (configs.LLAMA | {"num_key_value_heads": None}, [(4, windowed(kv_heads=8), dense)]),
        (configs.LLAMA | {"head_dim": 48}, [(4, windowed(head_dim=48), dense)]),
        # the first three layers see everything
        (configs.QWEN2, [(3, grouped, dense), (1, windowed(window_tokens=128), dense)]),
        (configs.QWEN2 | {"use_sliding_window": False}, [(4, grouped, dense)]),
        (configs.QWEN_MOE, [(1, grouped, dense), (3, grouped, small)]),
        (
            every_other,
            [(2, grouped, dense), (2, grouped, small)],
        ),
        (configs.MIXTRAL, [(4, grouped, mixture)]),
        (
            configs.GPT_OSS,
            [(2, windowed(head_dim=64, window_tokens=128), mixture), (2, windowed(head_dim=64), mixture)],
        ),
        (
            configs.LLAMA4,
            [
                (2, windowed(window_tokens=512), Dense(size=1024)),
                (1, windowed(window_tokens=512), Experts(count=8, chosen=2, size=512, shared_size=512)),
                (1, grouped, Experts(count=8, chosen=2, size=512, shared_size=512)),
            ],
        ),
        (configs.GEMMA3, [(6, windowed(window_tokens=128), dense), (1, grouped, dense)]),
    ]

    for config, expected in cases:
        assert groups(config) == expected, config


def test_latent_compressed_and_sparse_attention() -> None:
    """What is cached once for all heads, and what an indexer chooses of it."""
    _, (count, latent, experts) = groups(configs.DEEPSEEK)
    assert (count, experts) == (3, Experts(count=8, chosen=2, size=64, shared_size=128))
    assert latent == LatentAttention(heads=8, q_rank=64, kv_rank=32, nope_dim=16, rope_dim=8, value_dim=16)

    attentions = [attention for _, attention, _ in groups(configs.GLM)]
    assert {
        (each.top_tokens, each.indexer_heads) for each in attentions if isinstance(each, LatentAttention)
    } == {
        (256, 4),
        (256, 0),  # takes what the layer before chose
    }

    compressed = [
        (n, each) for n, each, _ in groups(configs.DEEPSEEK_V4) if isinstance(each, CompressedAttention)
    ]
    assert [(n, each.ratio, each.top_entries, each.overlapping) for n, each in compressed] == [
        (1, 0, None, False),
        (2, 4, 256, True),
        (1, 128, None, False),
    ]

    sparse = groups(configs.MINIMAX_M3)[1][1]
    assert isinstance(sparse, GroupedAttention)
    assert (sparse.top_tokens, sparse.indexer_heads) == (128, 2)


def test_layers_with_states_and_layers_that_lack_a_part() -> None:
    """A state of constant size instead of a cache, and no attention or no feed-forward part at all."""
    (three, delta, _), (one, full, _) = groups(configs.QWEN_NEXT)
    assert (three, one) == (3, 1)
    assert isinstance(delta, RecurrentAttention)
    assert delta.state_elements == 4 * 16 * 16 + (2 * 2 * 16 + 4 * 16) * 3
    assert delta.state_element_bytes == 4
    assert isinstance(full, GroupedAttention)
    assert full.gated

    short = groups(configs.QWEN_NEXT | {"mamba_ssm_dtype": "bfloat16"})[0][1]
    assert isinstance(short, RecurrentAttention)
    assert short.state_element_bytes == 2

    marks = [(type(attention), part) for _, attention, part in groups(configs.NEMOTRON_H)]
    assert marks == [
        (RecurrentAttention, Dense(size=0)),
        (GroupedAttention, Dense(size=0)),
        (NoAttention, Dense(size=512, matrices=2)),
        (NoAttention, Experts(count=8, chosen=2, size=64, shared_size=128, matrices=2, latent=32)),
    ]

    assert groups(configs.NEMOTRON_NAS) == [
        (2, GroupedAttention(heads=8, kv_heads=2, head_dim=32), Dense(size=512)),
        (1, NoAttention(), Dense(size=256)),
        (1, GroupedAttention(heads=8, kv_heads=1, head_dim=32, window_tokens=128), Dense(size=0)),
    ]

    kinds = [(n, type(attention), type(part)) for n, attention, part in groups(configs.KIMI_LINEAR)]
    assert kinds == [
        (1, RecurrentAttention, Dense),
        (2, RecurrentAttention, Experts),
        (1, LatentAttention, Experts),
    ]


def test_two_shapes_of_attention_in_one_model() -> None:
    """Wide and narrow layers may differ in heads, in their size, and in how values are made."""
    narrow, wide = (attention for _, attention, _ in groups(configs.GEMMA4))
    assert narrow == GroupedAttention(heads=8, kv_heads=2, head_dim=32, window_tokens=128)
    assert wide == GroupedAttention(heads=8, kv_heads=1, head_dim=64, shared_kv=True)

    wide, narrow = (attention for _, attention, _ in groups(configs.MIMO_V2))
    assert wide == GroupedAttention(heads=8, kv_heads=2, head_dim=48, value_dim=32)
    assert narrow == GroupedAttention(heads=8, kv_heads=4, head_dim=48, value_dim=32, window_tokens=128)


def test_what_stands_beside_a_text_model_is_said() -> None:
    """A wrapper is opened, and the parts that are not described are named."""
    assert model_of(configs.LLAMA4, "it").left_out == ("vision encoder",)
    assert model_of(configs.GEMMA3, "it").left_out == ("what stands beside the text model",)
    predicting = configs.DEEPSEEK | {"num_nextn_predict_layers": 1}
    assert model_of(predicting, "it").left_out == ("multi-token prediction",)
    assert model_of(configs.LLAMA, "it").left_out == ()


def test_embeddings_are_tied_where_the_config_or_the_family_says_so() -> None:
    """Some families do not write what they do by default."""
    assert not model_of(configs.LLAMA, "it").tied_embeddings
    assert model_of(configs.LLAMA | {"tie_word_embeddings": True}, "it").tied_embeddings
    assert model_of(configs.GEMMA3, "it").tied_embeddings
    assert not model_of(configs.GEMMA3 | {"tie_word_embeddings": False}, "it").tied_embeddings


@pytest.mark.parametrize(
    "config, text",
    [
        ([], "it: is not an object; a config.json is one"),
        ({}, "it: lacks model_type; it needs one of "),
        (
            {"model_type": "lama"},
            'model_type is "lama"; it is not a family that is known; the nearest',
        ),
        ({"model_type": 7}, "it: model_type is 7; it must be a text"),
        (
            configs.LLAMA4 | {"text_config": {"model_type": "llama4_text"}},
            "text_config.num_hidden_layers",
        ),
    ],
)
def test_what_is_no_config(config: Any, text: str) -> None:
    """One line that says what is missing, and what would do."""
    assert text in problem(config)


@pytest.mark.parametrize(
    "config, field, value, text",
    [
        (configs.LLAMA, "hidden_size", "256", 'is "256"; it must be a whole number from 1 to 1099511627776'),
        (configs.LLAMA, "hidden_size", True, "is true; it must be a whole number"),
        (configs.LLAMA, "hidden_size", -1, "is -1; it must be a whole number"),
        (configs.LLAMA, "vocab_size", 2**70, "it must be a whole number from 1 to 1099511627776"),
        (configs.LLAMA, "vocab_size", None, "it needs a whole number"),
        (configs.LLAMA, "num_hidden_layers", 10**9, "it must be a whole number from 1 to 4096"),
        (configs.LLAMA, "num_key_value_heads", 3, "is 3; it must divide the 8 attention heads"),
        (configs.LLAMA, "num_attention_heads", 6, "is 6; it must divide hidden_size (256)"),
        (configs.LLAMA, "tie_word_embeddings", 1, "is 1; it must be true or false"),
        (configs.LLAMA, "layer_types", ["full_attention"], "one item for each of the 4 layers, not 1"),
        (configs.LLAMA, "layer_types", "full", 'is "full"; it must be a list'),
        (configs.LLAMA, "layer_types", ["linear_attention"] * 4, "it must be of full_attention"),
        # what a known family does not have
        (configs.LLAMA, "kv_lora_rank", 512, "is 512; it is not known of the family llama"),
        (configs.LLAMA, "num_experts", 8, "is 8; it is not known of the family llama"),
        (configs.MIXTRAL, "num_experts_per_tok", 9, "is 9; it must be a whole number from 1 to 8"),
        (configs.DEEPSEEK, "kv_lora_rank", None, "it needs a whole number"),
        (configs.DEEPSEEK_V4, "compress_ratios", [4], "is [4]; it must have one item for each of the 4"),
        (configs.NEMOTRON_H, "hybrid_override_pattern", "M*-X", "it must be of M (mamba), * (attention)"),
        (configs.LLAMA, "quantization_config", "fp8", 'is "fp8"; it must be an object'),
        (
            configs.LLAMA,
            "quantization_config",
            {"quant_method": "new"},
            'quant_method is "new"; it must',
        ),
    ],
)
def test_a_field_that_cannot_be(config: dict[str, object], field: str, value: object, text: str) -> None:
    """One line: the field, what it says, and the remedy."""
    line = problem(config | {field: value})

    assert field in line
    assert text in line


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(0, 64)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["full_attention", "sliding_attention", "sparse", "fp8", "llama", "M*-E"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(sorted(SHAPING | {name for config in configs.ALL.values() for name in config}))


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(configs.ALL)),
    st.dictionaries(NAMES, JSON, min_size=1, max_size=3),
    st.sets(NAMES, max_size=1),
    st.booleans(),
)
def test_whatever_it_says(family: str, changed: dict[str, Any], removed: set[str], inner: bool) -> None:
    """A config is a model whose sizes are sane, or one line that says why not; never anything else."""
    config = dict(configs.ALL[family])
    text = config.get("text_config")
    if inner and isinstance(text, dict):
        config["text_config"] = {k: v for k, v in (text | changed).items() if k not in removed}
    else:
        config = {name: value for name, value in (config | changed).items() if name not in removed}
    try:
        model = model_of(config, "it")
    except ConfigurationError as error:
        (line,) = error.problems
        assert line.startswith("it: ")
        assert line.isprintable()
        return
    assert isinstance(model, Model)
    assert parameters_of(model).total > 0
    assert 1 <= sum(group.count for group in model.layers) <= 4096


@given(JSON)
def test_whatever_it_is(value: Any) -> None:
    """Even if it is no config at all."""
    with pytest.raises(ConfigurationError):
        model_of(value, "it")
