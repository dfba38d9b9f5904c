"""In which precision are the parts of a published model stored, by its config.json?

Quantisers write lists of modules that they took or left alone. A model is described by three parts only:
attention, dense feed-forward parts with shared experts, and experts; each has the precision of most of its
layers.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final, Literal

import msgspec

from tidegate.catalog.fields import Fields

Part = Literal["attention", "dense", "experts"]
PARTS: Final[tuple[Part, ...]] = ("attention", "dense", "experts")
PRECISIONS: Final = ("bf16", "fp8", "int8", "int4", "fp4")
"""What weights may be stored in. fp16 takes the room and the time of bf16, and is called so."""

_BY_METHOD = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "fp4"}
_BY_ALGORITHM = {"FP8": "fp8", "MXFP8": "fp8", "NVFP4": "fp4", "MXFP4": "fp4", "W4A16_AWQ": "int4"}
_BY_ENDING = {"fp8": "fp8", "nvfp4": "fp4", "fp4": "fp4", "mxfp4": "fp4", "awq": "int4", "gptq": "int4"}
_LAYER = re.compile(r"layers\.(\d+)")
_NOTHING_MUCH = re.compile(
    r"norm|bias|router|rotary|indexer|mtp|_gate\b|\.gate\b|conv1d|a_log|dt_|vision|visual"
)
_ATTENTION = re.compile(r"attn|attention|mamba|mixer\.(?:in|out)_proj|[qkvo]_proj")
_EXPERTS = re.compile(r"(?<!shared_)experts|moe")


class Precisions(msgspec.Struct, frozen=True):
    """Of each part."""

    attention: str
    dense: str
    experts: str


def precisions_of(fields: Fields, name: str, layers: int) -> Precisions:
    """By `quantization_config`; where there is none, by how the model's name ends, else bf16."""
    if not fields.has("quantization_config"):
        every = _by_name(name)
        return Precisions(every, every, every)
    config = fields.section("quantization_config")
    found = _stated(config, layers)
    for part, share in _shares(_left_alone(config), layers).items():
        if share >= 0.5:
            # Block scales beside modelopt's groups: what modelopt left alone had been fp8 before.
            found[part] = "fp8" if config.has("weight_block_size") and config.has("config_groups") else "bf16"
    if fields.text("expert_dtype") == "fp4":
        found["experts"] = "fp4"
    return Precisions(**found)


def _by_name(name: str) -> str:
    words = re.split(r"[-_./ ]", name.lower())
    return next((_BY_ENDING[word] for word in reversed(words) if word in _BY_ENDING), "bf16")


def _stated(config: Fields, layers: int) -> dict[Part, str]:
    if config.has("config_groups"):
        return _by_groups(config.section("config_groups"), layers)
    if config.has("quantized_layers"):
        layer_precisions = {
            module: _algorithm(layer) for module, layer in config.section("quantized_layers").sections()
        }
        return _majority(layer_precisions, layers)
    every = _method(config)
    return dict.fromkeys(PARTS, every)


def _method(config: Fields) -> str:
    method = config.text("quant_method")
    if method in _BY_METHOD:
        return _BY_METHOD[method]
    if method in ("gptq", "awq", "gptq_marlin", "auto-round"):
        return {4: "int4", 8: "int8"}.get(bits := config.size("bits", 4), "") or config.wrong(
            "bits", f"must be 4 or 8, not {bits}"
        )
    if method == "bitsandbytes":
        return "int4" if config.flag("load_in_4bit") else "int8"
    if config.has("quant_algo"):
        return _algorithm(config)
    return config.wrong("quant_method", f"must be one of {', '.join(_BY_METHOD)}, gptq, awq, bitsandbytes")


def _algorithm(config: Fields) -> str:
    algorithm = config.text("quant_algo")
    if algorithm not in _BY_ALGORITHM:
        config.wrong("quant_algo", f"must be one of {', '.join(_BY_ALGORITHM)}")
    return _BY_ALGORITHM[algorithm]


def _by_groups(groups: Fields, layers: int) -> dict[Part, str]:
    every, named = None, {}
    for _, group in groups.sections():
        precision = _bits(group.section("weights"))
        targets = group.texts("targets")
        if not targets or "Linear" in targets:
            every = precision
        else:
            named.update(dict.fromkeys(targets, precision))
    if every is None and not named:
        groups.lacking("group_0", "an object")
    found = _majority(named, layers)
    return {part: found[part] if found[part] != "bf16" else every or "bf16" for part in PARTS}


def _bits(weights: Fields) -> str:
    kind, bits = weights.text("type", "int"), weights.size("num_bits")
    precision = {("float", 8): "fp8", ("float", 4): "fp4", ("int", 8): "int8", ("int", 4): "int4"}
    return precision.get((kind, bits)) or weights.wrong("num_bits", "must be 4 or 8, of type int or float")


def _left_alone(config: Fields) -> list[str]:
    names = ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers")
    return [module for name in names for module in config.texts(name, most=1 << 20)]


def _part(module: str) -> Part | None:
    """Which part a module belongs to, if it is one that has weight."""
    if _NOTHING_MUCH.search(module):
        return None
    if _ATTENTION.search(module):
        return "attention"
    if _EXPERTS.search(module) and "block_sparse_moe.gate" not in module:
        return "experts"
    return "dense" if re.search(r"mlp|ffn|feed_forward|shared_expert", module) else None


def _shares(modules: list[str], layers: int) -> dict[Part, float]:
    """For each part in how many of the layers it is named, 0..1."""
    named: dict[Part, set[int]] = {part: set() for part in PARTS}
    for module in modules:
        text = module.lower()
        part = _part(text)
        if part is not None:
            layer = _LAYER.search(text)
            named[part].update([int(layer[1])] if layer else range(layers))
    return {part: len(found) / layers for part, found in named.items()}


def _majority(modules: dict[str, str], layers: int) -> dict[Part, str]:
    """What most modules of each part are in; bf16 where none is named."""
    counts: dict[Part, Counter[str]] = {part: Counter() for part in PARTS}
    for module, precision in modules.items():
        part = _part(module.lower())
        if part is not None:
            counts[part][precision] += 1
    return {part: count.most_common(1)[0][0] if count else "bf16" for part, count in counts.items()}
