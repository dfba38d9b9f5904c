"""What of a deployment's memory is weights, and how many tokens of KV cache does the rest hold?

All parts are of one device, the fullest of its replica, unless they say otherwise.
"""

from __future__ import annotations

from math import ceil
from typing import Final

import msgspec

from tidegate.catalog.models import (
    Attention,
    CompressedAttention,
    Experts,
    GroupedAttention,
    LatentAttention,
    Layers,
    RecurrentAttention,
)
from tidegate.core.errors import ConfigurationError
from tidegate.perf.deployment import GIB, Deployment
from tidegate.perf.parameters import (
    attention_parameters,
    dense_parameters,
    expert_parameters,
    kv_heads,
    norms,
)
from tidegate.perf.precisions import KV_BITS, attention_precision, dense_precision, weight_bytes

PLAIN_BYTES: Final = 2
"""Of a weight that is never quantised."""
STATE_SHARE: Final = 0.5
"""Of the pool, at most, for what sequences keep whatever their length. SGLang gives states 0.9 of what it
gives to growing caches (`mamba_full_memory_ratio`, 2026)."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Where it goes."""

    usable_bytes: int
    """What the driver reports, times the ratio."""
    weights_bytes: int
    """A draft's among them."""
    reserve_bytes: int
    pool_bytes: int
    """What is left for KV caches and states."""
    kv_bytes_per_token: float
    """Of the whole model, however it is sharded, and of its draft: what one more token of a sequence adds."""
    kv_bytes_per_token_per_device: float
    """As sharded; more than its share where KV heads or latent vectors are repeated."""
    bounded_bytes_per_sequence: float
    """Per device: states and full windows, which do not grow with the sequence."""
    copies: int
    """Of attention, each with a pool of its own."""
    block_tokens: int
    sequences_limit: int
    """Of all copies: the engine's limit, or what states leave room for."""

    @property
    def kv_tokens(self) -> int:
        """That all copies hold, after what their sequences keep whatever their length."""
        bounded = self.bounded_bytes_per_sequence * self.sequences_limit / self.copies
        if self.kv_bytes_per_token_per_device == 0:
            return 2**53  # only states: nothing grows
        return self.copies * int((self.pool_bytes - bounded) / self.kv_bytes_per_token_per_device)

    @property
    def kv_blocks(self) -> int:
        """Whole blocks, of all copies."""
        return self.copies * (self.kv_tokens // self.copies // self.block_tokens)

    def sequence_bytes(self, tokens: int) -> float:
        """Per device, of a sequence of so many tokens, in whole blocks."""
        blocks = ceil(tokens / self.block_tokens)
        grown = blocks * self.block_tokens * self.kv_bytes_per_token_per_device
        return grown + self.bounded_bytes_per_sequence

    def sequences(self, tokens: int) -> int:
        """Of `tokens` each, that fit at once; no engine's limit counts."""
        each = self.sequence_bytes(tokens)
        return self.copies * int(self.pool_bytes / each) if each else 2**53


def memory_of(deployment: Deployment) -> Memory:
    """ConfigurationError where weights and reserve leave nothing for a KV cache."""
    usable = int(deployment.memory_ratio * deployment.accelerator.usable_bytes)
    weights = ceil(device_weights_bytes(deployment) + draft_weights_bytes(deployment))
    pool = usable - weights - deployment.reserve_bytes
    if pool <= 0:
        raise ConfigurationError([_too_large(deployment, usable, weights)])
    per_token, bounded = (kept / deployment.pp for kept in _kept(deployment, deployment.tp))
    whole_token, _ = _kept(deployment, 1)
    if (draft := deployment.draft) is not None:
        grown, kept = _kept(draft, draft.tp)
        per_token, bounded = per_token + grown, bounded + kept
        whole_token += _kept(draft, 1)[0]
    limit = deployment.max_num_seqs
    if bounded:
        limit = max(1, min(limit, int(STATE_SHARE * pool / bounded)))
    return Memory(
        usable_bytes=usable,
        weights_bytes=weights,
        reserve_bytes=deployment.reserve_bytes,
        pool_bytes=pool,
        kv_bytes_per_token=whole_token,
        kv_bytes_per_token_per_device=per_token,
        bounded_bytes_per_sequence=bounded,
        copies=deployment.attention_dp,
        block_tokens=deployment.block_tokens,
        sequences_limit=limit * deployment.attention_dp,
    )


def _too_large(deployment: Deployment, usable: int, weights: int) -> str:
    need = (weights + deployment.reserve_bytes) / GIB
    accelerator = deployment.accelerator.name
    beside = "" if deployment.draft is None else " and its draft"
    return (
        f"memory: {deployment.model.name} in {deployment.precision}{beside} needs {need:.1f} GiB on each of "
        f"{deployment.devices} {accelerator}, which have {usable / GIB:.1f} GiB for it: "
        "more devices, or fewer bits"
    )


def device_weights_bytes(deployment: Deployment) -> float:
    """Stored on one device; with stages, as if all were as full as the fullest."""
    model = deployment.model
    layers = sum(group.count * layer_weights_bytes(deployment, group) for group in model.layers)
    depth = sum(group.count for group in model.layers)
    fullest = ceil(depth / deployment.pp) / depth
    table = model.vocabulary * model.hidden * PLAIN_BYTES / deployment.tp
    ends = table if model.tied_embeddings or deployment.pp > 1 else 2 * table
    return layers * fullest + ends + model.hidden * PLAIN_BYTES


def draft_weights_bytes(deployment: Deployment) -> float:
    """Of the draft model on one device, besides; of a head without the tables that it shares."""
    draft, guessing = deployment.draft, deployment.speculation
    if draft is None or guessing is None:
        return 0.0
    shared = draft.model.vocabulary * draft.model.hidden * PLAIN_BYTES / draft.tp
    return device_weights_bytes(draft) - (shared if guessing.draft.head else 0.0)


def layer_weights_bytes(deployment: Deployment, layers: Layers) -> float:
    """Of one layer, stored on one device."""
    model, part = deployment.model, layers.feed_forward
    experts = 0.0
    routers = 0
    if isinstance(part, Experts):
        each = expert_parameters(part, model.hidden) * weight_bytes(deployment.precision)
        # Devices that hold whole experts hold whole numbers of them.
        experts = ceil(part.count / deployment.ep) * each * deployment.ep / deployment.stage_devices
        routers = model.hidden * part.count
    plain = norms(layers, model.hidden) + routers
    return (
        attention_weights_bytes(deployment, layers.attention)
        + dense_weights_bytes(deployment, layers)
        + experts
        + plain * PLAIN_BYTES
    )


def attention_weights_bytes(deployment: Deployment, attention: Attention) -> float:
    """Of one layer, stored on one device."""
    count = attention_parameters(attention, deployment.model.hidden, deployment.tp)
    return count * weight_bytes(attention_precision(deployment.model, deployment.weights))


def dense_weights_bytes(deployment: Deployment, layers: Layers) -> float:
    """Of one layer, stored on one device: sharded as attention is, by `tp`."""
    count = dense_parameters(layers.feed_forward, deployment.model.hidden)
    return count * weight_bytes(dense_precision(deployment.model, deployment.weights)) / deployment.tp


def _kept(deployment: Deployment, tp: int) -> tuple[float, float]:
    """Bytes of all layers on one of `tp` devices: what a token adds, and what a sequence keeps anyway."""
    element = KV_BITS[deployment.kv] / 8
    per_token = bounded = 0.0
    for group in deployment.model.layers:
        attention = group.attention
        growing, kept = cached_elements(attention, tp, deployment.block_tokens)
        per_token += group.count * growing * element
        bounded += group.count * kept * element
        if isinstance(attention, RecurrentAttention):
            bounded += group.count * attention.state_elements * attention.state_element_bytes / tp
    return per_token, bounded


def delivered_bytes(deployment: Deployment, prompt_tokens: float) -> float:
    """Of the whole model: keys, values and states of a prompt, as they go from one replica to another."""
    per_token, bounded = _kept(deployment, 1)
    return prompt_tokens * per_token + bounded


def cached_elements(attention: Attention, tp: int, block_tokens: int) -> tuple[float, float]:
    """In one layer's cache on one of `tp` devices: per token, and per sequence however long it is.

    Latent vectors, and whatever else has no heads, are on every device.
    """
    if isinstance(attention, GroupedAttention):
        value_dim = attention.value_dim or attention.head_dim
        token = kv_heads(attention, tp) * (attention.head_dim + value_dim) + attention.indexer_dim
        if attention.window_tokens is None:
            return token, 0.0
        return 0.0, token * (attention.window_tokens + block_tokens)  # a block that is half out is kept
    if isinstance(attention, LatentAttention):
        indexer = attention.indexer_dim if attention.indexer_heads else 0
        return attention.kv_rank + attention.rope_dim + indexer, 0.0
    if isinstance(attention, CompressedAttention):
        entry = attention.head_dim + attention.indexer_dim
        window = attention.head_dim * (attention.window_tokens + block_tokens)
        return (entry / attention.ratio if attention.ratio else 0.0), window
    return 0.0, 0.0
