"""Which attention does each layer have, where all heads share one compressed vector of the cache?

As in `attentions`: one function for each family. Source of the idea: DeepSeek-V2 (2024). The meaning of the
fields is vouched for as there.
"""

from __future__ import annotations

from tidegate.catalog.attentions import layer_types
from tidegate.catalog.fields import Fields
from tidegate.catalog.models import Attention, CompressedAttention, LatentAttention


def latent(fields: Fields, layers: int) -> list[Attention]:
    """DeepSeek-V2 and what follows it; `index_topk` makes it sparse."""
    fields.ignore(["head_dim"])  # not the head's: some configs repeat the part that is rotated
    if not set(layer_types(fields, layers)) <= {"deepseek_sparse_attention", "full_attention"}:
        fields.wrong("layer_types", "must be of deepseek_sparse_attention, full_attention here")
    plain = latent_attention(fields)
    if not fields.has("index_topk"):
        return [plain] * layers
    top = fields.size("index_topk")
    own = latent_attention(
        fields,
        top_tokens=top,
        indexer_heads=fields.size("index_n_heads"),
        indexer_dim=fields.size("index_head_dim"),
    )
    types = layer_types(fields, layers, "indexer_types")
    if not set(types) <= {"full", "shared"}:
        fields.wrong("indexer_types", "must be of full, shared")
    borrowed = latent_attention(fields, top_tokens=top)
    return [borrowed if kind == "shared" else own for kind in types] or [own] * layers


def latent_attention(
    fields: Fields,
    *,
    top_tokens: int | None = None,
    indexer_heads: int = 0,
    indexer_dim: int = 0,
    gated: bool = False,
) -> LatentAttention:
    """The attention that the common fields describe."""
    return LatentAttention(
        heads=fields.size("num_attention_heads"),
        q_rank=fields.maybe("q_lora_rank"),
        kv_rank=fields.size("kv_lora_rank"),
        nope_dim=fields.size("qk_nope_head_dim"),
        rope_dim=fields.size("qk_rope_head_dim"),
        value_dim=fields.size("v_head_dim"),
        top_tokens=top_tokens,
        indexer_heads=indexer_heads,
        indexer_dim=indexer_dim,
        gated=gated,
    )


def compressed(fields: Fields, layers: int) -> list[Attention]:
    """DeepSeek-V4: `compress_ratios` has one item a layer, and more for what predicts several tokens."""
    ratios = fields.sizes("compress_ratios")
    if len(ratios) < layers:
        fields.wrong("compress_ratios", f"must have one item for each of the {layers} layers")
    kinds = {ratio: _compressed(fields, ratio) for ratio in dict.fromkeys(ratios[:layers])}
    return [kinds[ratio] for ratio in ratios[:layers]]


def _compressed(fields: Fields, ratio: int) -> Attention:
    sparse = ratio == 4  # the code published beside the weights: only these overlap, and have an indexer
    heads, top = fields.size("num_attention_heads"), fields.size("index_topk")
    indexer_heads, indexer_dim = fields.size("index_n_heads"), fields.size("index_head_dim")
    fields.ignore(["num_key_value_heads"])
    groups = fields.size("o_groups")
    if heads % groups:
        fields.wrong("o_groups", f"must divide the {heads} attention heads")
    return CompressedAttention(
        heads=heads,
        head_dim=fields.size("head_dim"),
        q_rank=fields.size("q_lora_rank"),
        o_rank=fields.size("o_lora_rank"),
        o_groups=groups,
        window_tokens=fields.size("sliding_window"),
        ratio=ratio,
        overlapping=sparse,
        top_entries=top if sparse else None,
        indexer_heads=indexer_heads if sparse else 0,
        indexer_dim=indexer_dim if sparse else 0,
    )
