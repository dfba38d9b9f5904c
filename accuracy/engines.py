"""What engine was a run made with, as far as it is recorded or can be computed?"""

from __future__ import annotations

import csv
from functools import cache

import msgspec

from accuracy.runs import DATA, Run
from tidegate.core.errors import ConfigurationError
from tidegate.sim.settings import ReplicaSettings

GIB = 2**30
BLOCK_TOKENS = 16
RESERVED_BYTES = 1.2 * GIB
"""What vLLM keeps besides weights and KV cache: what its own block counts imply, on seven models (0.3 to 1.4
GiB; own computation)."""
MEMORY_SHARE = 0.9
"""vLLM's default `gpu_memory_utilization`."""
GPUS = {
    "RTX 4090": ("RTX4090", 23.52 * GIB),
    "RTX PRO 6000": ("RTXPRO6000", 94.97 * GIB),
}
"""By a part of its name, its name in the operator tables, and its memory (as `runs.json` and, for the second,
the source of the tables say)."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What of a model decides its weights, its KV cache and what its ranks exchange."""

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    num_experts: int = 0
    experts_per_token: int = 0
    moe_intermediate: int = 0

    def weight_bytes(self, tensor_ranks: int, expert_ranks: int) -> float:
        """Of one GPU, in bfloat16. Embedding and output layer are two matrices; norms are left out."""
        attention = self.head_dim * self.hidden_size * 2 * (self.num_heads + self.num_kv_heads)
        experts = self.num_experts / expert_ranks
        feed_forward = 3 * self.hidden_size * (experts * self.moe_intermediate or self.intermediate_size)
        rest = 2 * self.vocab_size * self.hidden_size
        return 2 * (self.num_layers * (attention + feed_forward) + rest) / tensor_ranks

    def kv_bytes_per_token(self, tensor_ranks: int) -> int:
        """Of one GPU, in bfloat16."""
        return 2 * 2 * self.num_layers * self.head_dim * max(1, self.num_kv_heads // tensor_ranks)


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """Of one run."""

    gpu: str
    """As the operator tables call it."""
    model: str
    shape: Shape
    tensor_ranks: int
    data_ranks: int
    """Each of them schedules for itself, with `settings`."""
    settings: ReplicaSettings


def engine(run: Run) -> Engine:
    """From what the run recorded; memory for the KV cache, where it did not, from vLLM's own formula."""
    description = run.description
    arguments = description.engine_kwargs
    known = [GPUS[name] for name in GPUS if name in description.gpu]
    if not known:
        raise ConfigurationError([f"run {run.name}: no operator tables are known for {description.gpu}"])
    gpu, memory_bytes = known[0]
    shape = shapes()[description.model]
    tensor_ranks, data_ranks = arguments.tensor_parallel_size, arguments.data_parallel_size
    if data_ranks > 1 and not (arguments.enable_expert_parallel and shape.num_experts):
        raise ConfigurationError(
            [f"run {run.name}: data-parallel ranks are modelled only if they share experts"]
        )
    if description.kv_cache is not None:
        block_tokens = description.kv_cache.block_size
        if block_tokens != BLOCK_TOKENS:
            raise ConfigurationError(
                [f"run {run.name}: blocks of {block_tokens} tokens; only {BLOCK_TOKENS} are modelled"]
            )
        blocks = description.kv_cache.num_gpu_blocks
    else:
        weights = shape.weight_bytes(tensor_ranks, data_ranks * tensor_ranks if shape.num_experts else 1)
        left = MEMORY_SHARE * memory_bytes - weights - RESERVED_BYTES
        blocks = int(left / (BLOCK_TOKENS * shape.kv_bytes_per_token(tensor_ranks)))
    return Engine(
        gpu=gpu,
        model=description.model,
        shape=shape,
        tensor_ranks=tensor_ranks,
        data_ranks=data_ranks,
        settings=ReplicaSettings(
            max_num_seqs=arguments.max_num_seqs,
            max_batched_tokens=arguments.max_num_batched_tokens,
            kv_tokens=(blocks - 1) * BLOCK_TOKENS,  # vLLM never gives out its first block
            context_tokens=arguments.max_model_len or (blocks - 1) * BLOCK_TOKENS,
            block_tokens=BLOCK_TOKENS,
            prefix_cache=True,
        ),
    )


@cache
def shapes() -> dict[str, Shape]:
    """By model; of several rows for one model, the last."""
    with (DATA / "model-configs" / "model_shapes.csv").open(newline="") as file:
        rows = [{key: value for key, value in row.items() if value} for row in csv.DictReader(file)]
    known: dict[str, Shape] = {}
    for row in rows:
        try:
            known[row["model"]] = msgspec.convert(row, Shape, strict=False)
        except msgspec.ValidationError:  # an architecture that these fields do not describe
            continue
    return known
