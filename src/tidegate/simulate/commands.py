"""How is a configuration simulated from the command line?

What needs numpy is imported when a run is certain, so that the first line of output comes at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.config.telling import problems_told
from tidegate.config.traces import SHIPPED
from tidegate.core.units import seconds_of
from tidegate.sim.profiles import TABLE

LOAD, FLEET, RUNS, BUDGETS, OUTPUT = "Load", "Fleet", "Runs", "Budgets", "Output"


def simulate(
    file: Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration file (YAML).")],
    trace: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(SHIPPED)}, or a trace file.", rich_help_panel=LOAD, show_default=False
        ),
    ] = None,
    traffic: Annotated[
        str | None,
        typer.Option(help="A traffic file: sources of requests of every kind.", rich_help_panel=LOAD),
    ] = None,
    trace_from: Annotated[
        str, typer.Option("--from", help="Where in a trace to begin.", rich_help_panel=LOAD)
    ] = "0s",
    for_: Annotated[
        str | None,
        typer.Option(
            "--for", help="How long requests come; else to the trace's end, or 10m.", rich_help_panel=LOAD
        ),
    ] = None,
    requests: Annotated[
        int | None, typer.Option(help="At most so many requests.", rich_help_panel=LOAD)
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="Requests per second; else the trace's own, or 5.", rich_help_panel=LOAD),
    ] = None,
    cv: Annotated[
        float | None,
        typer.Option(
            help="Burstiness of drawn arrivals: CV of their gaps; Poisson is 1.", rich_help_panel=LOAD
        ),
    ] = None,
    time_scale: Annotated[
        float, typer.Option(help="Replay a trace so many times as fast.", rich_help_panel=LOAD)
    ] = 1.0,
    spread: Annotated[
        bool,
        typer.Option(
            "--spread", help="Spread requests whose times the trace has rounded.", rich_help_panel=LOAD
        ),
    ] = False,
    prompt_tokens: Annotated[
        int | None, typer.Option(help="Prompt length; else the trace's, or 512.", rich_help_panel=LOAD)
    ] = None,
    output_tokens: Annotated[
        int | None, typer.Option(help="Answer length; else the trace's, or 128.", rich_help_panel=LOAD)
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(help="Draw lengths from this trace, for drawn arrivals.", rich_help_panel=LOAD),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help=f"What engines are where the file does not say: {', '.join(TABLE)}, or a profile file.",
            rich_help_panel=FLEET,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="KEY=VALUE instead of what the file says; repeatable.", rich_help_panel=FLEET
        ),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            help="KEY=VALUES, such as rate=10..60:10 or routing=random,least_tokens; repeatable.",
            rich_help_panel=RUNS,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the dice.", min=0, rich_help_panel=RUNS)] = 1,
    repeat: Annotated[
        int,
        typer.Option(help="Runs of each point, with seeds one after the other.", min=1, rich_help_panel=RUNS),
    ] = 1,
    warmup: Annotated[
        str,
        typer.Option(help="auto, none, or how long not to measure at first.", rich_help_panel=RUNS),
    ] = "auto",
    jobs: Annotated[
        int | None, typer.Option(help="Processes; else as many as cores.", min=1, rich_help_panel=RUNS)
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Run on a Ray cluster: auto, local, host:port.", rich_help_panel=RUNS
        ),
    ] = None,
    ttft: Annotated[
        str | None,
        typer.Option(help="Budget of every class, instead of the file's.", rich_help_panel=BUDGETS),
    ] = None,
    tpot: Annotated[str | None, typer.Option(help="The same.", rich_help_panel=BUDGETS)] = None,
    e2e: Annotated[str | None, typer.Option(help="The same.", rich_help_panel=BUDGETS)] = None,
    min_goodput: Annotated[
        float | None,
        typer.Option(
            help="Exit with 1 if a class holds its budgets less often, 0..1.",
            min=0,
            max=1,
            rich_help_panel=BUDGETS,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=OUTPUT)] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write a report with plots here.", rich_help_panel=OUTPUT)
    ] = None,
    parquet: Annotated[
        Path | None, typer.Option(help="Write every request here.", rich_help_panel=OUTPUT)
    ] = None,
    perfetto: Annotated[
        Path | None,
        typer.Option(help="Write the batches of a run here, for ui.perfetto.dev.", rich_help_panel=OUTPUT),
    ] = None,
) -> None:
    """Would it hold? Simulate a configuration, under a load, through the gateway's own policies."""
    from tidegate.core.records import Budgets
    from tidegate.simulate.load import Load
    from tidegate.simulate.plan import Plan, values_of, warm_up_of
    from tidegate.simulate.session import Output, run_plan

    with problems_told(json=json):
        plan = Plan(
            file=file,
            load=Load(
                trace=trace,
                traffic=traffic,
                from_s=seconds_of("--from", trace_from),
                for_s=seconds_of("--for", for_) if for_ is not None else None,
                requests=requests,
                rate_per_s=rate,
                cv=cv,
                time_scale=time_scale,
                spread=spread,
                prompt_tokens=prompt_tokens,
                output_tokens=output_tokens,
                lengths=lengths,
                askers=(),
            ),
            values=values_of(set_ or ()),
            sweeps=tuple(sweep or ()),
            profile=profile,
            budgets=Budgets(
                ttft_s=seconds_of("--ttft", ttft) if ttft is not None else None,
                tpot_s=seconds_of("--tpot", tpot) if tpot is not None else None,
                e2e_s=seconds_of("--e2e", e2e) if e2e is not None else None,
            ),
            warm_up=warm_up_of(warmup),
            seed=seed,
            repeat=repeat,
        )
        output = Output(json=json, html=html, parquet=parquet, perfetto=perfetto, min_goodput=min_goodput)
        status = run_plan(plan, output, jobs=jobs, ray=ray)
    if status:
        raise typer.Exit(status)
