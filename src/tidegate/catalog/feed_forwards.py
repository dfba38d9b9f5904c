"""What feed-forward part does each layer of a config.json have?

One function for each family of models: it takes the fields and the number of layers, and returns one part
for each layer. The meaning of the fields is vouched for as in `attentions`.
"""

from __future__ import annotations

from tidegate.catalog.attentions import blocks
from tidegate.catalog.fields import Fields
from tidegate.catalog.hybrids import nemotron_marks
from tidegate.catalog.models import Dense, Experts, FeedForward

_NOTHING = Dense(size=0)


def dense(fields: Fields, layers: int) -> list[FeedForward]:
    """The same gated part in all layers."""
    return [Dense(size=fields.size("intermediate_size"))] * layers


def plain(fields: Fields, layers: int) -> list[FeedForward]:
    """The same part without a gate in all layers."""
    return [Dense(size=fields.size("intermediate_size"), matrices=2)] * layers


def _experts(fields: Fields, *, count: str, size: str, shared_size: int = 0) -> Experts:
    number = fields.size(count)
    return Experts(
        count=number,
        chosen=fields.size("num_experts_per_tok", most=number),
        size=fields.size(size),
        shared_size=shared_size,
    )


def mixtral(fields: Fields, layers: int) -> list[FeedForward]:
    """Mixtral, Phi-MoE, gpt-oss, MiniMax-M2: experts in all layers; `intermediate_size` is an expert's."""
    fields.ignore(["experts_per_token"])
    shared = fields.maybe("shared_intermediate_size") or 0
    return [
        _experts(fields, count="num_local_experts", size="intermediate_size", shared_size=shared)
    ] * layers


def qwen(fields: Fields, layers: int) -> list[FeedForward]:
    """Qwen's mixtures: every `decoder_sparse_step` layers, without those of `mlp_only_layers`."""
    step = fields.size("decoder_sparse_step", 1)
    only = set(fields.sizes("mlp_only_layers"))
    shared = fields.maybe("shared_expert_intermediate_size") or 0
    experts = _experts(fields, count="num_experts", size="moe_intermediate_size", shared_size=shared)
    sparse = [i not in only and (i + 1) % step == 0 for i in range(layers)]
    # Where all layers are sparse, some configs do not say what a dense one would be.
    other = experts if all(sparse) else Dense(size=fields.size("intermediate_size"))
    return [experts if each else other for each in sparse]


def deepseek(fields: Fields, layers: int) -> list[FeedForward]:
    """DeepSeek, Kimi-K2, GLM: the first `first_k_dense_replace` layers are dense."""
    fields.ignore(["num_experts"])  # some configs repeat the number of routed ones
    size = fields.size("moe_intermediate_size")
    shared = (fields.maybe("n_shared_experts") or 0) * size
    experts = _experts(fields, count="n_routed_experts", size="moe_intermediate_size", shared_size=shared)
    return _after_dense(fields, layers, experts)


def _after_dense(
    fields: Fields, layers: int, experts: Experts, dense_size: str = "intermediate_size"
) -> list[FeedForward]:
    """`experts`, but dense where one of several fields says so: whichever of them a family has."""
    sparse = _sparse(fields, layers)
    if all(sparse):
        return [experts] * layers
    part = Dense(size=fields.size(dense_size))
    return [experts if each else part for each in sparse]


def _sparse(fields: Fields, layers: int) -> list[bool]:
    first = fields.size("first_k_dense_replace", 0, least=0)
    if fields.has("mlp_layer_types"):
        types = fields.texts("mlp_layer_types")
        if len(types) != layers or not set(types) <= {"sparse", "dense"}:
            fields.wrong("mlp_layer_types", f"must be sparse or dense for each of the {layers} layers")
        fields.ignore(["moe_layer_freq"])
        return [kind == "sparse" for kind in types]
    if fields.is_list("moe_layer_freq"):
        marks = fields.sizes("moe_layer_freq", most=1)
        if len(marks) != layers:
            fields.wrong("moe_layer_freq", f"must have one item for each of the {layers} layers")
        return [mark == 1 for mark in marks]
    period = fields.size("moe_layer_freq", 1)
    return [i >= first and i % period == 0 for i in range(layers)]


def minimax_m3(fields: Fields, layers: int) -> list[FeedForward]:
    """Shared experts of their own size, dense layers of another."""
    shared = fields.size("n_shared_experts", 0, least=0) * (fields.maybe("shared_intermediate_size") or 0)
    size = "moe_intermediate_size" if fields.has("moe_intermediate_size") else "intermediate_size"
    experts = _experts(fields, count="num_local_experts", size=size, shared_size=shared)
    return _after_dense(fields, layers, experts, "dense_intermediate_size")


def step(fields: Fields, layers: int) -> list[FeedForward]:
    """Step-3: one shared expert of `share_expert_dim`."""
    shared = fields.size("n_shared_experts", 1, least=0) * (fields.maybe("share_expert_dim") or 0)
    experts = _experts(fields, count="num_experts", size="moe_intermediate_size", shared_size=shared)
    return _after_dense(fields, layers, experts)


def llama4(fields: Fields, layers: int) -> list[FeedForward]:
    """Experts every `interleave_moe_layer_step` layers, with a shared one of the same size."""
    size = fields.size("intermediate_size")
    experts = _experts(fields, count="num_local_experts", size="intermediate_size", shared_size=size)
    period = fields.size("interleave_moe_layer_step", 1)
    named = fields.sizes("moe_layers") if fields.has("moe_layers") else None
    part = Dense(size=fields.size("intermediate_size_mlp"))
    return [
        experts if (i in named if named is not None else (i + 1) % period == 0) else part
        for i in range(layers)
    ]


def gemma4(fields: Fields, layers: int) -> list[FeedForward]:
    """Dense, or experts beside a dense part that every token goes through."""
    for name in ("hidden_size_per_layer_input", "use_double_wide_mlp"):
        fields.without(name)
    size = fields.size("intermediate_size")
    if not fields.flag("enable_moe_block"):
        return [Dense(size=size)] * layers
    number = fields.size("num_experts")
    experts = Experts(
        count=number,
        chosen=fields.size("top_k_experts", most=number),
        size=fields.size("moe_intermediate_size"),
        shared_size=size,
    )
    return [experts] * layers


def kimi_linear(fields: Fields, layers: int) -> list[FeedForward]:
    """Kimi Linear: routed experts may work on a smaller vector than the shared ones."""
    size, number = fields.size("moe_intermediate_size"), fields.size("num_experts")
    experts = Experts(
        count=number,
        chosen=fields.size("num_experts_per_token", most=number),
        size=size,
        shared_size=(fields.maybe("num_shared_experts") or 0) * size,
        latent=fields.maybe("routed_expert_hidden_size"),
    )
    return _after_dense(fields, layers, experts)


def nemotron_nas(fields: Fields, layers: int) -> list[FeedForward]:
    """Each layer has a size of its own: `ffn_mult` of the hidden size, or nothing."""
    fields.ignore(["intermediate_size"])
    hidden = fields.size("hidden_size")
    return [_block_feed_forward(block.section("ffn"), hidden) for block in blocks(fields, layers)]


def _block_feed_forward(ffn: Fields, hidden: int) -> FeedForward:
    if ffn.flag("no_op"):
        return _NOTHING
    ffn.without("replace_with_linear")
    ffn.without("sparsify")
    # Rounded up to a multiple of 256, as the code published beside the weights does.
    size = int(2 * ffn.number("ffn_mult") * hidden / 3)
    return Dense(size=-(-size // 256) * 256)


def nemotron_h(fields: Fields, layers: int) -> list[FeedForward]:
    """A feed-forward part without a gate where the layer is one."""
    fields.ignore(["n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts"])
    fields.ignore(["moe_shared_expert_intermediate_size", "moe_latent_size"])
    marks = nemotron_marks(fields, layers)
    kinds: dict[str, FeedForward] = {}
    if "-" in marks:
        kinds["-"] = Dense(size=fields.size("intermediate_size"), matrices=2)
    if "E" in marks:
        number, shared = fields.size("n_routed_experts"), fields.maybe("n_shared_experts") or 0
        kinds["E"] = Experts(
            count=number,
            chosen=fields.size("num_experts_per_tok", most=number),
            size=fields.size("moe_intermediate_size"),
            shared_size=shared * fields.size("moe_shared_expert_intermediate_size", 0, least=0),
            matrices=2,
            latent=fields.maybe("moe_latent_size"),
        )
    return [kinds.get(mark, _NOTHING) for mark in marks]
