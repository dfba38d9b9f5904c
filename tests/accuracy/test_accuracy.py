"""What docs/accuracy says is what the simulator does, and good enough."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import msgspec
import pytest

from accuracy.__main__ import DOCS
from accuracy.bars import DENSE, EXPERTS, missed
from accuracy.engines import engine
from accuracy.methods import Result, by_tables, calibrated
from accuracy.planner.report import section
from accuracy.planner.results import Planner
from accuracy.report import page
from accuracy.runs import Run, read_runs
from accuracy.scoring import figures, measured

FILE: dict[str, Any] = json.loads((DOCS / "accuracy.json").read_bytes())
STATED: list[dict[str, Any]] = FILE["simulator"]
RESULTS = [msgspec.convert(entry, Result) for entry in STATED]
TABLES = [result for result in RESULTS if result.method == "tables"]
CALIBRATED = [result for result in RESULTS if result.method == "calibrated"]


@cache
def runs() -> dict[str, Run]:
    """Those that are kept here."""
    return {run.name: run for run in read_runs()}


def same(result: Result, stated: Result) -> None:
    """All figures, to what a rounding of a step may move."""
    assert (result.run, result.method, result.requests) == (stated.run, stated.method, stated.requests)
    assert result.fitted == pytest.approx(stated.fitted, rel=1e-3)
    for name in ("measured", "simulated", "errors"):
        ours, theirs = (msgspec.structs.asdict(getattr(one, name)) for one in (result, stated))
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-4), name
    assert (result.series is None) == (stated.series is None)
    if result.series is not None and stated.series is not None:
        ours, theirs = (
            {name: value for name, value in msgspec.structs.asdict(one).items() if value is not None}
            for one in (result.series, stated.series)
        )
        assert ours == pytest.approx(theirs, rel=0.02)


def test_every_run_is_stated_both_ways_and_keeps_its_bars() -> None:
    """The bars are those that were asked for; a missed one is an error of `make accuracy`, too."""
    assert [result.run for result in TABLES] == [result.run for result in CALIBRATED] == list(runs())
    assert DENSE == {"e2e_mean_s": 0.05, "tpot_mean_s": 0.03, "ttft_mean_s": 0.1, "ttft_p99_s": 0.15}
    assert EXPERTS == {"ttft_mean_s": 0.15}
    assert [missed(result) for result in RESULTS] == [[]] * len(RESULTS)


@pytest.mark.parametrize("stated", TABLES, ids=lambda result: result.run)
def test_by_tables_the_errors_are_as_stated(stated: Result) -> None:
    """The gap is fitted anew, on the other runs."""
    same(by_tables(runs()[stated.run], list(runs().values())), stated)


@pytest.mark.parametrize("stated", CALIBRATED, ids=lambda result: result.run)
def test_with_the_stated_constants_the_errors_are_as_stated(stated: Result) -> None:
    """The search for them takes too long for a test; `make accuracy` repeats it."""
    same(calibrated(runs()[stated.run], stated.fitted), stated)


def test_second_by_second_the_full_cache_is_as_full_as_the_real_one() -> None:
    """Where memory runs out all the time, as many run and wait as did, to 3 % and 1 % in the mean."""
    series = next(result.series for result in TABLES if result.run == "rtx4090_llama31-8b_tp1")

    assert series is not None
    assert series.running_off < 0.03 * series.running
    assert series.waiting_off < 0.01 * series.waiting


def test_the_page_says_what_the_file_says() -> None:
    """docs/accuracy.md is written from the same results as docs/accuracy.json."""
    stated = {name: value for name, value in FILE["planner"].items() if name != "missed"}
    planner = msgspec.convert(stated, Planner)

    assert (DOCS / "accuracy.md").read_text() == page(RESULTS) + "\n" + section(planner)
    assert planner.missed() == FILE["planner"]["missed"] == []


def test_the_memory_formula_gives_the_blocks_that_vllm_reported() -> None:
    """Where a run recorded its blocks, computing them is right to 1 %."""
    run = runs()["rtx4090_llama31-8b_tp1"]
    unknown = msgspec.structs.replace(run.description, kv_cache=None)

    computed = engine(Run(description=unknown, requests=())).settings.kv_tokens

    assert engine(run).settings.kv_tokens == 2587 * 16
    assert computed == pytest.approx(2587 * 16, rel=0.01)


def test_figures_of_the_measured_runs_are_those_of_their_source() -> None:
    """Means and medians as the README of the runs has them."""
    for name, ttft_s, p50_s, tpot_ms in [
        ("rtx4090_llama31-8b_tp1", 65.5, 60.1, 32.4),
        ("rtxpro6000_llama31-8b_tp1", 7.1, 9.5, 32.5),
        ("rtxpro6000_qwen3-30b-a3b_dp2ep2", 1.1, 0.17, 47.3),
    ]:
        requests = runs()[name].requests
        found = figures(requests, measured(requests))
        assert found.ttft_mean_s == pytest.approx(ttft_s, abs=0.05)
        assert found.ttft_p50_s == pytest.approx(p50_s, abs=0.05)
        assert 1e3 * found.tpot_mean_s == pytest.approx(tpot_ms, abs=0.05)
