"""What is a deployment of a model: on which devices, sharded how, in what precision, with which limits?"""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.catalog.accelerators import Accelerator
from tidegate.catalog.models import CompressedAttention, Experts, GroupedAttention, LatentAttention, Model
from tidegate.core.errors import ConfigurationError
from tidegate.perf.heads import problems_between
from tidegate.perf.precisions import BITS, KV_BITS
from tidegate.perf.speculative import Speculation

GIB: Final = 2**30
SOFTWARE: Final = ("vllm", "sglang", "trtllm")

RESERVE_BYTES: Final = int(1.2 * GIB)
"""Per device, for activations, captured graphs and the communicator: what the KV blocks that vLLM reported
for seven models on H100 and one on RTX 4090 imply (0.33 to 1.41 GiB; BLIS's runs with vLLM 0.15 and
LLMServingSim's with 0.19; read 2026-11). Others say 2.2 to 5.6 GiB (llm-d-planner, 2026)."""


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """One replica. It has tp x attention_dp x pp devices.

    Attention is sharded over `tp` devices, and there are `attention_dp` copies of it, each with requests of
    its own. Experts are sharded over all tp x attention_dp devices: `ep` groups of them hold whole experts.
    """

    model: Model
    accelerator: Accelerator
    tp: int = 1
    pp: int = 1
    ep: int = 1
    attention_dp: int = 1
    weights: str | None = None
    """Precision; None: as the model is published."""
    kv: str = "bf16"
    software: str = "vllm"
    max_num_seqs: int = 256
    """Of one copy of attention, as `max_batched_tokens` is."""
    max_batched_tokens: int = 8192
    """vLLM's default on devices with 70 GiB and more (since 0.8, 2025)."""
    memory_ratio: float = 0.9
    """Of the usable memory, for all. vLLM's default."""
    reserve_bytes: int = RESERVE_BYTES
    block_tokens: int = 16
    speculation: Speculation | None = None
    """None: a step makes one token of each sequence."""

    def __post_init__(self) -> None:
        """ConfigurationError with all that cannot be."""
        problems = [*_counts(self), *_names(self)] or [*_shards(self), *_guesses(self)]
        if problems:
            raise ConfigurationError(problems)

    @property
    def devices(self) -> int:
        """Of the replica."""
        return self.tp * self.attention_dp * self.pp

    @property
    def stage_devices(self) -> int:
        """That share a layer."""
        return self.tp * self.attention_dp

    @property
    def precision(self) -> str:
        """Of the weights."""
        return self.weights or self.model.precision

    @property
    def draft(self) -> Deployment | None:
        """The model that guesses, as it is deployed beside this one; None: nothing is computed for guesses.

        In its published precision, with its cache in the same bits, and sharded as this one: vLLM's default
        (`draft_tensor_parallel_size`, 2026). One whose heads cannot be shared out so is whole on each device.
        """
        if self.speculation is None or self.speculation.draft.model is None:
            return None
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        model = self.speculation.draft.model
        values |= {"model": model, "weights": None, "speculation": None, "ep": 1}
        if any(count % self.tp for count in _heads(model)):
            values["tp"] = 1
        return Deployment(**values)


def _counts(deployment: Deployment) -> list[str]:
    names = ("tp", "pp", "ep", "attention_dp", "max_num_seqs", "max_batched_tokens", "block_tokens")
    few = [f"{name}: {getattr(deployment, name)} must be 1 or more" for name in names]
    problems = [text for name, text in zip(names, few, strict=True) if getattr(deployment, name) < 1]
    if not 0 < deployment.memory_ratio <= 1:
        problems.append(f"memory_ratio: {deployment.memory_ratio:g} must be above 0, and 1 at most")
    if deployment.reserve_bytes < 0:
        problems.append(f"reserve_bytes: {deployment.reserve_bytes} must be 0 or more")
    return problems


def _names(deployment: Deployment) -> list[str]:
    problems = []
    if deployment.precision not in BITS:
        problems.append(f"weights: {deployment.precision!r} is no precision; give one of {', '.join(BITS)}")
    if deployment.kv not in KV_BITS:
        problems.append(
            f"kv: {deployment.kv!r} is no precision of a KV cache; give one of {', '.join(KV_BITS)}"
        )
    if deployment.software not in SOFTWARE:
        problems.append(
            f"software: {deployment.software!r} is no engine that is known; give one of {', '.join(SOFTWARE)}"
        )
    return problems


def _shards(deployment: Deployment) -> list[str]:
    """Heads that cannot be shared out, experts that cannot be, more stages than layers."""
    problems, tp = [], deployment.tp
    layers = deployment.model.layers
    uneven = sorted(count for count in _heads(deployment.model) if count % tp)
    if uneven:
        problems.append(
            f"tp: {uneven[0]} attention heads cannot be shared by {tp} devices; give a divisor of them"
        )
    counts = {group.feed_forward.count for group in layers if isinstance(group.feed_forward, Experts)}
    if deployment.stage_devices % deployment.ep:
        problems.append(
            f"ep: {deployment.stage_devices} devices are not a multiple of {deployment.ep}; "
            "give a divisor of them"
        )
    elif deployment.ep > 1 and not counts:
        problems.append(f"ep: {deployment.model.name} has no experts to share out; leave it at 1")
    elif any(count < deployment.ep for count in counts):
        problems.append(
            f"ep: {min(counts)} experts are too few for {deployment.ep} devices; give that many at most"
        )
    depth = sum(group.count for group in layers)
    if deployment.pp > depth:
        problems.append(f"pp: {depth} layers are too few for {deployment.pp} stages; give that many at most")
    return problems


def _heads(model: Model) -> set[int]:
    """Of attention, each number once."""
    kinds = (GroupedAttention, LatentAttention, CompressedAttention)
    return {group.attention.heads for group in model.layers if isinstance(group.attention, kinds)}


def _guesses(deployment: Deployment) -> list[str]:
    """A draft that does not go with the model; guesses that do not fit into a step."""
    guessing = deployment.speculation
    if guessing is None:
        return []
    problems = problems_between(deployment.model, guessing.draft)
    if deployment.pp > 1:
        problems.append("draft: nothing is known of drafts beside a model in stages; leave pp at 1")
    verified = deployment.max_num_seqs * (1 + guessing.draft_tokens)
    if verified > deployment.max_batched_tokens:
        told = f"{deployment.max_num_seqs:,} sequences with {guessing.draft_tokens} guesses each"
        problems.append(f"max_batched_tokens: a step of {told} has {verified:,} tokens; make it that many")
    return problems
