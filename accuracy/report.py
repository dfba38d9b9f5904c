"""What is said of the results: a table for a terminal, a page and a file for `docs/`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.table import Table

from accuracy.bars import PUBLISHED, bars, missed
from accuracy.methods import Result

COLUMNS = {
    "ttft_mean_s": "TTFT mean",
    "ttft_p50_s": "TTFT P50",
    "ttft_p99_s": "TTFT P99",
    "tpot_mean_s": "TPOT mean",
    "tpot_p99_s": "TPOT P99",
    "e2e_mean_s": "E2E mean",
    "e2e_p99_s": "E2E P99",
}

HEAD = """\
# How accurate is the simulator?

<!-- Written by `make accuracy`, as docs/accuracy.json is. Change accuracy/report.py, not this page. -->

Recorded runs of real vLLM 0.19 (300 ShareGPT requests each, sent within 29 s; all overloaded on purpose, so
that TTFT is mostly queueing) are replayed through the simulator: each request is submitted when the engine
queued it, with its lengths and its prefix blocks, and compared with itself. TTFT and E2E count from the
client's arrival.

Errors are relative. A bar in brackets must be kept, and `make accuracy` fails where one is not. The last
column says what would become of the mean TTFT if every step took 1 % longer: overload multiplies, so that
is the accuracy of step times that a figure rests on.
"""

TABLES = """\
## By operator tables

Step times are sums of operators that a profiler measured one by one
(`../shared/data/engine-ops-llmservingsim`), put together by `tidegate.perf.operators`. One constant is
fitted: the *gap*, seconds per layer and step that no operator was measured for (time between kernels;
attention waits for the longest sequence of a batch, while the tables know batches of one length). It is a
property of a GPU: for each run it is what makes the mean TPOT of the **other** runs on that GPU right, and
nothing where there is no other. No figure of the run itself is used.
"""

CALIBRATED = """\
## Calibrated on the first half

A line of four constants (a step, a sequence, a token of context, a prompt token) is fitted by simulation in
the loop (`tidegate.perf.calibration`) to TPOT and TTFT of the 150 requests that came first, and judged by
the other 150 only. Of those the fit knows when they were sent and how long they are; in it, they are queued
when they were sent.
"""

SERIES = """\
## Second by second

Once a second the engines recorded how many sequences ran and waited and how much of the KV cache they held.
These are means over a run, and how far off the simulated replica (by tables) was at the same seconds; the
clocks of both may differ by parts of a second.
"""

FOOT = """\
## What is assumed

- The KV cache of the RTX 4090 run is the recorded one (2,588 blocks less vLLM's own one). Where none is
  recorded it is 0.9 of the memory, less weights and 1.2 GiB, and never full in these runs.
- The mixture-of-experts run has two data-parallel ranks, each with its own scheduler, which step together
  because every expert layer exchanges tokens (`accuracy/ranks.py`). Which request went to which rank is not
  recorded; vLLM's own rule is simulated (the smallest 4 x waiting + running, told every 100 ms). Experts
  are chosen evenly. Exchange times are the published ones of two such GPUs, without what ranks wait for
  each other in it; the gap does not cover that either, where it was fitted on one GPU, so that this run
  comes out too fast by the tables.
- vLLM plans a step while the one before it runs (asynchronous scheduling, the default of 0.19, and visible
  in these runs' timestamps), so that a newcomer waits for one step more and a seat is free one step later.
  The ranks above do so; the replica plans at the boundary. In the two runs on it that is a step of about 30
  ms in a mean TTFT of seconds.
- The form of the model (one gap, per layer; decoding beside prompts as its own table) was chosen with these
  three runs in view. Its constants were not: each comes from data that it is not judged by. How the fit of a
  first half weighs TTFT was settled when an earlier weighing met the first half of the mixture-of-experts
  run badly (TPOT -7.6 %; the other half then scored TTFT -34 %), how it searches by how well it met first
  halves. One more run is kept by others.

## One more run

Put it into a folder of the same form (`runs.json` and its files) and say `make accuracy ARGS="--runs
FOLDER"`: it is judged both ways, with a gap from the known runs on its GPU; this page stays as it is. To
keep it here, add the files and the row to the folder of the known runs. A new GPU wants a row in
`accuracy/engines.py` and operator tables.
"""


def percent(error: float) -> str:
    """+1.2 %"""
    return f"{100 * error:+.1f} %"


def table(results: Sequence[Result]) -> Table:
    """For a terminal: a row for each run and way; missed bars in red."""
    shown = Table("run", "way", *COLUMNS.values(), "TTFT per 1 %", title="Errors against real vLLM")
    for result in results:
        broken, must = missed(result), bars(result)
        cells = [
            f"[{'red' if name in broken else 'green'}]{percent(getattr(result.errors, name))}[/]"
            if name in must
            else percent(getattr(result.errors, name))
            for name in COLUMNS
        ]
        shown.add_row(result.run, result.method, *cells, percent(result.ttft_per_percent))
    return shown


def page(results: Sequence[Result]) -> str:
    """docs/accuracy.md."""
    parts = [HEAD]
    for method, text in (("tables", TABLES), ("calibrated", CALIBRATED)):
        chosen = [result for result in results if result.method == method]
        parts += [text, _errors(chosen), _fits(chosen)]
    parts += [_seconds(results), SERIES, _series(results), FOOT]
    return "\n".join(parts)


def file(results: Sequence[Result], planner: object) -> bytes:
    """docs/accuracy.json, what it has of the planner beside the simulator."""
    entries = [
        {
            **msgspec.to_builtins(result),
            "bars": bars(result),
            "missed": missed(result),
            "published": PUBLISHED.get(result.run, {}),
        }
        for result in results
    ]
    both = {"simulator": entries, "planner": planner}
    return msgspec.json.format(msgspec.json.encode(both), indent=1) + b"\n"


def _errors(results: Sequence[Result]) -> str:
    rows = []
    for result in results:
        must = bars(result)
        cells = [
            percent(getattr(result.errors, name)) + (f" ({100 * must[name]:.0f} %)" if name in must else "")
            for name in COLUMNS
        ]
        rows.append([f"`{result.run}`", *cells, percent(result.ttft_per_percent)])
        known = PUBLISHED.get(result.run)
        if known and result.method == "tables":
            theirs = [percent(known[name]) if name in known else "" for name in COLUMNS]
            rows.append(["LLMServingSim, as published", *theirs, ""])
    return _markdown(["run", *COLUMNS.values(), "TTFT per 1 %"], rows)


def _fits(results: Sequence[Result]) -> str:
    rows = [
        [
            f"`{result.run}`",
            ", ".join(f"`{name}` {value:.3e}" for name, value in result.fitted.items()) or "none",
            result.fitted_on,
            str(result.requests),
        ]
        for result in results
    ]
    return _markdown(["run", "fitted", "on", "requests judged"], rows)


def _seconds(results: Sequence[Result]) -> str:
    rows = []
    for result in results:
        pairs = [
            f"{1e3 * getattr(result.measured, name):.1f} / {1e3 * getattr(result.simulated, name):.1f} ms"
            if name.startswith("tpot")
            else f"{getattr(result.measured, name):.2f} / {getattr(result.simulated, name):.2f} s"
            for name in COLUMNS
        ]
        rows.append([f"`{result.run}`", result.method, *pairs])
    return "## Measured and simulated\n\n" + _markdown(["run", "way", *COLUMNS.values()], rows)


def _series(results: Sequence[Result]) -> str:
    rows = []
    for result in results:
        if (one := result.series) is None:
            continue
        kv = "not recorded"
        if one.kv_used is not None and one.kv_used_off is not None:
            kv = f"{100 * one.kv_used:.1f} % ± {100 * one.kv_used_off:.1f} %"
        running, waiting = (
            f"{mean:.1f} ± {off:.1f}"
            for mean, off in ((one.running, one.running_off), (one.waiting, one.waiting_off))
        )
        rows.append([f"`{result.run}`", running, waiting, kv])
    return _markdown(["run", "running", "waiting", "KV cache in use"], rows)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
