"""What is a model made of, as far as time and memory depend on it?

A model is groups of equal layers; a layer is an attention and a feed-forward part. Nothing here is derived:
what follows from it (parameters, bytes, seconds) is `perf`'s.
"""

from __future__ import annotations

import msgspec


class GroupedAttention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="grouped"):
    """Multi-head, multi-query and grouped-query attention."""

    heads: int
    kv_heads: int
    head_dim: int
    window_tokens: int | None = None
    """It attends to, and keeps, only so many of the last tokens; None: all."""
    gated: bool = False
    """A gate of the size of the query is computed as well."""


class LatentAttention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="latent"):
    """Multi-head latent attention (DeepSeek-V2, 2024): what is cached is one compressed vector a token."""

    heads: int
    q_rank: int | None
    """None: the query is not compressed."""
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    top_tokens: int | None = None
    """Of sparse attention: it attends to so many tokens that an indexer chooses; all are kept."""
    indexer_heads: int = 0
    indexer_dim: int = 0


class RecurrentAttention(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="recurrent"
):
    """Linear attention and state-space layers: a state of constant size per sequence, no cache that grows."""

    parameters: int
    """Of one layer."""
    state_elements: int
    """Per sequence and layer."""


class NoAttention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="none"):
    """A layer that is only a feed-forward part."""


Attention = GroupedAttention | LatentAttention | RecurrentAttention | NoAttention


class Dense(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="dense"):
    """A feed-forward part that every token goes through; `size` 0: none."""

    size: int
    matrices: int = 3
    """3 with a gate (SwiGLU), 2 without."""


class Experts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="experts"):
    """A mixture of experts: each token goes through `chosen` of `count`, and through what is shared."""

    count: int
    chosen: int
    size: int
    """Of one expert."""
    shared_size: int = 0
    """Of what every token goes through, in sum."""
    matrices: int = 3


FeedForward = Dense | Experts


class Layers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`count` equal layers."""

    count: int
    attention: Attention
    feed_forward: FeedForward


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An architecture."""

    name: str
    """As the Hugging Face hub has it: owner/name."""
    hidden: int
    vocabulary: int
    layers: tuple[Layers, ...]
    tied_embeddings: bool = False
    """The output layer is the embedding."""
    context_tokens: int
    """The longest sequence, prompt and output."""
    precision: str = "bf16"
    """Of the weights as published: bf16, fp8, int8, int4, fp4."""
    source: str = ""
    dated: str = ""
    """Day of the source, as 2026-11-30."""
