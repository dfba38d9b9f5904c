"""What is moved through memory for each token, besides weights and caches, and in how many matrix products?

A product reads its input and writes its output, and where it is computed in eight or four bits its input is
quantised before; norms, residuals and activation functions read and write vectors between products. For few
tokens that is next to nothing. For prompts it is not: where devices have narrow parts of the matrices, as
with tensor parallelism, it is a third of a step.
"""

from __future__ import annotations

from typing import Final, NamedTuple

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
from tidegate.perf.deployment import Deployment
from tidegate.perf.parameters import kv_heads
from tidegate.perf.precisions import attention_precision, dense_precision

ByStored = tuple[float, float, float, float]
STORED: Final = ("bf16", "fp8", "int4", "fp4")
"""Precisions of weights that are read at rates of their own; int8 goes with fp8, and 32 bits with 16."""
ELEMENT_BYTES: Final = 2
"""Of an activation between products: 16 bits, whatever weights are stored in."""
BETWEEN: Final = 8
"""Vectors of the model's width, per layer: two norms each read and write it and the residual."""


class Activations(msgspec.Struct, frozen=True, kw_only=True):
    """Of one device, for one traversal of all layers; bytes per token."""

    products: ByStored
    """How many, by `STORED`; those of experts count as one, of their router."""
    product_bytes: ByStored
    """Their inputs and outputs, those of attention among them."""
    between_bytes: float
    expert_bytes: float
    """Inputs and outputs of the experts that a token chooses: its share, per token of the whole replica."""


class _Io(NamedTuple):
    """Products of one layer's attention, and their inputs and outputs in elements."""

    products: int
    elements: float


def activations_of(deployment: Deployment) -> Activations:
    """Of one device."""
    model, tp = deployment.model, deployment.tp
    attention = STORED.index(stored(attention_precision(model, deployment.weights)))
    dense = STORED.index(stored(dense_precision(model, deployment.weights)))
    products, moved = [0.0] * len(STORED), [0.0] * len(STORED)
    for group in model.layers:
        io = _attention(group.attention, model.hidden, tp)
        products[attention] += group.count * io.products
        moved[attention] += group.count * io.elements * ELEMENT_BYTES
        if size := _dense_size(group):
            products[dense] += group.count * 2
            width = 2 * model.hidden + group.feed_forward.matrices * size / tp
            moved[dense] += group.count * width * ELEMENT_BYTES
        if isinstance(group.feed_forward, Experts):
            products[0] += group.count
    return Activations(
        products=_four(products),
        product_bytes=_four(moved),
        between_bytes=float(
            BETWEEN * ELEMENT_BYTES * model.hidden * sum(group.count for group in model.layers)
        ),
        expert_bytes=sum(_expert_bytes(group, model.hidden) for group in model.layers)
        / deployment.stage_devices,
    )


def stored(precision: str) -> str:
    """As `STORED` has it."""
    return {"int8": "fp8", "fp32": "bf16", "fp16": "bf16"}.get(precision, precision)


def _four(values: list[float]) -> ByStored:
    bf16, fp8, int4, fp4 = values
    return bf16, fp8, int4, fp4


def _dense_size(group: Layers) -> int:
    part = group.feed_forward
    return part.size if isinstance(part, Dense) else part.shared_size


def _expert_bytes(group: Layers, hidden: int) -> float:
    part = group.feed_forward
    if not isinstance(part, Experts):
        return 0.0
    width = 2 * (part.latent or hidden) + part.matrices * part.size
    return group.count * part.chosen * width * float(ELEMENT_BYTES)


def _attention(attention: Attention, hidden: int, tp: int) -> _Io:
    """Queries, keys, values and outputs are written by one product and read by the next."""
    if isinstance(attention, GroupedAttention):
        query = attention.heads / tp * attention.head_dim
        both = attention.head_dim + (attention.value_dim or attention.head_dim)
        return _Io(2, 2 * hidden + 4 * query + kv_heads(attention, tp) * both)
    if isinstance(attention, LatentAttention):
        heads = attention.heads / tp
        ranks = (attention.q_rank or 0) + attention.kv_rank + attention.rope_dim
        each = attention.nope_dim + attention.rope_dim + attention.value_dim
        return _Io(5, 2 * hidden + 2 * ranks + 3 * heads * each)
    if isinstance(attention, CompressedAttention):
        return _Io(6, 2 * hidden + 4 * attention.heads / tp * attention.head_dim)
    if isinstance(attention, RecurrentAttention):
        return _Io(3, 4 * hidden)
    return _Io(0, 0.0)
