"""Does a run give figures of all that came, and the same each time?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.simulate.settings import FILE, ran, settings
from tidegate.core.errors import ConfigurationError
from tidegate.core.records import RequestRecord
from tidegate.sim.run import simulate
from tidegate.simulate.run import AUTO, RunResult, run

CRASH = FILE + "  faults: [{fault: crash, replica: a, at_s: 10, restart_after_s: 5}]\n"


def told(result: RunResult) -> bytes:
    """All of a result but what it cost."""
    return msgspec.json.encode(msgspec.structs.replace(result, cpu_s=0.0, columns=None))


def test_everything_is_counted() -> None:
    """What arrived is measured, each pool's engines worked, and nothing is lost."""
    result = ran(keep_records=True)
    total = result.figures.total

    assert result.counts is not None
    assert total.requests == result.counts.arrived == result.counts.finished > 100
    assert result.columns is not None
    assert len(result.columns) == total.requests
    assert total.ttft_s.p50.value < total.e2e_s.p50.value
    assert 0.5 < result.engines["llama"].utilisation_ratio.value <= 1
    assert result.engines["llama"].prefill_tokens.value == total.requests * 512
    assert 1 < result.engines["llama"].decodes_per_step.value < 32
    assert set(result.figures.classes) == {"chat", "batch"}


def test_the_same_to_the_byte() -> None:
    """A run is a function of its settings: faults, clients' dice and timelines too."""
    one, again = (ran(CRASH, plots=True, load={"rate_per_s": 20.0}) for _ in range(2))

    assert told(one) == told(again)
    assert told(one) != told(ran(CRASH, plots=True, load={"rate_per_s": 20.0}, seed=2))


def test_too_much_load_is_refused_and_comes_back() -> None:
    """Refusals have their reasons, and clients who retry are counted as such."""
    result = ran(load={"rate_per_s": 40.0}, keep_records=True)
    total = result.figures.total

    assert result.counts is not None
    assert result.columns is not None
    assert result.retries > 0
    assert result.counts.rejected + result.counts.evicted >= sum(total.reasons.values()) > 0
    assert total.goodput_ratio.value < 0.9
    arrived_at = result.columns.rows()["arrived_at"]
    late = int((arrived_at > 30.0).sum())
    assert late > 10  # who was refused comes back after nobody new comes, and that is not measured
    assert result.window.until_s < 30.0
    assert total.requests <= len(arrived_at) - late


def test_warm_up() -> None:
    """A beginning is looked for where all is steady, is part of a trace or of an incident, or is told."""
    found = ran(warm_up=AUTO, load={"for_s": 120.0})
    trace = {"rate_per_s": None, "trace": "azure-conv", "for_s": 60.0}

    assert found.steady
    assert 0 <= found.window.from_s < 60
    assert ran(warm_up=AUTO, load=trace).window.from_s == 0
    assert ran(CRASH, warm_up=AUTO, load={"for_s": 120.0}).window.from_s == 0
    assert ran(warm_up=10.0).window.from_s == 10
    assert not ran(warm_up=AUTO, load={"for_s": 3.0}).steady


def test_nothing_arrives() -> None:
    """A run that ends before the first request has no figures, and says so by none."""
    result = ran(load={"rate_per_s": 1e-6})

    assert (result.figures.total.requests, result.window.span_s) == (0, 0)


def test_the_timeline() -> None:
    """A few hundred samples, each series as long as the time; a crash shows in it."""
    plots = ran(CRASH, plots=True, load={"rate_per_s": 20.0}).plots
    assert plots is not None
    timeline = plots.timeline
    llama = timeline.pools["llama"]

    length = len(timeline.at_s)
    assert 240 <= length < 400
    series = [llama.queued, llama.running, llama.waiting, llama.kv_used_ratio, llama.kv_used_most]
    series += [*timeline.tenant_tokens.values(), *timeline.refusals.values()]
    assert {len(each) for each in series} == {length}
    assert list(timeline.tenant_tokens) == ["acme", "lab"] or list(timeline.tenant_tokens) == ["lab", "acme"]
    before, during = (
        max(run for at, run in zip(timeline.at_s, llama.running, strict=True) if start <= at < start + 4)
        for start in (5, 10.5)
    )
    assert before > 32 >= during


def test_batches_for_perfetto(tmp_path: Path) -> None:
    """A process for each replica with its batches as slices that do not overlap, and counters."""
    path = tmp_path / "trace.json"
    requests = run(settings(perfetto=path)).figures.total.requests
    events = json.loads(path.read_text())["traceEvents"]

    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert sorted(names.values()) == ["a", "b", "gateway"]
    for pid in (number for number, name in names.items() if name != "gateway"):
        slices = [event for event in events if event["ph"] == "X" and event["pid"] == pid]
        assert len(slices) > 50
        ends = [event["ts"] + event["dur"] for event in slices]
        assert all(after["ts"] >= end - 1e-3 for end, after in zip(ends, slices[1:], strict=False))
    computed = sum(event["args"]["prefill_tokens"] for event in events if event["ph"] == "X")
    assert computed == requests * 512
    counters = {event["name"] for event in events if event["ph"] == "C"}
    assert counters == {"queue of llama", "waiting", "running", "KV in use"}


def test_a_trace_file_that_cannot_be_written(tmp_path: Path) -> None:
    """It is named by its option."""
    with pytest.raises(ConfigurationError, match=r"^--perfetto .*no/t.json: No such file or directory$"):
        run(settings(perfetto=tmp_path / "no" / "t.json"))


def test_ctrl_c_keeps_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has ended by then is measured; that the run was not whole can be seen."""

    def interrupted(*arguments: Any, on_record: Any, **options: Any) -> Any:
        left = iter(range(50))

        def record(each: RequestRecord) -> None:
            on_record(each)
            if next(left, None) is None:
                raise KeyboardInterrupt

        return simulate(*arguments, on_record=record, **options)

    monkeypatch.setattr("tidegate.simulate.run.simulate", interrupted)
    result = ran()

    assert result.counts is None
    assert result.figures.total.ok == 51
    assert result.engines == {}
