"""What has one device to read, to compute and to exchange for one step of a deployment?

Only counts, from the model's shape and how it is sharded; how fast that goes is `roofline`'s and
`efficiencies`'. Amounts are of one traversal of all layers, whichever devices they are on.
"""

from __future__ import annotations

from math import ceil
from typing import Final

import msgspec

from tidegate.catalog.models import (
    Attention,
    CompressedAttention,
    Dense,
    Experts,
    GroupedAttention,
    LatentAttention,
    Layers,
    RecurrentAttention,
)
from tidegate.perf.activations import STORED, Activations, ByStored, activations_of, stored
from tidegate.perf.deployment import Deployment
from tidegate.perf.memory import PLAIN_BYTES
from tidegate.perf.parameters import attention_parameters, dense_parameters, expert_parameters, kv_heads
from tidegate.perf.precisions import (
    KV_BITS,
    attention_precision,
    computed_in,
    dense_precision,
    weight_bytes,
)

ByComputed = tuple[float, float, float]
COMPUTED: Final = ("bf16", "fp8", "fp4")
UNLIMITED: Final = 2.0**40
"""Tokens: of attention to all of them."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Attention of all layers that attend to the same last tokens."""

    limit_tokens: float
    read_bytes: float
    """Of the cache, per token attended to."""
    decode_flops: float
    """Per token that a decoding one attends to."""
    prefill_flops: float
    """Per token that a prompt's attends to."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Of one device."""

    parts: float
    """Into which the tokens of a step are shared: copies of attention, times stages."""
    stages: float
    read_bytes: ByStored
    """Weights of all but experts and output layer, by `STORED`."""
    flops_per_token: ByComputed
    """Of all but experts and output layer, by `COMPUTED`."""
    head_bytes: float
    head_flops: float
    """Of the output layer, for each sequence."""
    expert_bytes: ByStored
    """Of all experts."""
    expert_flops_per_token: ByComputed
    """Of those that a token chooses: its share of them, per token of the whole replica."""
    chosen_share: float
    """Experts that a token chooses, over all."""
    experts_per_chosen: float
    """All, over those that a token chooses; 0 without experts."""
    layers: float
    expert_layers: float
    activations: Activations
    reduces: float
    """All-reduces; 0 on one device."""
    reduce_bytes: float
    """Of each, per token of the whole replica."""
    peers: float
    """Devices that exchange; 1 for one."""
    spans: tuple[Span, ...]
    state_bytes: float
    """Read and written, per decoding sequence."""


def work_of(deployment: Deployment) -> Work:
    """Counts of one device."""
    model, tp = deployment.model, deployment.tp
    head = model.vocabulary * model.hidden / tp
    layers = sum(group.count for group in model.layers)
    states = [group for group in model.layers if isinstance(group.attention, RecurrentAttention)]
    read, flops = _plain(deployment)
    expert_read, expert_flops = _expert(deployment)
    mixtures = [group for group in model.layers if isinstance(group.feed_forward, Experts)]
    share = max((_chosen(group) for group in mixtures), default=0.0)
    return Work(
        parts=float(deployment.attention_dp * deployment.pp),
        stages=float(deployment.pp),
        read_bytes=read,
        flops_per_token=flops,
        head_bytes=head * PLAIN_BYTES,
        head_flops=2 * head,
        expert_bytes=expert_read,
        expert_flops_per_token=expert_flops,
        chosen_share=share,
        experts_per_chosen=1 / share if share else 0.0,
        layers=float(layers),
        expert_layers=float(sum(group.count for group in mixtures)),
        activations=activations_of(deployment),
        reduces=sum(_reduces(group) for group in model.layers) if deployment.stage_devices > 1 else 0.0,
        reduce_bytes=2.0 * model.hidden,
        peers=float(deployment.stage_devices),
        spans=_spans(deployment),
        state_bytes=sum(2.0 * group.count * _state_bytes(group.attention) / tp for group in states),
    )


def _plain(deployment: Deployment) -> tuple[ByStored, ByComputed]:
    """Weights read and products per token, by precision, of attention, dense parts and routers."""
    model = deployment.model
    read, flops = dict.fromkeys(STORED, 0.0), dict.fromkeys(COMPUTED, 0.0)
    for group in model.layers:
        part = group.feed_forward
        routers = model.hidden * part.count if isinstance(part, Experts) else 0
        for count, precision in (
            (
                attention_parameters(group.attention, model.hidden, deployment.tp),
                attention_precision(model, deployment.weights),
            ),
            (
                dense_parameters(part, model.hidden) / deployment.tp,
                dense_precision(model, deployment.weights),
            ),
            (routers, "bf16"),
        ):
            read[stored(precision)] += group.count * count * weight_bytes(precision)
            flops[_computed(deployment, precision)] += group.count * count * 2
    return _tuples(read, flops)


def _expert(deployment: Deployment) -> tuple[ByStored, ByComputed]:
    """All experts read, and the products per token with those chosen, by precision."""
    precision, hidden = deployment.precision, deployment.model.hidden
    read, flops = dict.fromkeys(STORED, 0.0), dict.fromkeys(COMPUTED, 0.0)
    for group in deployment.model.layers:
        part = group.feed_forward
        if isinstance(part, Experts):
            each = group.count * expert_parameters(part, hidden) / deployment.stage_devices
            read[stored(precision)] += each * part.count * weight_bytes(precision)
            flops[_computed(deployment, precision)] += each * part.chosen * 2
    return _tuples(read, flops)


def _tuples(read: dict[str, float], flops: dict[str, float]) -> tuple[ByStored, ByComputed]:
    stored = (read["bf16"], read["fp8"], read["int4"], read["fp4"])
    return stored, (flops["bf16"], flops["fp8"], flops["fp4"])


def _computed(deployment: Deployment, precision: str) -> str:
    return {"int8": "fp8"}.get(found := computed_in(deployment.accelerator, precision), found)


def _chosen(group: Layers) -> float:
    part = group.feed_forward
    return part.chosen / part.count if isinstance(part, Experts) else 0.0


def _reduces(group: Layers) -> float:
    """One after attention, one after the feed-forward part, where there is one."""
    part = group.feed_forward
    return group.count * (
        2.0 if isinstance(part, Experts) or (isinstance(part, Dense) and part.size) else 1.0
    )


def _state_bytes(attention: Attention) -> float:
    if isinstance(attention, RecurrentAttention):
        return attention.state_elements * attention.state_element_bytes
    return 0.0


def _spans(deployment: Deployment) -> tuple[Span, ...]:
    """Those with the same limit as one."""
    element = KV_BITS[deployment.kv] / 8
    summed: dict[float, list[float]] = {}
    for group in deployment.model.layers:
        for limit, elements, decode, prefill in _attended(group.attention, deployment.tp):
            sums = summed.setdefault(limit, [0.0, 0.0, 0.0])
            for place, value in enumerate((elements * element, decode, prefill)):
                sums[place] += group.count * value
    return tuple(
        Span(limit_tokens=limit, read_bytes=read, decode_flops=decode, prefill_flops=prefill)
        for limit, (read, decode, prefill) in summed.items()
    )


def _attended(attention: Attention, tp: int) -> list[tuple[float, float, float, float]]:
    """Limit, elements read, products of a decoding token and of a prompt's, per token attended to."""
    if isinstance(attention, GroupedAttention):
        both = attention.head_dim + (attention.value_dim or attention.head_dim)
        flops = 2.0 * ceil(attention.heads / tp) * both
        limit = attention.window_tokens or attention.top_tokens or UNLIMITED
        spans = [(float(limit), kv_heads(attention, tp) * float(both), flops, flops)]
        return spans + _indexed(attention.indexer_heads, attention.indexer_dim, 1)
    if isinstance(attention, LatentAttention):
        heads, kept = ceil(attention.heads / tp), attention.kv_rank + attention.rope_dim
        decode = 2.0 * heads * (kept + attention.kv_rank)
        prefill = 2.0 * heads * (attention.nope_dim + attention.rope_dim + attention.value_dim)
        spans = [(float(attention.top_tokens or UNLIMITED), float(kept), decode, prefill)]
        return spans + _indexed(attention.indexer_heads, attention.indexer_dim, 1)
    if isinstance(attention, CompressedAttention):
        flops = 4.0 * ceil(attention.heads / tp) * attention.head_dim
        spans = [(float(attention.window_tokens), float(attention.head_dim), flops, flops)]
        if attention.ratio:
            limit = (attention.top_entries or UNLIMITED / attention.ratio) * attention.ratio
            each = flops / attention.ratio
            spans.append((limit, attention.head_dim / attention.ratio, each, each))
            spans += _indexed(attention.indexer_heads, attention.indexer_dim, attention.ratio)
        return spans
    return []


def _indexed(heads: int, dim: int, ratio: int) -> list[tuple[float, float, float, float]]:
    """What chooses looks at all."""
    flops = 2.0 * heads * dim / ratio
    return [(UNLIMITED, dim / ratio, flops, flops)] if heads else []
