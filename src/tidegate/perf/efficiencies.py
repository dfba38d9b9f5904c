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
    """Of the memory's bandwidth, while weights are read, by `work.STORED`."""
    compute: tuple[float, float, float]
    """Of the peak, by `work.COMPUTED`, while prompts are computed."""
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
    """Share of a closed loop's clients that stay together as they began, 0..1: where prompts go before all
    that decodes, sequences of one length also end together."""
    alone: float = 1.0
    """What the steps of a prompt take, over what the curve says. Below 1 as fitted: prompts of benchmarks are
    shorter than nominal (0.9 in InferenceMAX), which makes no difference to TPOT, for outputs are as well."""
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
    "read": (0.797, 0.837, 0.65, 0.574),
    "expert_read": (1.37, 0.85, 0.58, 1.28),
    "compute": (0.687, 0.453, 0.463),
    "expert_compute": 0.26,
    "expert_tile": 23.9,
    "cache": 0.852,
    "decode_attention": 0.275,
    "prefill_attention": 0.489,
    "link": 0.501,
    "reduce_s": 0.0000106,
    "step_s": 0.0000643,
    "sequence_s": 0.000017,
}
BY_SOFTWARE: Final[dict[str, dict[str, object]]] = {
    "vllm": {"layer_s": 0.0000408, "expert_layer_s": 0.0000307},
    "sglang": {"layer_s": 0.00000845, "expert_layer_s": 0.0000852},
    "trtllm": {"layer_s": 0.0000291, "expert_layer_s": 0.0000312},
}
SHARED_WAITING: Final[dict[str, object]] = {"queue": 0.0865, "alone": 0.634, "beside": 1.05}
WAITING_BY_SOFTWARE: Final[dict[str, dict[str, object]]] = {
    "vllm": {"overhead_s": 0.00575, "steps": 6.35, "together": 0},
    "sglang": {"overhead_s": 0.0187, "steps": 21.9, "together": 0.669},
    "trtllm": {"overhead_s": 0.0826, "steps": 5.36, "together": 0},
}
OUTPUT_RESERVED: Final = {"trtllm": 1.0}
"""TensorRT-LLM's default policy, GUARANTEED_NO_EVICT (2025); others admit and evict, 0.5 on the mean."""
