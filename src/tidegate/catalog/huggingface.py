"""Which model does a config.json of the Hugging Face hub describe?

`model_of` knows families by their `model_type`, and refuses others: a shape that is guessed gives wrong
bytes in silence. It refuses as well what a known family does not have, and what cannot be, by the name of
the field. A config that wraps a text model (`text_config`) is opened; what stands beside it is `left_out`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches

from tidegate.catalog import attentions, feed_forwards, hybrids, latents
from tidegate.catalog.fields import MOST_LAYERS, Fields
from tidegate.catalog.models import Attention, Experts, FeedForward, Layers, Model
from tidegate.catalog.precisions import precisions_of
from tidegate.core.errors import ConfigurationError

AttentionsOf = Callable[[Fields, int], list[Attention]]
FeedForwardsOf = Callable[[Fields, int], list[FeedForward]]

_FAMILIES: dict[str, tuple[AttentionsOf, FeedForwardsOf]] = {
    **dict.fromkeys(
        [
            "llama",
            "mistral",
            "ministral3",
            "qwen2",
            "qwen3",
            "mimo",
            "phi3",
            "olmo2",
            "granite",
            "gemma",
            "glm4",
            "seed_oss",
            "smollm3",
            "internlm2",
            "internlm3",
            "exaone4",
            "qwen2_vl",
            "qwen2_5_vl",
            "qwen3_vl",
        ],
        (attentions.grouped, feed_forwards.dense),
    ),
    **dict.fromkeys(("gemma2", "gemma3"), (attentions.gemma, feed_forwards.dense)),
    "starcoder2": (attentions.grouped, feed_forwards.plain),
    **dict.fromkeys(
        ("mixtral", "phimoe", "gpt_oss", "minimax_m2"), (attentions.grouped, feed_forwards.mixtral)
    ),
    **dict.fromkeys(("qwen2_moe", "qwen3_moe", "qwen3_vl_moe"), (attentions.grouped, feed_forwards.qwen)),
    "glm4_moe": (attentions.grouped, feed_forwards.deepseek),
    "step3p7": (attentions.grouped, feed_forwards.step),
    "llama4": (attentions.llama4, feed_forwards.llama4),
    "gemma4": (attentions.gemma4, feed_forwards.gemma4),
    **dict.fromkeys(("minimax_m3", "minimax_m3_vl"), (attentions.minimax_m3, feed_forwards.minimax_m3)),
    "mimo_v2_flash": (attentions.mimo_v2, feed_forwards.deepseek),
    "nemotron-nas": (attentions.nemotron_nas, feed_forwards.nemotron_nas),
    **dict.fromkeys(
        ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa"),
        (latents.latent, feed_forwards.deepseek),
    ),
    **dict.fromkeys(("deepseek_v4", "deepseek_ref"), (latents.compressed, feed_forwards.deepseek)),
    **dict.fromkeys(("qwen3_next", "qwen3_5_moe"), (hybrids.delta_net, feed_forwards.qwen)),
    "qwen3_5": (hybrids.delta_net, feed_forwards.dense),
    "kimi_linear": (hybrids.kimi_linear, feed_forwards.kimi_linear),
    "nemotron_h": (hybrids.nemotron_h, feed_forwards.nemotron_h),
}
_DEFAULTS: dict[str, dict[str, object]] = {
    # Their own configs leave out what transformers, or the code beside the weights, has as its default.
    "gemma3": {
        "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
    },
    "kimi_linear": {"max_position_embeddings": 1_048_576},
}
_TIED = ("gemma", "gemma2", "gemma3", "gemma4", "starcoder2")
"""Families whose output layer is the embedding unless the config says otherwise."""


def model_of(config: Mapping[str, object], name: str, *, source: str = "", dated: str = "") -> Model:
    """The model of that name. Raises ConfigurationError with one line: the field, and the remedy."""
    if not isinstance(config, Mapping):
        raise ConfigurationError([f"{name}: is not an object; a config.json is one"])
    outer = Fields(config, name)
    fields = _text_fields(outer, config)
    family = _family(fields, outer)
    wrapped = fields is not outer
    fields = fields.with_defaults(_DEFAULTS.get(family, {}))
    layers = _number_of_layers(fields)
    of_attention, of_feed_forward = _FAMILIES[family]
    groups = _grouped(of_attention(fields, layers), of_feed_forward(fields, layers))
    tied = fields.flag("tie_word_embeddings", outer.flag("tie_word_embeddings", family in _TIED))
    precisions = precisions_of(fields if fields.has("quantization_config") else outer, name, layers)
    experts = any(isinstance(group.feed_forward, Experts) for group in groups)
    most = precisions.experts if experts else precisions.dense
    for field in fields.unasked():
        fields.wrong(
            field, f"is not known of the family {family}; describe the model in a catalogue file instead"
        )
    return Model(
        name=name,
        hidden=fields.size("hidden_size"),
        vocabulary=fields.size("vocab_size"),
        layers=groups,
        tied_embeddings=tied,
        context_tokens=fields.size("max_position_embeddings"),
        precision=most,
        attention_precision=precisions.attention if precisions.attention != most else None,
        dense_precision=precisions.dense if precisions.dense != most else None,
        left_out=_left_out(outer, fields, wrapped=wrapped),
        source=source,
        dated=dated,
    )


def _text_fields(outer: Fields, config: Mapping[str, object]) -> Fields:
    for name in ("text_config", "llm_config", "language_config"):
        if isinstance(config.get(name), Mapping):
            return outer.section(name)
    return outer


def _family(fields: Fields, outer: Fields) -> str:
    """The model_type, without the suffix that text models of a wrapper have."""
    stating = fields if fields.has("model_type") else outer
    family = stating.text("model_type").removesuffix("_text")
    if family in _FAMILIES:
        return family
    if not family:
        stating.lacking("model_type", f"one of {', '.join(sorted(_FAMILIES))}")
    close = get_close_matches(family, _FAMILIES, n=1)
    nearest = f"the nearest is {close[0]}; " if close else ""
    return stating.wrong(
        "model_type",
        f"is not a family that is known; {nearest}describe the model in a catalogue file instead",
    )


def _number_of_layers(fields: Fields) -> int:
    if not fields.has("num_hidden_layers") and fields.has("layers_block_type"):
        return max(1, len(fields.texts("layers_block_type")))
    return fields.size("num_hidden_layers", most=MOST_LAYERS)


def _grouped(attentions_: list[Attention], feed_forwards_: list[FeedForward]) -> tuple[Layers, ...]:
    """Equal layers together, in the order in which the first of each kind comes."""
    counts: dict[tuple[Attention, FeedForward], int] = {}
    for pair in zip(attentions_, feed_forwards_, strict=True):
        counts[pair] = counts.get(pair, 0) + 1
    return tuple(Layers(count=n, attention=a, feed_forward=f) for (a, f), n in counts.items())


def _left_out(outer: Fields, fields: Fields, *, wrapped: bool) -> tuple[str, ...]:
    left = ["what stands beside the text model"] if wrapped else []
    if outer.has("vision_config"):
        left = ["vision encoder"]
    predicting = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
    if any(fields.maybe(name) for name in predicting):
        left.append("multi-token prediction")
    return tuple(left)
