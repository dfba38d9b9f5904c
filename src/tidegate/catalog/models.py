"""What is a model made of, as far as time and memory depend on it?

A model is groups of equal layers; a layer is an attention and a feed-forward part. Nothing here is derived:
what follows from it (parameters, bytes, seconds) is `perf`'s.
"""

from __future__ import annotations

import msgspec


class GroupedAttention(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag="grouped",
):
    """Multi-head, multi-query and grouped-query attention."""

    heads: int
    kv_heads: int
    head_dim: int
    window_tokens: int | None = None
    """It attends to, and keeps, only so many of the last tokens; None: all."""
    gated: bool = False
    """A gate of the size of the query is computed as well."""
    value_dim: int | None = None
    """Of one head's value; None: `head_dim`."""
    shared_kv: bool = False
    """The value is made from the key's projection: one matrix less, the cache is the same."""
    top_tokens: int | None = None
    """Of sparse attention: it attends to so many tokens that an indexer chooses; all are kept."""
    indexer_heads: int = 0
    indexer_dim: int = 0
    """The indexer keeps one key of this size a token."""


class LatentAttention(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag="latent",
):
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
    """0 beside `top_tokens`: it takes what an earlier layer chose."""
    indexer_dim: int = 0
    gated: bool = False
    """A gate of the size of all values is computed as well."""


class CompressedAttention(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag="compressed",
):
    """One key that is also the value, for all heads; what left the window is kept as one entry for `ratio`
    tokens (DeepSeek-V4, 2026).
    """

    heads: int
    head_dim: int
    q_rank: int
    o_rank: int
    """Of each of `o_groups`, into which the heads' outputs are compressed before the last matrix."""
    o_groups: int
    window_tokens: int
    ratio: int
    """0: the window is all there is."""
    overlapping: bool = False
    """An entry is made of twice `ratio` tokens: two matrices instead of one."""
    top_entries: int | None = None
    """It attends to so many entries that an indexer chooses; None: to all."""
    indexer_heads: int = 0
    indexer_dim: int = 0


class RecurrentAttention(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag="recurrent",
):
    """Linear attention and state-space layers: a state of constant size per sequence, no cache that grows."""

    parameters: int
    """Of one layer."""
    state_elements: int
    """Per sequence and layer."""
    state_element_bytes: int = 4


class NoAttention(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag="none",
):
    """A layer that is only a feed-forward part."""


Attention = GroupedAttention | LatentAttention | CompressedAttention | RecurrentAttention | NoAttention


class Dense(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag="dense",
):
    """A feed-forward part that every token goes through; `size` 0: none."""

    size: int
    matrices: int = 3
    """3 with a gate (SwiGLU), 2 without."""


class Experts(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag="experts",
):
    """A mixture of experts: each token goes through `chosen` of `count`, and through what is shared."""

    count: int
    chosen: int
    size: int
    """Of one expert."""
    shared_size: int = 0
    """Of what every token goes through, in sum."""
    matrices: int = 3
    latent: int | None = None
    """Experts work on vectors of this size, between two matrices that all share; None: on `hidden`."""


FeedForward = Dense | Experts


class Layers(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """`count` equal layers."""

    count: int
    attention: Attention
    feed_forward: FeedForward


class Model(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
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
    """Of most weights as published: bf16, fp8, int8, int4, fp4. Embeddings and output layer stay in bf16."""
    attention_precision: str | None = None
    """Where the attention's weights differ from `precision`."""
    dense_precision: str | None = None
    """Where the weights of dense feed-forward parts and shared experts differ from `precision`."""
    left_out: tuple[str, ...] = ()
    """Parts of the published model that are not described, such as a vision encoder."""
    source: str = ""
    dated: str = ""
    """Day of the source, as 2026-11-30."""
