"""What a published model is stored in, part by part."""

from __future__ import annotations

from typing import Any

import pytest

from tests.catalog import configs
from tidegate.catalog.catalog import Catalog
from tidegate.catalog.huggingface import model_of
from tidegate.core.errors import ConfigurationError

Stored = tuple[str, str | None, str | None]
"""Of most weights, of attention, of dense parts; None: as most."""

ATTENTION = [f"model.layers.{i}.self_attn*" for i in range(4)]
NVFP4 = {"group_0": {"weights": {"num_bits": 4, "type": "float"}, "targets": ["Linear"]}}


@pytest.mark.parametrize(
    "quantization, stored",
    [
        (None, ("bf16", None, None)),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ("fp8", None, None)),
        ({"quant_method": "gptq", "bits": 4}, ("int4", None, None)),
        ({"quant_method": "awq"}, ("int4", None, None)),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, ("int8", None, None)),
        ({"quant_algo": "FP8", "ignore": ["lm_head"]}, ("fp8", None, None)),
        ({"config_groups": NVFP4, "ignore": ["lm_head"]}, ("fp4", None, None)),
        ({"config_groups": NVFP4, "ignore": ATTENTION}, ("fp4", "bf16", None)),
        ({"config_groups": NVFP4, "ignore": ATTENTION[:1]}, ("fp4", None, None)),  # of one layer in four
        (
            {"config_groups": NVFP4, "ignore": ["re:.*attn.*", "re:.*mlp.*_proj"]},
            ("fp4", "bf16", "bf16"),
        ),
        # routers, norms and output layers weigh next to nothing
        ({"quant_method": "fp8", "ignore": ["re:.*mlp.gate", "re:.*_norm", "lm_head"]}, ("fp8", None, None)),
        # attention in fp8, experts in four bits
        (
            {
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 8, "type": "float"},
                        "targets": ["layers.0.self_attn.q_proj"],
                    },
                    "group_1": {
                        "weights": {"num_bits": 4, "type": "float"},
                        "targets": ["layers.0.mlp.experts.0.up_proj", "layers.0.mlp.up_proj"],
                    },
                }
            },
            ("fp4", "fp8", None),
        ),
        (
            {
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {
                    "layers.0.mlp.experts.0.up_proj": {"quant_algo": "NVFP4"},
                    "layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
                },
            },
            ("fp4", "fp8", "bf16"),
        ),
    ],
)
def test_quantization(quantization: dict[str, object] | None, stored: Stored) -> None:
    """By the method, by groups, by lists of modules that were left alone."""
    model = model_of(configs.QWEN_MOE | {"quantization_config": quantization}, "it")

    assert (model.precision, model.attention_precision, model.dense_precision) == stored


@pytest.mark.parametrize(
    "name, precision",
    [("it", "bf16"), ("it-FP8", "fp8"), ("it-NVFP4", "fp4"), ("it-AWQ", "int4"), ("fp80-it", "bf16")],
)
def test_a_name_says_it_where_the_config_does_not(name: str, precision: str) -> None:
    """Some makers state it in a file of its own."""
    assert model_of(configs.LLAMA, name).precision == precision


@pytest.mark.parametrize(
    "quantization, field",
    [
        ({"quant_method": "gptq", "bits": 3}, "bits"),
        ({"quant_algo": "FP7"}, "quant_algo"),
        ({"config_groups": {"group_0": {"weights": {"num_bits": 2}}}}, "num_bits"),
        ({"config_groups": {}}, "group_0"),
        ({"config_groups": {"group_0": 4}}, "group_0"),
        ({"quant_method": "fp8", "ignore": "lm_head"}, "ignore"),
    ],
)
def test_what_cannot_be(quantization: Any, field: str) -> None:
    """Named by its field."""
    with pytest.raises(ConfigurationError, match=field):
        model_of(configs.LLAMA | {"quantization_config": quantization}, "it")


@pytest.mark.parametrize(
    "name, stored",
    [
        ("deepseek-ai/DeepSeek-V3", ("fp8", None, None)),
        ("openai/gpt-oss-120b", ("fp4", "bf16", None)),
        ("moonshotai/Kimi-K2.5", ("int4", "bf16", "bf16")),
        ("deepseek-ai/DeepSeek-V4-Flash", ("fp4", "fp8", "fp8")),
        ("nvidia/MiniMax-M2.5-NVFP4", ("fp4", "bf16", None)),
        ("nvidia/Qwen3.6-35B-A3B-NVFP4", ("fp4", "fp8", None)),
        ("Qwen/Qwen3-32B-FP8", ("fp8", None, None)),
        ("meta-llama/Llama-3.1-70B", ("bf16", None, None)),
    ],
)
def test_published_models(name: str, stored: Stored) -> None:
    """As their makers describe them."""
    model = Catalog.shipped().model(name)

    assert (model.precision, model.attention_precision, model.dense_precision) == stored
