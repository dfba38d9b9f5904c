"""What is in a trace? `tidegate trace stats`, from the command line."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Annotated

import typer
from rich.console import Console

from tidegate.config.telling import problems_told
from tidegate.config.traces import SHIPPED, open_lines
from tidegate.core.text import as_json
from tidegate.simulate.traces.report import TraceReport, as_table
from tidegate.workload.statistics.logs import statistics_of
from tidegate.workload.statistics.pools import pool_statistics
from tidegate.workload.statistics.sessions import session_statistics
from tidegate.workload.traces.agentic import read_sessions
from tidegate.workload.traces.formats import Format, detect, read_rows
from tidegate.workload.traces.lines import Lines
from tidegate.workload.traces.servegen import read_rates

trace_app = typer.Typer(help="Look into traces of requests.", no_args_is_help=True)


@trace_app.callback()
def trace() -> None:
    """Without it, typer would take the only command for the whole of it."""


@trace_app.command()
def stats(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help=f"A trace, gzipped or not, or one of {', '.join(SHIPPED)}.")
    ],
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            metavar="FORM",
            help=f"Its form, else what its first line tells: {', '.join(Format)}.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Rate, burstiness, lengths, and how much of the prompts was said before."""
    with problems_told(json=json), _waiting(file):
        report = report_of(file, form)
    if json:
        typer.echo(as_json(report))
    else:
        Console().print(as_table(report))


def report_of(name: str, form: Format | None = None) -> TraceReport:
    """Figures of a trace by its name; a form of None is found out. Raises ConfigurationError."""
    lines: Lines = open_lines(name)
    if form is None:
        form, lines = detect(lines, name)
    if form is Format.AGENTIC:
        return TraceReport(trace=name, form=form, sessions=session_statistics(read_sessions(lines, name)))
    if form is Format.SERVEGEN:
        return TraceReport(trace=name, form=form, pool=pool_statistics(read_rates(lines, name)))
    rows = read_rows(lines, name, form)
    return TraceReport(trace=name, form=form, log=statistics_of(rows, timed=form is not Format.PAIRS))


def _waiting(name: str) -> AbstractContextManager[object]:
    """A sign of life on a terminal: a week of traffic takes a while to read."""
    console = Console(stderr=True)
    return console.status(f"reading {name}") if console.is_terminal else nullcontext()
