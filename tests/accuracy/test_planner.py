"""The planner is judged by rows that it was not fitted to, and what docs/accuracy says of it is so."""

from __future__ import annotations

import hashlib
import json
from ast import literal_eval
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest

from accuracy.__main__ import DOCS
from accuracy.planner.__main__ import shown
from accuracy.planner.arrays import fleet
from accuracy.planner.fitting import FACTORS, PRIORS, measured, paces_of, scaled, shipped
from accuracy.planner.results import BARS, CALIBRATED_BAR, GROUPS
from accuracy.planner.rows import (
    CONFIGURATION,
    DATA,
    LOAD,
    Row,
    curve_name,
    distinct,
    is_held_out,
    is_judged,
    may_be_fitted,
    normal,
    read_rows,
    unsplit,
)
from accuracy.planner.scoring import Error, error_of, floor, loop_of, score
from tidegate.perf import efficiencies

PLANNER: dict[str, Any] = json.loads((DOCS / "accuracy.json").read_bytes())["planner"]


@cache
def rows() -> list[Row]:
    """All that are read."""
    if not DATA.exists():
        pytest.skip("the folder ../shared/data is not beside this clone")
    return read_rows()


def line(**values: str) -> dict[str, str]:
    """A row of the file that says only this."""
    names = (*CONFIGURATION, *LOAD, "silicon_ttft_ms", "silicon_tpot_ms")
    defaults = {"mode": "agg", "silicon_ttft_ms": "100", "silicon_tpot_ms": "10"}
    return {**dict.fromkeys(names, ""), **defaults, **values}


def test_the_bars_are_those_that_were_asked_for() -> None:
    """In the file each is stated with its group, and none is missed."""
    assert BARS == {
        "dense, held out": {"tpot_median": 0.12, "ttft_median": 0.25},
        "experts and MLA, held out": {"tpot_median": 0.15},
    }
    assert CALIBRATED_BAR == 0.06
    stated = {group["name"]: group["bars"] for group in PLANNER["groups"]}
    assert {name: stated[name] for name in BARS} == BARS
    assert [each["group"]["bars"] for each in PLANNER["calibrations"]] == [{"tpot_median": 0.06}] * 4


def test_a_curve_is_held_out_by_its_hash_alone() -> None:
    """Three of ten; concurrency, version and day do not count."""
    one = line(backend="vllm", isl="1024", concurrency="4")
    name = curve_name(one)
    assert name == "|".join(one[column] for column in CONFIGURATION)
    assert curve_name({**one, "concurrency": "64", "backend_version": "2"}) == name
    assert is_held_out(name) == (int(hashlib.sha256(name.encode()).hexdigest(), 16) % 10 < 3)
    curves = {row.curve for row in rows()}
    assert sum(map(is_held_out, curves)) / len(curves) == pytest.approx(0.3, abs=0.05)


def test_devices_that_a_dump_multiplies_are_counted_once() -> None:
    """tp4 ep4 as 16, data-parallel attention on two devices as 2 x 2; others stay."""
    for given, wanted in [
        (("16", "1", "4", "4"), ("4", "1", "1", "4")),
        (("2", "2", "1", "4"), ("1", "2", "1", "2")),
        (("8", "1", "1", "8"), ("8", "1", "1", "8")),
        (("4", "1", "2", "2"), ("4", "1", "2", "2")),
    ]:
        names = ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
        read = normal(line(**dict(zip(names, given, strict=True))))
        assert tuple(read[name] for name in names) == wanted
    assert unsplit(line(tp_size="72", moe_tp_size="72"))
    assert not unsplit(line(tp_size="8"))


def test_repeats_are_left_out_and_other_measurements_are_not() -> None:
    """Equal to three digits, whoever measured."""
    first = line(backend="vllm")
    assert len(distinct([first, {**first, "silicon_ttft_ms": "100.04", "image": "x"}])) == 1
    assert len(distinct([first, {**first, "silicon_ttft_ms": "101"}])) == 2
    assert len(distinct([first, {**first, "concurrency": "8"}])) == 2


def test_nothing_held_out_is_fitted() -> None:
    """Nor anything that queues or is disaggregated."""
    fitted = [row for row in rows() if may_be_fitted(row)]
    assert not {row.curve for row in fitted} & {row.curve for row in rows() if row.held_out}
    assert all(row.mode == "agg" and row.ttft_s < 3 for row in fitted)


def test_the_score_of_the_held_out_dense_rows_is_as_stated() -> None:
    """Predicted anew, by what ships; no aggregated row is called impossible."""
    chosen = [row for row in rows() if is_judged(row) and GROUPS["dense, held out"](row)]
    loops = [loop_of(row) for row in chosen]
    found = score(chosen, [error_of(row, loop) for row, loop in zip(chosen, loops, strict=True)])
    stated = next(group["score"] for group in PLANNER["groups"] if group["name"] == "dense, held out")

    assert None not in loops
    assert PLANNER["infeasible"] == 0
    for name, value in stated.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-3), name
    assert error_of(chosen[0], None) == Error(ttft=1.0, tpot=1.0)


def test_arrays_predict_what_the_planner_predicts() -> None:
    """The formulas are the same; the planner's table is straight between its points."""
    chosen = [row for row in rows() if may_be_fitted(row)][::40]
    ttft_s, tpot_s = paces_of(measured(fleet(chosen)), shipped())
    for place, row in enumerate(chosen):
        loop = loop_of(row)
        assert loop is not None
        if loop.binding == "clients":
            assert loop.tpot_s == pytest.approx(tpot_s[place], rel=0.02)
            assert loop.ttft_s == pytest.approx(ttft_s[place], rel=0.02)


def test_the_constants_are_those_that_ship() -> None:
    """Under the names that they are fitted by, stated in the file, and printed as the module has them."""
    assert set(PRIORS) <= set(shipped())
    assert PLANNER["constants"] == pytest.approx(shipped())
    for printed in shown(shipped()).splitlines():
        name, _, value = printed.strip().rstrip(",").partition(": ")
        if name.strip('"') in efficiencies.SHARED:
            assert literal_eval(value) == efficiencies.SHARED[name.strip('"')]
    doubled = scaled(shipped(), {**dict.fromkeys(FACTORS, 1.0), "read": 2.0})
    assert doubled["read.fp8"] == 2 * shipped()["read.fp8"]
    assert doubled["compute.fp8"] == shipped()["compute.fp8"]


def test_the_floor_is_the_distance_of_repeats_from_their_median() -> None:
    """Of 1, 2 and 3: 1, 0 and a third."""
    one = next(row for row in rows() if is_judged(row))
    repeats = [msgspec.structs.replace(one, tpot_s=float(n), ttft_s=float(n)) for n in (1, 2, 3)]
    found = floor(repeats)
    assert (found.rows, found.curves) == (3, 1)
    assert found.tpot_mean == pytest.approx(np.mean([1, 0, 1 / 3]))
