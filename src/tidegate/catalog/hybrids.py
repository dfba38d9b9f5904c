"""Which layers of a config.json keep a state of constant size, and how large is it?

As in `attentions`: one function for each family that mixes such layers with attention. The
meaning of the fields is vouched for as there; of Kimi Linear no published total was at hand.
"""

from __future__ import annotations

from tidegate.catalog.attentions import grouped_attention, layer_types
from tidegate.catalog.fields import Fields
from tidegate.catalog.latents import latent_attention
from tidegate.catalog.models import Attention, NoAttention, RecurrentAttention

_SHORT = ("bfloat16", "float16")
_ALL, _LINEAR = "full_attention", "linear_attention"


def delta_net(fields: Fields, layers: int) -> list[Attention]:
    """Qwen3-Next and Qwen3.5: gated delta nets, and every few layers gated attention."""
    period = fields.size("full_attention_interval", 4)
    types = layer_types(fields, layers) or [_LINEAR if (i + 1) % period else _ALL for i in range(layers)]
    if not set(types) <= {_LINEAR, _ALL}:
        fields.wrong("layer_types", f"must be of {_LINEAR}, {_ALL} here")
    hidden, kernel = fields.size("hidden_size"), fields.size("linear_conv_kernel_dim")
    key_heads, key_dim = fields.size("linear_num_key_heads"), fields.size("linear_key_head_dim")
    value_heads, value_dim = fields.size("linear_num_value_heads"), fields.size("linear_value_head_dim")
    keys, values = key_heads * key_dim, value_heads * value_dim
    mixed = 2 * keys + values
    gated = fields.flag("attn_output_gate", default=True)
    full = grouped_attention(fields, gated=gated)
    linear = RecurrentAttention(
        # query, key, value, gate, output; two gates a head; convolution; two figures a head; norm
        parameters=hidden * (mixed + 2 * values + 2 * value_heads)
        + mixed * kernel
        + 2 * value_heads
        + value_dim,
        state_elements=value_heads * key_dim * value_dim + mixed * (kernel - 1),
        state_element_bytes=_element_bytes(fields, "mamba_ssm_dtype"),
    )
    return [linear if kind == _LINEAR else full for kind in types]


def kimi_linear(fields: Fields, layers: int) -> list[Attention]:
    """Kimi delta attention, and every few layers latent attention. Layers are counted from 1."""
    config = fields.section("linear_attn_config")
    numbers = config.sizes("full_attn_layers", most=layers), config.sizes("kda_layers", most=layers)
    if sorted(numbers[0] + numbers[1]) != list(range(1, layers + 1)):
        config.wrong("kda_layers", f"must with full_attn_layers name each of the {layers} layers once")
    hidden, kernel = fields.size("hidden_size"), config.size("short_conv_kernel_size")
    heads, dim = config.size("num_heads"), config.size("head_dim")
    values = heads * dim
    whole_gate = config.flag("use_full_rank_gate")
    low_rank = hidden * dim + dim * values
    linear = RecurrentAttention(
        # query, key, value, output; convolutions; decay; output gate; a rate and a figure a head; norm
        parameters=4 * hidden * values
        + 3 * values * kernel
        + low_rank
        + (hidden * values if whole_gate else low_rank)
        + hidden * heads
        + heads
        + values
        + dim,
        state_elements=heads * dim * dim + 3 * values * (kernel - 1),
    )
    full = latent_attention(fields, gated=fields.flag("mla_use_output_gate"))
    whole = set(numbers[0])
    return [full if i in whole else linear for i in range(1, layers + 1)]


def mamba(fields: Fields) -> RecurrentAttention:
    """A layer of Mamba 2 as Nemotron-H has it."""
    hidden, kernel = fields.size("hidden_size"), fields.size("conv_kernel", 4)
    heads, dim = fields.size("mamba_num_heads"), fields.size("mamba_head_dim")
    state, groups = fields.size("ssm_state_size"), fields.size("n_groups")
    inner = heads * dim
    mixed = inner + 2 * groups * state
    return RecurrentAttention(
        # into: gate, what is mixed, a step a head; convolution with bias; three figures a head; norm; out
        parameters=hidden * (inner + mixed + heads)
        + mixed * (kernel + 1)
        + 3 * heads
        + inner
        + inner * hidden,
        state_elements=heads * dim * state + mixed * (kernel - 1),
        state_element_bytes=_element_bytes(fields, "mamba_ssm_cache_dtype"),
    )


def nemotron_h(fields: Fields, layers: int) -> list[Attention]:
    """Each layer is one thing only: attention, Mamba, or a feed-forward part."""
    fields.ignore(["sliding_window"])
    marks = nemotron_marks(fields, layers)
    full = grouped_attention(fields) if "*" in marks else NoAttention()
    recurrent = mamba(fields) if "M" in marks else NoAttention()
    kinds: dict[str, Attention] = {"*": full, "M": recurrent}
    return [kinds.get(mark, NoAttention()) for mark in marks]


def nemotron_marks(fields: Fields, layers: int) -> str:
    """A letter a layer: M Mamba, * attention, - dense feed-forward, E experts."""
    words = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
    if fields.has("layers_block_type"):
        name = "layers_block_type"
        marks = "".join(words.get(word, "?") for word in fields.texts(name))
    else:
        name = "hybrid_override_pattern"
        marks = fields.text(name)
    if not marks or not set(marks) <= set(words.values()):
        fields.wrong(name, f"must be of {', '.join(f'{mark} ({word})' for word, mark in words.items())}")
    if len(marks) != layers:
        fields.wrong(name, f"must have one item for each of the {layers} layers, not {len(marks)}")
    return marks


def _element_bytes(fields: Fields, name: str) -> int:
    """Of a state: 4 unless the config says that it is kept short."""
    return 2 if fields.text(name) in _SHORT else 4
