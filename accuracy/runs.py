"""What was measured, and on what?

A folder of runs holds `runs.json`, and for each run `RUN.requests.csv.gz`, the workload that `runs.json`
names, and perhaps `RUN.timeseries.csv.gz`: the form of `../shared/data/vllm-measured-requests`, whose README
says where it comes from.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tidegate.workload.traces.blocks import read_blocks

DATA = Path(__file__).parents[2] / "shared" / "data"
RUNS = DATA / "vllm-measured-requests"


class EngineArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Those of vLLM's arguments that decide what is simulated."""

    tensor_parallel_size: int = 1
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int | None = None


class KvCache(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine said of its KV cache."""

    num_gpu_blocks: int
    block_size: int
    """In tokens."""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of `runs.json`."""

    run: str
    model: str
    gpu: str
    engine_kwargs: EngineArguments
    kv_cache: KvCache | None
    workload: str


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request: what it asked for, and when what happened to it, in seconds since the run began."""

    id: int
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]
    """Of each full block of 16 prompt tokens, an id that stands for it and all before it."""
    arrival_s: float
    queued_s: float
    first_token_s: float
    last_token_s: float


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's state at an instant."""

    at_s: float
    running: int
    waiting: int
    kv_used: float
    """Share of the KV cache, 0..1."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run, its requests in the order in which the engine queued them."""

    description: Description
    requests: tuple[Request, ...]
    ticks: tuple[Tick, ...] = ()
    """Second by second, where that was recorded."""

    @property
    def name(self) -> str:
        """As its folder names it."""
        return self.description.run


def read_runs(folder: Path = RUNS) -> list[Run]:
    """All runs of a folder."""
    descriptions = msgspec.json.decode((folder / "runs.json").read_bytes(), type=list[Description])
    return [
        Run(description=one, requests=_requests(folder, one), ticks=_ticks(folder, one))
        for one in descriptions
    ]


def _requests(folder: Path, description: Description) -> tuple[Request, ...]:
    measured = read_rows(folder / f"{description.run}.requests.csv.gz")
    with gzip.open(folder / description.workload) as file:
        planned = list(read_blocks(file, description.workload))
    requests = [
        Request(
            id=int(row["idx"]),
            prompt_tokens=int(row["prompt_tokens"]),
            output_tokens=int(row["output_tokens"]),
            blocks=plan.prefix,
            arrival_s=float(row["arrival_s"]),
            queued_s=float(row["queued_s"]),
            first_token_s=float(row["first_token_s"]),
            last_token_s=float(row["last_token_s"]),
        )
        for row, plan in zip(measured, planned, strict=True)
    ]
    return tuple(sorted(requests, key=lambda request: (request.queued_s, request.id)))


def _ticks(folder: Path, description: Description) -> tuple[Tick, ...]:
    path = folder / f"{description.run}.timeseries.csv.gz"
    if not path.exists():
        return ()
    return tuple(
        Tick(
            at_s=float(row["t"]),
            running=int(row["running"]),
            waiting=int(row["waiting"]),
            kv_used=float(row["kv_cache_pct"]) / 100,
        )
        for row in read_rows(path)
    )


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    """Rows of a gzipped CSV file."""
    with gzip.open(path, "rt", newline="") as file:
        yield from csv.DictReader(file)
