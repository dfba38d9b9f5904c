"""How accurate is the planner, all in all? Every figure that docs/accuracy has of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from accuracy.operators.checks import Check, checks
from accuracy.operators.ratios import Ratio, ratios
from accuracy.planner.apart import error_apart
from accuracy.planner.arrays import fleet
from accuracy.planner.fitting import (
    Measured,
    calibrated,
    fitted,
    measured,
    paces_of,
    scaled,
    shipped,
)
from accuracy.planner.rows import Row, is_judged, may_be_fitted, read_rows
from accuracy.planner.scoring import Error, Score, error_of, floor, loop_of, score
from tidegate.perf.deployment import SOFTWARE

BARS: Final = {
    "dense, held out": {"tpot_median": 0.12, "ttft_median": 0.25},
    "experts and MLA, held out": {"tpot_median": 0.15},
}
CALIBRATED_BAR: Final = 0.06
CALIBRATED: Final = (
    ("vllm", "h100_sxm"),
    ("vllm", "h200_sxm"),
    ("vllm", "b200_sxm"),
    ("sglang", "h100_sxm"),
)
"""Engines and GPUs with dense rows on both sides."""
CROSS_FIT: Final = 10
"""Steps of a fit that leaves a model or a GPU out: enough, and 14 of them are made."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A score, of what, and the bars that it must keep."""

    name: str
    score: Score
    bars: dict[str, float] = {}

    def missed(self) -> list[str]:
        """Bars that it does not keep."""
        return [name for name, bar in self.bars.items() if getattr(self.score, name) > bar]


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Of one engine on one GPU."""

    group: Group
    fitted_rows: int
    factors: dict[str, float]


class Planner(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    groups: list[Group]
    calibrations: list[Calibration]
    left_out: list[Group]
    """Each model and each GPU predicted by constants that were fitted to the others."""
    floor: Score
    queued: int
    """Rows with a TTFT of 3 s and more, and how many of them are said to wait for KV memory."""
    queued_for_memory: int
    infeasible: int
    unfit: int
    """Disaggregated rows whose weights do not fit on the devices that they count."""
    constants: dict[str, float]
    operators: list[Check]
    ratios: list[Ratio]

    def missed(self) -> list[str]:
        """Group and bar."""
        every = [*self.groups, *(each.group for each in self.calibrations)]
        return [f"planner, {group.name}: {bar}" for group in every for bar in group.missed()]


def planner() -> Planner:
    """Read, predicted, scored."""
    rows = read_rows()
    together = [row for row in rows if row.mode == "agg"]
    loops = [loop_of(row) for row in together]
    known = [(row, error_of(row, loop)) for row, loop in zip(together, loops, strict=True)]
    judged = [(row, error) for row, error in known if is_judged(row)]
    late = [loop for row, loop in zip(together, loops, strict=True) if not is_judged(row)]
    apart = [(row, error_apart(row)) for row in rows if row.mode == "disagg"]
    groups = [
        _group(name, [pair for pair in judged if wanted(pair[0])], BARS.get(name, {}))
        for name, wanted in GROUPS.items()
    ]
    groups.append(_group("TTFT of 3 s and more", [pair for pair in known if not is_judged(pair[0])]))
    fit = [(row, error) for row, error in apart if error is not None]
    groups += [
        _group(f"disaggregated, {name}", [pair for pair in fit if name in pair[0].model])
        for name in ("DeepSeek-V3", "DeepSeek-R1")
    ]
    rest = [pair for pair in fit if "DeepSeek" not in pair[0].model]
    groups.append(_group("disaggregated, others", rest))
    return Planner(
        groups=groups,
        calibrations=[_calibration(software, system, rows) for software, system in CALIBRATED],
        left_out=_left_out([row for row, _ in judged]),
        floor=floor([row for row, _ in judged]),
        queued=len(late),
        queued_for_memory=sum(loop is not None and loop.binding == "kv_memory" for loop in late),
        infeasible=sum(loop is None for loop in loops),
        unfit=sum(error is None for _, error in apart),
        constants=shipped(),
        operators=checks(),
        ratios=ratios(),
    )


def _of(software: str) -> Callable[[Row], bool]:
    return lambda row: row.dense and row.held_out and row.software == software


GROUPS: Final[dict[str, Callable[[Row], bool]]] = {
    "dense, held out": lambda row: row.dense and row.held_out,
    "dense, fitted": lambda row: row.dense and not row.held_out,
    "experts and MLA, held out": lambda row: not row.dense and row.held_out,
    "experts and MLA, fitted": lambda row: not row.dense and not row.held_out,
    **{f"dense, held out, {software}": _of(software) for software in SOFTWARE},
}


def _group(name: str, pairs: Sequence[tuple[Row, Error]], bars: dict[str, float] | None = None) -> Group:
    rows, errors = [row for row, _ in pairs], [error for _, error in pairs]
    return Group(name=name, score=score(rows, errors), bars=bars or {})


def _calibration(software: str, system: str, rows: Sequence[Row]) -> Calibration:
    """Four factors on the dense curves of a group that may be fitted, judged by those held out."""
    of = [row for row in rows if row.dense and (row.software, row.system) == (software, system)]
    own = [row for row in of if may_be_fitted(row)]
    others = [row for row in of if is_judged(row) and row.held_out]
    factors = calibrated(measured(fleet(own)), shipped())
    errors = _errors(measured(fleet(others)), scaled(shipped(), factors))
    name, bars = f"{software} on {system}", {"tpot_median": CALIBRATED_BAR}
    group = Group(name=name, score=score(others, errors), bars=bars)
    return Calibration(group=group, fitted_rows=len(own), factors=factors)


def _left_out(rows: Sequence[Row]) -> list[Group]:
    """By architecture, which DeepSeek-R1 and V3 share, and by GPU."""
    groups, every = [], fleet(rows)
    kinds: dict[str, Callable[[Row], str]] = {"model": architecture, "GPU": lambda row: row.system}
    for kind, key in kinds.items():
        names = np.array([key(row) for row in rows])
        for name in sorted(set(names)):
            inside = [row for row in rows if key(row) == name]
            constants = fitted(measured(every.chosen(_thinned(names != name))), most=CROSS_FIT)
            errors = _errors(measured(every.chosen(names == name)), constants)
            groups.append(Group(name=f"without {kind} {name}", score=score(inside, errors)))
    return groups


def _thinned(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Every second of those chosen: enough for a few dozen constants, in half the time."""
    found = mask.copy()
    found[np.flatnonzero(mask)[::2]] = False
    return found


def architecture(row: Row) -> str:
    """The model, or what it was made from."""
    name = row.model.rpartition("/")[2]
    return next((family for family in FAMILIES if name.startswith(family)), name)


FAMILIES: Final = ("DeepSeek", "Qwen3-32B", "Llama-3.1-8B")


def _errors(known: Measured, constants: dict[str, float]) -> list[Error]:
    """If all clients have a seat."""
    ttft_s, tpot_s = paces_of(known, constants)
    pairs = zip(np.abs(ttft_s / known.ttft_s - 1), np.abs(tpot_s / known.tpot_s - 1), strict=True)
    return [Error(ttft=float(ttft), tpot=float(tpot)) for ttft, tpot in pairs]
