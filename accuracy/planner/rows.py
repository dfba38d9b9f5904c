"""Which measurements of real deployments is the planner judged by, and which may be fitted?

The rows are `../shared/data/engine-e2e-measured`; its README says what is wrong with them.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from tidegate.catalog.catalog import Catalog
from tidegate.catalog.models import Attention, Experts, GroupedAttention, LatentAttention
from tidegate.perf.deployment import Deployment

DATA: Final = Path(__file__).parents[3] / "shared" / "data" / "engine-e2e-measured" / "e2e_ttft_tpot.csv.gz"

CONFIGURATION: Final = (
    "backend",
    "model_path",
    "system",
    "precision",
    "mode",
    "isl",
    "osl",
    "gemm_quant_mode",
    "moe_quant_mode",
    "tp_size",
    "pp_size",
    "attention_dp_size",
    "moe_tp_size",
    "moe_ep_size",
    *(
        f"{phase}_{name}"
        for phase in ("prefill", "decode")
        for name in (
            "num_workers",
            "tp_size",
            "pp_size",
            "attention_dp_size",
            "moe_tp_size",
            "moe_ep_size",
        )
    ),
)
"""The columns of a curve: all but concurrency and batch sizes, what was measured, and by whom, when and with
which version, so that no version of a curve is fitted while another is held out."""
LOAD: Final = ("concurrency", "batch_size", "prefill_batch_size", "decode_batch_size")
LARGEST_TP: Final = 8
"""Of what was measured aggregated: a node."""
HELD_OUT: Final = 3
"""Of ten curves."""
SECONDS: Final = 1e-3
NAMES: Final = {
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-ai/DeepSeek-R1",
    "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B",
}
"""Models that the catalogue has under the name of what they were quantised from."""

Columns = Mapping[str, str]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measured point."""

    curve: str
    held_out: bool
    mode: str
    model: str
    system: str
    software: str
    precision: str
    clients: int
    """Of one replica."""
    prompt_tokens: int
    output_tokens: int
    ttft_s: float
    tpot_s: float
    dense: bool
    """No experts and no latent attention."""
    deployments: tuple[Deployment, ...]
    """One, or that of prefill and that of decode."""
    workers: tuple[int, ...]


def read_rows(path: Path = DATA) -> list[Row]:
    """All of them, repeats of one measurement left out."""
    with gzip.open(path, "rt", newline="") as lines:
        rows = [normal(columns) for columns in csv.DictReader(lines)]
    return [row_of(columns) for columns in distinct(rows) if not unsplit(columns)]


def normal(row: Columns) -> Columns:
    """With devices counted once: some dumps multiply those of tensor by those of expert parallelism.

    The same measurements stand in other dumps, and in their own ids, as tp4 ep4 where these say tp 16, and
    data-parallel attention on 2 devices as tp 2, attention_dp 2 and ep 4.
    """
    tp, copies = _count(row, "tp_size"), _count(row, "attention_dp_size")
    moe_tp, ep = _count(row, "moe_tp_size"), _count(row, "moe_ep_size")
    if row["mode"] == "agg" and moe_tp == ep > 1 and tp == moe_tp * ep > LARGEST_TP:
        return {**row, "tp_size": str(moe_tp), "moe_tp_size": "1"}
    if row["mode"] == "agg" and tp == copies > 1 and ep == tp * copies:
        return {**row, "tp_size": "1", "moe_ep_size": str(copies)}
    return row


def unsplit(row: Columns) -> bool:
    """Whether it counts the devices of prefill and decode together and calls that aggregated.

    Only DeepSeek on GB200 has that, with 20 to 72 devices that its attention heads cannot be shared by.
    """
    return row["mode"] == "agg" and _count(row, "tp_size") > LARGEST_TP


def distinct(rows: Iterable[Columns]) -> list[Columns]:
    """Without those that have the configuration, the load and, to three digits, both values of one before."""
    kept: dict[tuple[str, ...], Columns] = {}
    for row in rows:
        values = (f"{float(row[name]):.3g}" for name in ("silicon_ttft_ms", "silicon_tpot_ms"))
        kept.setdefault((*(row[name] for name in (*CONFIGURATION, *LOAD)), *values), row)
    return list(kept.values())


def curve_name(row: Columns) -> str:
    """The values of `CONFIGURATION`, in its order, with `|` between them."""
    return "|".join(row[name] for name in CONFIGURATION)


def is_held_out(curve: str) -> bool:
    """If its SHA-256, as a number, ends in a digit below 3."""
    return int(hashlib.sha256(curve.encode()).hexdigest(), 16) % 10 < HELD_OUT


def row_of(columns: Columns) -> Row:
    """What a line says, and what it leaves out as `Row` and docs/accuracy.md have it."""
    curve = curve_name(columns)
    apart = columns["mode"] == "disagg"
    phases = ("prefill_", "decode_") if apart else ("",)
    deployments = tuple(_deployment(columns, phase) for phase in phases)
    model = deployments[0].model
    return Row(
        curve=curve,
        held_out=is_held_out(curve),
        mode=columns["mode"],
        model=columns["model_path"],
        system=columns["system"],
        software=columns["backend"],
        precision=columns["precision"] or "bf16",
        clients=_clients(columns, deployments[0]),
        prompt_tokens=int(columns["isl"]),
        output_tokens=int(columns["osl"]),
        ttft_s=float(columns["silicon_ttft_ms"]) * SECONDS,
        tpot_s=float(columns["silicon_tpot_ms"]) * SECONDS,
        dense=not any(
            isinstance(group.feed_forward, Experts) or isinstance(group.attention, LatentAttention)
            for group in model.layers
        ),
        deployments=deployments,
        workers=tuple(_count(columns, f"{phase}num_workers") for phase in phases) if apart else (1,),
    )


def _clients(columns: Columns, deployment: Deployment) -> int:
    """Of one replica: where the batch is smaller although attention is not copied, there were several."""
    batch = _count(columns, "batch_size") * deployment.attention_dp
    clients = _count(columns, "concurrency", batch)
    alone = columns["mode"] == "agg" and deployment.attention_dp == 1
    return min(clients, batch) if alone else clients


def _deployment(columns: Columns, phase: str) -> Deployment:
    """Caches are taken to be in fp8 where weights are in fp8 or fp4; the columns do not say.

    Attention whose heads cannot be shared by `tp` devices is taken to be copied.
    """
    precision = columns["precision"] or "bf16"
    tp, copies = _count(columns, f"{phase}tp_size"), _count(columns, f"{phase}attention_dp_size")
    ep = _count(columns, f"{phase}moe_ep_size")
    catalog = Catalog.shipped()
    model = catalog.model(NAMES.get(columns["model_path"], columns["model_path"]))
    if any(_uneven(group.attention, tp) for group in model.layers):
        tp, copies = 1, tp * copies
    return Deployment(
        model=model,
        accelerator=catalog.accelerator(columns["system"]),
        tp=tp,
        pp=_count(columns, f"{phase}pp_size"),
        attention_dp=copies,
        ep=ep if (tp * copies) % ep == 0 else 1,
        weights=precision,
        kv="fp8" if precision in ("fp8", "fp4") else "bf16",
        software=columns["backend"],
        max_num_seqs=8192,
    )


def _uneven(attention: Attention, tp: int) -> bool:
    return isinstance(attention, GroupedAttention | LatentAttention) and attention.heads % tp != 0


def _count(columns: Columns, name: str, otherwise: int = 1) -> int:
    """An empty cell and 0 say nothing."""
    return int(columns[name] or 0) or otherwise


QUEUED_S: Final = 3.0
"""A TTFT from which on clients wait for room rather than for their prompt."""


def is_judged(row: Row) -> bool:
    """Aggregated, and not queueing."""
    return row.mode == "agg" and row.ttft_s < QUEUED_S


def may_be_fitted(row: Row) -> bool:
    """Judged, and not held out."""
    return is_judged(row) and not row.held_out
