"""How is load put on a server from the command line?"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Annotated

import msgspec
import typer
import uvloop
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from tidegate.bench.load import LoadLimits, LoadRecord, Progress, most_open, run_load
from tidegate.bench.options import budgets_of, plan_of, tenants_of
from tidegate.bench.prompts import BYTES_PER_TOKEN
from tidegate.bench.report import as_table, report_of
from tidegate.bench.target import Target, first_model
from tidegate.config.telling import check_writable, problems_told
from tidegate.config.traces import SHIPPED
from tidegate.core.text import as_json
from tidegate.core.units import seconds_of
from tidegate.net.descriptors import raise_descriptor_limit
from tidegate.workload.requests import PlannedRequest

LOAD, BUDGETS, OUTPUT = "Load", "Budgets", "Output"


def bench(
    url: Annotated[str, typer.Argument(metavar="URL", help="Server, as in http://127.0.0.1:8080.")],
    model: Annotated[
        str | None,
        typer.Option(help="Model to ask; else the first that /v1/models lists.", show_default=False),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            help="Requests per second, unless a trace is replayed; 5 if not given.", rich_help_panel=LOAD
        ),
    ] = None,
    arrivals: Annotated[
        str,
        typer.Option(help=f"poisson, constant, {', '.join(SHIPPED)}, or a trace file.", rich_help_panel=LOAD),
    ] = "poisson",
    for_: Annotated[str, typer.Option("--for", help="How long to send.", rich_help_panel=LOAD)] = "30s",
    trace_from: Annotated[
        str, typer.Option("--from", help="Where in a trace to begin.", rich_help_panel=LOAD)
    ] = "0s",
    time_scale: Annotated[
        float, typer.Option(help="Replay a trace so many times as fast.", rich_help_panel=LOAD)
    ] = 1.0,
    prompt_tokens: Annotated[
        int | None,
        typer.Option(help="Prompt length; else the trace's, or 512.", rich_help_panel=LOAD),
    ] = None,
    output_tokens: Annotated[
        int | None,
        typer.Option(help="Answer length; else the trace's, or 128.", rich_help_panel=LOAD),
    ] = None,
    tenants: Annotated[
        str,
        typer.Option(help="name=key,...; name*3=key asks thrice as often.", rich_help_panel=LOAD),
    ] = "",
    api_key: Annotated[
        str,
        typer.Option(
            envvar="TIDEGATE_API_KEY",
            show_envvar=False,
            help="API key, without --tenants; else $TIDEGATE_API_KEY.",
            show_default=False,
            rich_help_panel=LOAD,
        ),
    ] = "",
    ttft: Annotated[
        str | None, typer.Option(help="Budget for the time to the first token.", rich_help_panel=BUDGETS)
    ] = None,
    tpot: Annotated[
        str | None, typer.Option(help="Budget for each token after it.", rich_help_panel=BUDGETS)
    ] = None,
    e2e: Annotated[
        str | None, typer.Option(help="Budget for a whole answer.", rich_help_panel=BUDGETS)
    ] = None,
    concurrency_limit: Annotated[
        int | None,
        typer.Option(help="Open at once; what would be more is not sent.", min=1, rich_help_panel=LOAD),
    ] = None,
    drain: Annotated[
        str, typer.Option(help="How long to wait for answers after the last request.", rich_help_panel=LOAD)
    ] = "60s",
    stream: Annotated[bool, typer.Option(help="Ask for streams, or for whole answers.")] = True,
    ignore_eos: Annotated[bool, typer.Option(help="Make engines fill the answer length.")] = True,
    bytes_per_token: Annotated[
        float, typer.Option(help="Prompt bytes that make a token.", min=1)
    ] = BYTES_PER_TOKEN,
    seed: Annotated[int | None, typer.Option(help="Repeat the arrivals and prompts of a run.", min=0)] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=OUTPUT)] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write one JSON record per request here.", rich_help_panel=OUTPUT)
    ] = None,
) -> None:
    """Send requests at their own times, whether the server keeps up or not, and say how it fared."""
    with problems_told(json=json):
        raise_descriptor_limit()
        most_open(concurrency_limit)
        seed = int.from_bytes(os.urandom(4)) if seed is None else seed
        budgets = budgets_of(ttft, tpot, e2e, stream)
        shares, keys = tenants_of(tenants, api_key)
        for_s = seconds_of("--for", for_)
        plan = plan_of(
            arrivals,
            rate,
            seed,
            tenants=shares,
            for_s=for_s,
            from_s=seconds_of("--from", trace_from),
            time_scale=time_scale,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
        )
        limits = LoadLimits(max_open=concurrency_limit, drain_timeout_s=seconds_of("--drain", drain))
        if out:
            check_writable("--out", out)
        model = model or uvloop.run(first_model(url, next(iter(keys.values()), "")))
        target = Target(
            url=url,
            model=model,
            keys=keys,
            stream=stream,
            ignore_eos=ignore_eos,
            bytes_per_token=bytes_per_token,
        )
        records = uvloop.run(_run(target, plan, limits, seed, for_s))

    if out:
        out.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    report = report_of(records, budgets, url=url, model=model, seed=seed, stream=stream)
    if json:
        typer.echo(as_json(report))
    else:
        Console().print(as_table(report))
    if not report.total.ok:
        raise typer.Exit(1)


async def _run(
    target: Target, plan: Iterator[PlannedRequest], limits: LoadLimits, seed: int, for_s: float
) -> list[LoadRecord]:
    """The run, with a bar; Ctrl-C ends it early, a second one at once."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def interrupted() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, interrupted)
    with _bar(for_s) as bar:
        return await run_load(target, plan, limits=limits, seed=seed, on_progress=bar, stop=stop)


class _ProgressBar:
    """Shows progress when told, from no thread of its own: a thread would make sends late."""

    def __init__(self, bar: Bar, for_s: float) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=for_s if for_s < inf else None, counts="")

    def __call__(self, progress: Progress) -> None:
        counts = f"{progress.sent} sent, {progress.open} open, {progress.failed} failed"
        self._bar.update(self._task, completed=progress.elapsed_s, counts=counts)
        self._bar.refresh()


@contextmanager
def _bar(for_s: float) -> Iterator[_ProgressBar | None]:
    if not sys.stderr.isatty():
        yield None
        return
    columns = (BarColumn(), TimeRemainingColumn(), TextColumn("{task.fields[counts]}"))
    with Bar(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as bar:
        yield _ProgressBar(bar, for_s)
