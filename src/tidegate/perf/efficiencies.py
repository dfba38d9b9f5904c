"""What share of an accelerator's figures does an engine reach, and what does it take besides?

Few constants, shared by all models and accelerators, each with a meaning of its own. They were fitted to the
rows of public benchmarks that are not held out (`../shared/data/engine-e2e-measured`); `python -m
accuracy.planner --fit` fits them again and prints them, docs/accuracy.md says how far off they are.
"""

from __future__ import annotations

from typing import Final

import msgspec


class Efficiencies(msgspec.Struct, frozen=True, kw_only=True):
    """Of one engine's software. Shares are of the accelerator's own figures, 0..1."""

    read: tuple[float, float, float, float]
    """Of the memory's bandwidth, while weights are read, by `work.STORED`."""
    compute: tuple[float, float, float]
    """Of the peak, by `work.COMPUTED`, while prompts are computed."""
    expert_read: float
    """Of what is reached with other weights, while those of experts are read."""
    expert_compute: float
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
    beside: float = 1.0
    """What a prompt's step takes beside decoding sequences, over what it adds to theirs in the curve."""
    output_reserved: float = 0.5
    """Share of an output for which there must be room before a sequence starts, 0..1."""


def efficiencies_of(software: str) -> Efficiencies:
    """Of `deployment.SOFTWARE`."""
    return msgspec.convert({**SHARED, **BY_SOFTWARE[software]}, Efficiencies)


def waiting_of(software: str) -> Waiting:
    """Of `deployment.SOFTWARE`."""
    return msgspec.convert({**SHARED_WAITING, **WAITING_BY_SOFTWARE[software]}, Waiting)


SHARED: Final[dict[str, object]] = {
    "read": (0.85, 0.80, 0.60, 0.60),
    "compute": (0.68, 0.53, 0.40),
    "expert_read": 1.0,
    "expert_compute": 0.35,
    "cache": 0.8,
    "decode_attention": 0.35,
    "prefill_attention": 0.5,
    "link": 0.75,
    "reduce_s": 1e-5,
    "step_s": 5e-4,
    "sequence_s": 1.5e-5,
}
BY_SOFTWARE: Final[dict[str, dict[str, object]]] = {
    "vllm": {"layer_s": 2e-5, "expert_layer_s": 3e-5},
    "sglang": {"layer_s": 1e-5, "expert_layer_s": 6e-5},
    "trtllm": {"layer_s": 1.5e-5, "expert_layer_s": 2e-5},
}
SHARED_WAITING: Final[dict[str, object]] = {"overhead_s": 0.01, "queue": 0.3, "beside": 1.1}
WAITING_BY_SOFTWARE: Final[dict[str, dict[str, object]]] = {
    "vllm": {"steps": 4.0},
    "sglang": {"steps": 25.0},
    "trtllm": {"steps": 8.0, "output_reserved": 1.0},
}
