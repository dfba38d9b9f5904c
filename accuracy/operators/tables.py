"""What was measured of operators alone?

`../shared/data/engine-ops-aiconfigurator`: latencies of vLLM's kernels on six accelerators. The unit of
`message_size` is not stated there; it is elements of two bytes, for then eight A100 reach 228 GB/s on the bus
and eight H100 469, which is what such nodes are known for (NCCL's own tests), and half of it otherwise.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Columns = dict[str, Array]

DATA: Final = Path(__file__).parents[3] / "shared" / "data" / "engine-ops-aiconfigurator"
SYSTEMS: Final = {
    "h100-sxm": "h100_sxm",
    "h200-sxm": "h200_sxm",
    "b200-sxm": "b200_sxm",
    "a100-sxm": "a100_sxm",
    "l40s": "l40s",
    "rtx-pro-6000": "rtx_pro_6000_server",
}
"""Accelerators of the catalogue, by what the tables call them."""
SOFTWARE: Final = {"a100-sxm": "vLLM 0.14.0"}
NEWER: Final = "vLLM 0.24.0"
ELEMENT_BYTES: Final = 2
MOST_TOKENS: Final = 16384
"""Of a step."""
PRODUCTS: Final = {"bfloat16": "bf16", "fp8": "fp8", "nvfp4": "fp4"}
EXPERTS: Final = {"bfloat16": "bf16", "fp8_block": "fp8", "w4a16_mxfp4": "int4", "nvfp4": "fp4"}
"""As what the planner takes them: weights in four bits of which products are computed in 16 as int4."""
CACHES: Final = {"bfloat16": "bf16", "fp8": "fp8"}


def products(accelerator: str) -> dict[str, Columns]:
    """Of matrices as large as a layer's, by precision: `tokens`, `outputs`, `inputs`, `seconds`."""
    table = _read(f"{SYSTEMS[accelerator]}.gemm")
    found = {}
    for name, precision in PRODUCTS.items():
        part = _of(table, lambda row, name=name: row["gemm_dtype"] == name)
        if part:
            columns = _columns(part, tokens="m", outputs="n", inputs="k")
            size = columns["outputs"] * columns["inputs"]
            usual = (size >= 4e6) & (size < 4e8) & (columns["tokens"] <= MOST_TOKENS)
            found[precision] = _where(columns, usual)
    return found


def attention(accelerator: str, phase: str) -> dict[str, Columns]:
    """`decode` or `prefill`, by what caches are in: `batch`, `tokens`, `heads`, `kv_heads`, `seconds`."""
    table = _read(f"{SYSTEMS[accelerator]}.{phase}_attention")
    length = "context_len" if phase == "decode" else "isl"
    found = {}
    for name, precision in CACHES.items():
        part = _of(table, lambda row, name=name: row["kv_cache_dtype"] == name)
        if part:
            columns = _columns(
                part, batch="batch_size", tokens=length, heads="num_heads", kv_heads="num_key_value_heads"
            )
            group = columns["heads"] / columns["kv_heads"]
            usual = (group > 1) & (group <= 16) & (columns["tokens"] >= 256)
            found[precision] = _where(columns, usual)
    return found


def experts(accelerator: str) -> dict[str, Columns]:
    """Evenly chosen, on up to 8 devices, by precision: `tokens`, `hidden`, `size`, `chosen`, `count`,
    `groups` (of devices with whole experts) and `parts` (of each), `seconds`.
    """
    rows = _of(
        _read("moe"),
        lambda row: row["gpu"] == SYSTEMS[accelerator] and row["distribution"] == "balanced",
    )
    found = {}
    for name, precision in EXPERTS.items():
        part = _of(
            rows, lambda row, name=name: row["moe_dtype"] == name and row["distribution"] == "balanced"
        )
        if part:
            columns = _columns(
                part,
                tokens="num_tokens",
                hidden="hidden_size",
                size="inter_size",
                chosen="topk",
                count="num_experts",
                groups="moe_ep_size",
                parts="moe_tp_size",
            )
            usual = (columns["tokens"] <= MOST_TOKENS) & (columns["groups"] * columns["parts"] <= 8)
            found[precision] = _where(columns, usual)
    return found


def reduces(accelerator: str) -> dict[int, Columns]:
    """vLLM's own all-reduce in a captured graph, by devices: `sent_bytes`, `seconds`."""
    rows = _of(
        _read("custom_allreduce_bf16"),
        lambda row: row["gpu"] == SYSTEMS[accelerator] and row["kernel"] == "vLLM_custom_graph",
    )
    found = {}
    for peers in (2, 4, 8):
        columns = _columns(
            _of(rows, lambda row, peers=peers: int(row["num_gpus"]) == peers), sent_bytes="message_size"
        )
        columns["sent_bytes"] = columns["sent_bytes"] * ELEMENT_BYTES
        found[peers] = _where(columns, columns["sent_bytes"] <= 2.7e8)
    return found


@cache
def _read(name: str) -> tuple[dict[str, str], ...]:
    with gzip.open(DATA / f"{name}.csv.gz", "rt", newline="") as lines:
        return tuple(csv.DictReader(lines))


def _of(rows: tuple[dict[str, str], ...], wanted: Callable[..., bool]) -> tuple[dict[str, str], ...]:
    return tuple(row for row in rows if wanted(row))


def _columns(rows: tuple[dict[str, str], ...], **names: str) -> Columns:
    columns = {own: np.array([float(row[name]) for row in rows]) for own, name in names.items()}
    return columns | {"seconds": np.array([float(row["latency_ms"]) * 1e-3 for row in rows])}


def _where(columns: Columns, mask: NDArray[np.bool_]) -> Columns:
    return {name: values[mask] for name, values in columns.items()}
