"""How much longer does an accelerator without measured deployments take than one with them?

`../shared/data/engine-throughput-argonne`: static batches on A100 and H100 with engines of 2024. They were
slower than today's, so that it is the ratio of the two devices that can be compared.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import msgspec

from tidegate.catalog.catalog import Catalog
from tidegate.core.curve import Table
from tidegate.perf.deployment import Deployment
from tidegate.perf.efficiencies import Efficiencies, efficiencies_of
from tidegate.perf.roofline import curve_of

FOLDER: Final = Path(__file__).parents[3] / "shared" / "data" / "engine-throughput-argonne"
SOFTWARE: Final = {"vLLM": "vllm", "TensorRT-LLM": "trtllm"}
MODELS: Final = {
    "meta-llama/Meta-Llama-3-8B": "meta-llama/Llama-3.1-8B",
    "meta-llama/Llama-2-7b-hf": "meta-llama/Llama-2-7b-hf",
    "meta-llama/Meta-Llama-3-70B": "meta-llama/Llama-3.1-70B",
}
"""By what has the same shape in the catalogue."""
OTHER, KNOWN = "Nvidia A100 GPU", "Nvidia H100 GPU"
DEVICES: Final = {OTHER: "a100-sxm", KNOWN: "h100-sxm"}
CHUNK_TOKENS: Final = 8192


class Case(NamedTuple):
    """A static batch; as many tokens out as in."""

    framework: str
    model: str
    tp: int
    tokens: int
    batch: int


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """Of A100 to H100, medians over cases."""

    software: str
    tp: int
    cases: int
    measured: float
    with_table: float
    without: float
    error_with_table: float
    """Of the ratio, absolute and relative."""
    error_without: float


def ratios() -> list[Ratio]:
    """By engine and number of devices."""
    times = _times()
    found = []
    for framework, software in SOFTWARE.items():
        for tp in (1, 2, 4):
            cases = [case for case in times[OTHER] if case in times[KNOWN]]
            cases = [case for case in cases if (case.framework, case.tp) == (framework, tp)]
            measured = [times[OTHER][case] / times[KNOWN][case] for case in cases]
            with_table = [_predicted(case, lambda _: None) for case in cases]
            without = [_predicted(case, efficiencies_of) for case in cases]
            found.append(
                Ratio(
                    software=software,
                    tp=tp,
                    cases=len(cases),
                    measured=median(measured),
                    with_table=median(with_table),
                    without=median(without),
                    error_with_table=_off(with_table, measured),
                    error_without=_off(without, measured),
                )
            )
    return found


def _off(predicted: list[float], measured: list[float]) -> float:
    return median(abs(one / other - 1) for one, other in zip(predicted, measured, strict=True))


def _times() -> dict[str, dict[Case, float]]:
    found: dict[str, dict[Case, float]] = {OTHER: {}, KNOWN: {}}
    with gzip.open(FOLDER / "throughput.csv.gz", "rt", newline="") as lines:
        for row in csv.DictReader(lines):
            known = row["hardware"] in found and row["framework"] in SOFTWARE and row["model"] in MODELS
            if known and float(row["formula_ratio"]) == 1:
                tokens, batch = int(row["in_out_len_each"]), int(row["batch_size"])
                case = Case(row["framework"], row["model"], int(row["num_devices"]), tokens, batch)
                found[row["hardware"]].setdefault(case, float(row["latency_s"]))
    return found


def _predicted(case: Case, reached: Callable[[str], Efficiencies | None]) -> float:
    other_s, known_s = (_latency_s(case, DEVICES[each], reached) for each in (OTHER, KNOWN))
    return other_s / known_s


def _latency_s(case: Case, device: str, reached: Callable[[str], Efficiencies | None]) -> float:
    """Prompts in chunks, then steps at their mean context."""
    catalog, software = Catalog.shipped(), SOFTWARE[case.framework]
    deployment = Deployment(
        model=catalog.model(MODELS[case.model]),
        accelerator=catalog.accelerator(device),
        tp=case.tp,
        weights="bf16",
        software=software,
    )
    curve: Table = curve_of(deployment, reached(software))
    together = max(1, CHUNK_TOKENS // case.tokens)
    full, rest = divmod(case.batch, together)
    prompts_s = full * curve.step_s(0, 0.0, [(case.tokens, 0)] * together)
    if rest:
        prompts_s += curve.step_s(0, 0.0, [(case.tokens, 0)] * rest)
    return prompts_s + case.tokens * curve.step_s(case.batch, case.batch * 1.5 * case.tokens)
