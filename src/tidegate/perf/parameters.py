"""How many parameters has a model, how many of them does a token go through, and how are they sharded?

Biases are left out: they are less than a thousandth of any model here.
"""

from __future__ import annotations

from math import ceil

import msgspec

from tidegate.catalog.models import (
    Attention,
    CompressedAttention,
    Experts,
    FeedForward,
    GroupedAttention,
    LatentAttention,
    Layers,
    Model,
    RecurrentAttention,
)


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """Of a whole model, by part."""

    embedding: int
    output: int
    """0 where it is the embedding."""
    attention: int
    dense: int
    """Feed-forward parts that every token goes through, shared experts among them."""
    experts: int
    """All of them."""
    experts_active: int
    """Those that one token goes through."""
    routers: int
    norms: int

    @property
    def total(self) -> int:
        """All that is stored."""
        once = self.embedding + self.output + self.attention + self.dense
        return once + self.experts + self.routers + self.norms

    @property
    def active(self) -> int:
        """What a token is multiplied with: not the embedding, of which it reads one row."""
        output = self.output or self.embedding
        return output + self.attention + self.dense + self.experts_active + self.routers + self.norms


def parameters_of(model: Model) -> Parameters:
    """Sums over its layers."""
    rows = model.vocabulary * model.hidden
    hidden = model.hidden
    groups = [(group.count, group.attention, group.feed_forward) for group in model.layers]
    mixtures = [(n, part) for n, _, part in groups if isinstance(part, Experts)]
    experts = [(n * expert_parameters(part, hidden), part) for n, part in mixtures]
    return Parameters(
        embedding=rows,
        output=0 if model.tied_embeddings else rows,
        attention=sum(n * attention_parameters(part, hidden) for n, part, _ in groups),
        dense=sum(n * dense_parameters(part, hidden) for n, _, part in groups),
        experts=sum(each * part.count for each, part in experts),
        experts_active=sum(each * part.chosen for each, part in experts),
        routers=sum(n * hidden * part.count for n, part in mixtures),
        norms=hidden + sum(group.count * norms(group, hidden) for group in model.layers),
    )


def attention_parameters(attention: Attention, hidden: int, tp: int = 1) -> int:
    """Of one layer, on one of `tp` devices: heads are shared out, KV heads repeated where they are fewer.

    What makes the vectors that all heads share has no heads, and is on every device.
    Source: Megatron-LM's head parallelism (2019), as vLLM, SGLang and TensorRT-LLM have it.
    """
    if isinstance(attention, GroupedAttention):
        return _grouped(attention, hidden, tp)
    if isinstance(attention, LatentAttention):
        return _latent(attention, hidden, tp)
    if isinstance(attention, CompressedAttention):
        return _compressed(attention, hidden, tp)
    if isinstance(attention, RecurrentAttention):
        return ceil(attention.parameters / tp)
    return 0


def _grouped(attention: GroupedAttention, hidden: int, tp: int) -> int:
    heads, value_dim = ceil(attention.heads / tp), attention.value_dim or attention.head_dim
    query = heads * attention.head_dim * (2 if attention.gated else 1)
    key_value = attention.head_dim + (0 if attention.shared_kv else value_dim)
    indexer = attention.indexer_heads * (attention.indexer_dim + 1) + attention.indexer_dim
    return hidden * (query + heads * value_dim + kv_heads(attention, tp) * key_value + indexer)


def _latent(attention: LatentAttention, hidden: int, tp: int) -> int:
    heads, from_query = ceil(attention.heads / tp), attention.q_rank or hidden
    down = hidden * ((attention.q_rank or 0) + attention.kv_rank + attention.rope_dim)
    outputs = hidden * (2 if attention.gated else 1)
    per_head = (
        from_query * (attention.nope_dim + attention.rope_dim)
        + attention.kv_rank * (attention.nope_dim + attention.value_dim)
        + outputs * attention.value_dim
    )
    indexer = 0
    if attention.indexer_heads:
        indexer = attention.indexer_heads * (from_query * attention.indexer_dim + hidden)
        indexer += hidden * attention.indexer_dim
    return down + heads * per_head + indexer


def _compressed(attention: CompressedAttention, hidden: int, tp: int) -> int:
    """Each compressor has a matrix for its entries and one for their gates, both doubled by an overlap."""
    heads, compressors = ceil(attention.heads / tp), 2 * (2 if attention.overlapping else 1)
    down = hidden * (attention.q_rank + attention.head_dim)
    up = attention.q_rank * heads * attention.head_dim
    out = attention.o_rank * (heads * attention.head_dim + ceil(attention.o_groups / tp) * hidden)
    entries = hidden * attention.head_dim * compressors if attention.ratio else 0
    indexer = 0
    if attention.indexer_heads:
        indexer = attention.indexer_heads * (attention.q_rank * attention.indexer_dim + hidden)
        indexer += hidden * attention.indexer_dim * compressors
    return down + up + out + entries + indexer


def kv_heads(attention: GroupedAttention, tp: int) -> int:
    """On one of `tp` devices: at least one, so that they are repeated where there are fewer than devices."""
    return max(1, ceil(attention.kv_heads / tp))


def dense_parameters(part: FeedForward, hidden: int) -> int:
    """Of one layer: what every token goes through."""
    if isinstance(part, Experts):
        latent = 2 * hidden * part.latent if part.latent else 0
        return part.matrices * hidden * part.shared_size + latent
    return part.matrices * hidden * part.size


def expert_parameters(part: FeedForward, hidden: int) -> int:
    """Of one expert; 0 where there is none."""
    return part.matrices * (part.latent or hidden) * part.size if isinstance(part, Experts) else 0


def norms(layers: Layers, hidden: int) -> int:
    """Of one layer: before attention and before the feed-forward part; in latent attention on its vectors."""
    ranks = 0
    if isinstance(layers.attention, LatentAttention):
        ranks = (layers.attention.q_rank or 0) + layers.attention.kv_rank
    return 2 * hidden + ranks
