"""How many bytes is a weight, which parts of a model are quantised, and in what does a device compute?

Quantised checkpoints keep some parts as they were: embeddings, the output layer, routers and norms always;
attention too, where a mixture of experts is stored in four bits (the quantisation_config of gpt-oss-120b and
of Kimi-K2.5 names it as not converted, and so the size of DeepSeek-R1-NVFP4 says; published 2025). Dense
models in four bits have all matrices of their layers converted.
"""

from __future__ import annotations

from typing import Final

from tidegate.catalog.accelerators import Accelerator
from tidegate.catalog.models import Experts, Model

BITS: Final = {
    "fp32": 32.0,
    "bf16": 16.0,
    "fp16": 16.0,
    "fp8": 8.0,
    "int8": 8.0,
    "int4": 4.25,
    "fp4": 4.5,
}
"""Of one weight, with its share of a block's scale: fp4 as NVFP4 (an 8-bit scale for 16), int4 with a 16-bit
scale for 64 (GPTQ, AWQ: for 128; Kimi-K2.5: for 32)."""
KV_BITS: Final = {"bf16": 16.0, "fp16": 16.0, "fp8": 8.0, "int8": 8.0, "fp4": 4.5}

FOUR_BITS: Final = ("int4", "fp4")


def weight_bytes(precision: str) -> float:
    """Of one weight of a part that is stored so."""
    return BITS[precision] / 8


def attention_precision(model: Model, precision: str | None) -> str:
    """Of the matrices of attention, where weights are asked for in `precision`; None: as published."""
    if precision in (None, model.precision):
        return model.attention_precision or _unless_four_bits(model, model.precision)
    return _unless_four_bits(model, precision or model.precision)


def dense_precision(model: Model, precision: str | None) -> str:
    """Of dense feed-forward parts and shared experts, likewise."""
    if precision in (None, model.precision):
        return model.dense_precision or model.precision
    return precision or model.precision


def _unless_four_bits(model: Model, precision: str) -> str:
    experts = any(isinstance(group.feed_forward, Experts) for group in model.layers)
    return "bf16" if experts and precision in FOUR_BITS else precision


def computed_in(accelerator: Accelerator, precision: str) -> str:
    """The precision of the products: what the device has no arithmetic for is only stored so."""
    if precision == "int4":
        return "bf16"  # weight only: AWQ, GPTQ and Kimi-K2.5 leave activations in 16 bits
    if precision in ("fp32", "fp16"):
        return "bf16"
    return precision if accelerator.flops_per_s.get(precision) else "bf16"
