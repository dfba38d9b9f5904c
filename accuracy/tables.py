"""How long does a step of a run's engine take, by the operator tables?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import msgspec

from accuracy.engines import Engine
from accuracy.interconnect import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from accuracy.ranks import Batch
from accuracy.runs import DATA, read_rows
from tidegate.core.curve import Line, Table
from tidegate.perf.operators import Measured, experts, measured, table

OPERATORS = DATA / "engine-ops-llmservingsim"
BYTES = 2
"""Of a number in bfloat16."""
PADDED_TO = 8
"""A decode step computes a multiple of so many tokens (the sizes that vLLM captures CUDA graphs for)."""


def table_of(engine: Engine, gap_s: float) -> Table:
    """Of one rank, its collectives with tensor-parallel ranks included, those with data-parallel ones not."""
    shape = engine.shape
    shard = shard_measured(engine.gpu, engine.model, engine.tensor_ranks)
    one = table(shard, layers=shape.num_layers, gap_s=gap_s)
    if engine.tensor_ranks == 1:
        return one
    reduces = 2 * shape.num_layers + 1  # after attention and feed-forward, and once for the embedding
    seconds = tuple(
        seconds + reduces * ALL_REDUCE(tokens * shape.hidden_size * BYTES)
        for tokens, seconds in zip(one.tokens.points, one.tokens.seconds, strict=True)
    )
    return msgspec.structs.replace(one, tokens=Line(points=one.tokens.points, seconds=seconds))


class LockStep:
    """Seconds of a step of data-parallel ranks that share a model's experts."""

    def __init__(self, engine: Engine, gap_s: float) -> None:
        self.engine = engine
        self.rank = table_of(engine, gap_s)
        self.experts = experts(
            _experts_us(engine.gpu, engine.model),
            layers=engine.shape.num_layers,
            ranks=engine.data_ranks,
            experts=engine.shape.num_experts,
            chosen=engine.shape.experts_per_token,
        )

    def __call__(self, batches: Sequence[Batch]) -> float:
        """All wait for the slowest outside the experts, then compute all tokens together."""
        alone_s = max(self.rank.step_s(*batch) for batch in batches)
        tokens = [decodes + sum(new for new, _ in chunks) for decodes, _, chunks in batches]
        if not any(chunks for _, _, chunks in batches):
            tokens = [-(-max(tokens) // PADDED_TO) * PADDED_TO] * len(tokens)
        return alone_s + self.experts(sum(tokens)) + self._exchange_s(max(tokens))

    def _exchange_s(self, tokens: int) -> float:
        """Before the experts each rank sends its tokens and their choices, after them the sums come back."""
        shape = self.engine.shape
        hidden_bytes = tokens * shape.hidden_size * BYTES
        choices_bytes = tokens * shape.experts_per_token * (4 + 4)
        both_s = ALL_GATHER(hidden_bytes + choices_bytes) + REDUCE_SCATTER(hidden_bytes)
        return shape.num_layers * both_s


@cache
def shard_measured(gpu: str, model: str, tensor_ranks: int) -> Measured:
    """Operators of one of so many shards of a model."""
    return measured(
        read_rows(OPERATORS / "dense.csv.gz"),
        read_rows(OPERATORS / "per_sequence.csv.gz"),
        read_rows(OPERATORS / "attention.csv.gz"),
        {"gpu": gpu, "model": model, "tp": str(tensor_ranks)},
    )


@cache
def _experts_us(gpu: str, model: str) -> dict[tuple[int, int], float]:
    rows = read_rows(OPERATORS / "moe.csv.gz")
    return {
        (int(row["tokens"]), int(row["activated_experts"])): float(row["time_us"])
        for row in rows
        if (row["gpu"], row["model"], row["tp"]) == (gpu, model, "1")
    }
