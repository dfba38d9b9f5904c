"""What share of an accelerator's figures does an engine reach, and what does it take besides?

Few constants, shared by all models and accelerators, each with a meaning of its own. They were fitted to the
rows of public benchmarks that are not held out (`../shared/data/engine-e2e-measured`); `python -m
accuracy.planner --fit` fits them again and prints them, docs/accuracy.md says how far off they are.
"""

from __future__ import annotations

from typing import Final

import msgspec


class Efficiencies(msgspec.Struct, frozen=True, kw_only=True):
    """Of one engine's software. Shares are of the accelerator's own figures."""

    read: tuple[float, float, float, float]
    """Of the memory's bandwidth, while weights are read, by `activations.STORED`."""
    compute: tuple[float, float, float]
    """Of the peak, by `work.COMPUTED`, while prompts are computed."""
    product_s: tuple[float, float, float, float]
    """A matrix product of nothing, by `activations.STORED`: it is launched, and its input quantised."""
    product_moves: tuple[float, float, float, float]
    """Of the bandwidth, while products read their inputs and write their outputs; little where inputs are
    quantised first."""
    between: float
    """Of the bandwidth, while vectors are read and written between products."""
    expert_moves: float
    """Of the bandwidth, while tokens are brought to experts and back."""
    expert_read: tuple[float, float, float, float]
    """Likewise for experts. More than other weights reach, for tokens do not choose evenly: fewer experts are
    read than if they did."""
    expert_compute: float
    """Of what is reached with other weights, while their products are computed."""
    expert_tile: float
    """Tokens that the products of one expert are computed for, at a time."""
    cache: float
    """Of the bandwidth, while KV caches are read."""
    decode_attention: float
    """Of the peak in bf16, where decoding attends by computing (latent attention)."""
    prefill_attention: float
    attended_tokens: float
    """What a prompt's token costs in attention, whatever is before it: as much as so many tokens do."""
    link: float
    """Of the link's rate in one direction."""
    reduce_s: float
    """An all-reduce of nothing."""
    step_s: float
    """Each step: scheduling, sampling, launching."""
    layer_s: float
    """Each layer: what runs between its matrix products."""
    expert_layer_s: float
    """Each layer with experts, besides: routing, sorting, gathering."""
    sequence_s: float
    """Each sequence in a step."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """What a first token waits for, besides its prompt's own steps."""

    overhead_s: float = 0.0
    """Of a request, outside of steps: tokenization, transport."""
    steps: float = 1.0
    """Between arrival and the prompt's first step, and between its last step and delivery. Engines that look
    for requests, or deliver, only every some steps have many."""
    queue: float = 0.5
    """Of what a queue before one server waits whose service times do not vary: 0.5 is that queue."""
    together: float = 0.0
    """Share of those clients that have kept in step who stay together as they began, 0..1: where prompts go
    before all that decodes, sequences of one length also end together."""
    alone: float = 1.0
    """What the steps of a prompt take, over what the curve says. Below 1 as shipped: prompts of benchmarks
    are shorter than nominal (0.9 in InferenceMAX). For TPOT that is even, for outputs are as well."""
    behind: float = 0.0
    """Prompts that come right before, where clients have kept in step: they ended in the step before, and are
    computed in the one that is under way."""
    in_step_tokens: float = 512.0
    """Length of outputs from which on most clients no longer keep in step: lengths that vary by a little part
    vary by more tokens the longer they are, and groups that end together are a token apart."""
    beside: float = 1.0
    """What a prompt's step takes beside decoding sequences, over what it adds to theirs in the curve."""
    output_reserved: float = 0.5
    """Share of an output for which there must be room before a sequence starts, 0..1."""


def efficiencies_of(software: str) -> Efficiencies:
    """Of `deployment.SOFTWARE`."""
    return msgspec.convert({**SHARED, **BY_SOFTWARE[software]}, Efficiencies)


def waiting_of(software: str) -> Waiting:
    """Of `deployment.SOFTWARE`."""
    reserved = OUTPUT_RESERVED.get(software, 0.5)
    return msgspec.convert(
        {**SHARED_WAITING, **WAITING_BY_SOFTWARE[software], "output_reserved": reserved}, Waiting
    )


SHARED: Final[dict[str, object]] = {
    "read": (0.803, 0.888, 0.65, 0.698),
    "product_s": (0.000004, 0.0000064, 0.000004, 0.0000077),
    "product_moves": (1, 0.253, 1, 0.589),
    "expert_read": (1.17, 0.886, 0.65, 1.47),
    "compute": (0.777, 0.75, 0.673),
    "between": 0.59,
    "expert_moves": 0.162,
    "expert_compute": 0.332,
    "expert_tile": 38.2,
    "cache": 0.875,
    "decode_attention": 0.299,
    "prefill_attention": 0.653,
    "attended_tokens": 617,
    "link": 0.754,
    "reduce_s": 0.00000629,
    "step_s": 0.00031,
}
BY_SOFTWARE: Final[dict[str, dict[str, object]]] = {
    "vllm": {"layer_s": 0.0000242, "expert_layer_s": 0.0000338, "sequence_s": 0.0000222},
    "sglang": {"layer_s": 0.00000636, "expert_layer_s": 0.000054, "sequence_s": 0.0000284},
    "trtllm": {"layer_s": 0.0000127, "expert_layer_s": 0.0000327, "sequence_s": 0.0000122},
}
SHARED_WAITING: Final[dict[str, object]] = {
    "queue": 0.021,
    "alone": 0.9,
    "beside": 1.07,
    "behind": 1.9,
    "in_step_tokens": 621,
}
WAITING_BY_SOFTWARE: Final[dict[str, dict[str, object]]] = {
    "vllm": {"overhead_s": 0.00323, "steps": 5.69, "together": 0},
    "sglang": {"overhead_s": 0.0163, "steps": 24.3, "together": 1},
    "trtllm": {"overhead_s": 0.0471, "steps": 4.88, "together": 0},
}
OUTPUT_RESERVED: Final = {"trtllm": 1.0}
"""TensorRT-LLM's default policy, GUARANTEED_NO_EVICT (2025); others admit and evict, 0.5 on the mean."""
