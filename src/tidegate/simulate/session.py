"""How does a plan become a report? Runs are started, their results gathered by point, and shown.

The report goes to stdout and to the files that were asked for; what happens on the way goes to stderr.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from math import isnan
from pathlib import Path

import msgspec
import typer
from rich.console import Console

from tidegate.config.profiles import DEFAULT_PROFILE
from tidegate.config.telling import check_writable
from tidegate.core.errors import ConfigurationError
from tidegate.core.text import as_json
from tidegate.core.units import format_duration, format_span
from tidegate.simulate.execution import Done, Failure, Task, here, in_processes, on_ray
from tidegate.simulate.html.page import as_html
from tidegate.simulate.load import span_of
from tidegate.simulate.parquet import ParquetFile
from tidegate.simulate.plan import Impossible, Plan, Point, header_of, judged_points, runs_of
from tidegate.simulate.progress import progress
from tidegate.simulate.results import PointResult, Result, point_over
from tidegate.simulate.run import Plots, RunResult
from tidegate.simulate.sweeps import label_of
from tidegate.simulate.table import as_table

MISSED, INTERRUPTED = 1, 130
"""Exit statuses: a bar was missed; Ctrl-C."""


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted of a simulation."""

    json: bool = False
    html: Path | None = None
    parquet: Path | None = None
    perfetto: Path | None = None
    min_goodput: float | None = None
    """Least share of requests that hold every budget, in each class of each point."""


class Gathered:
    """Results as they come, in any order."""

    def __init__(self, count: int, parquet: ParquetFile | None) -> None:
        self.runs: list[list[RunResult]] = [[] for _ in range(count)]
        self.problems: list[tuple[str, ...]] = [()] * count
        self._parquet = parquet

    def add(self, done: Done) -> None:
        """Keep a run's figures; its requests go to the file at once."""
        number, result = done
        if isinstance(result, Failure):
            self.problems[number] = result.problems
            return
        if self._parquet is not None and result.columns is not None:
            self._parquet.write(result.columns, point=number, seed=result.seed)
        self.runs[number].append(msgspec.structs.replace(result, columns=None))

    def point(self, number: int, point: Point) -> PointResult:
        """What a point has come to."""
        empty = PointResult(
            set=point.set,
            load=str(point.load),
            budgets=point.terms.budgets,
            problems=self.problems[number],
        )
        return point_over(empty, sorted(self.runs[number], key=lambda run: run.seed))

    def plots(self, number: int) -> Plots | None:
        """Those of a point's first seed, the only ones that are kept."""
        return next((run.plots for run in self.runs[number] if run.plots is not None), None)


def run_plan(plan: Plan, output: Output, *, jobs: int | None = None, ray: str | None = None) -> int:
    """Run all of it, report, and return the exit status. Raises ConfigurationError if nothing can be run."""
    planned = judged_points(plan)
    _check(planned, output)
    typer.echo(header_of(plan, planned), err=True)
    _say(planned)
    _check_files(plan, output)
    with ExitStack() as stack:
        parquet = stack.enter_context(ParquetFile(output.parquet)) if output.parquet is not None else None
        gathered = Gathered(len(planned), parquet)
        tasks = _tasks(plan, planned, output)
        interrupted = _run(tasks, gathered, jobs, ray)
    _say_failed(planned, gathered)
    results = [
        PointResult(set=each.set, problems=each.problems)
        if isinstance(each, Impossible)
        else gathered.point(number, each)
        for number, each in enumerate(planned)
    ]
    result = Result(configuration=str(plan.file), interrupted=interrupted, points=results)
    _report(result, [gathered.plots(number) for number in range(len(planned))], output)
    typer.echo(_cost(gathered), err=True)
    missed = list(misses(result, output.min_goodput))
    for line in missed:
        typer.echo(line, err=True)
    return INTERRUPTED if interrupted else MISSED if missed else 0


def misses(result: Result, least: float | None) -> Iterator[str]:
    """Every class that holds its budgets less often than it must, in a line; points without figures too."""
    if least is None:
        return
    for point in result.points:
        where = f"{label_of(point.set)}: " if point.set else ""
        classes = point.figures.classes if point.figures is not None else {}
        if not classes:
            yield f"{where}has no figures, so nothing is known to hold"
        for name, group in classes.items():
            found = group.goodput_ratio
            if not found.value >= least:  # nan does not hold either
                interval = "" if isnan(found.low) else f" ({found.low:.2%} to {found.high:.2%})"
                share = f"{found.value:.2%}{interval}, below {least:.2%}"
                yield f"{where}class {name} holds its budgets for {share}"


def _check_files(plan: Plan, output: Output) -> None:
    """Each can be written, and is neither another one nor the configuration."""
    taken = {plan.file.resolve(): "the configuration"}
    for option, path in (
        ("--html", output.html),
        ("--parquet", output.parquet),
        ("--perfetto", output.perfetto),
    ):
        if path is None:
            continue
        if (other := taken.setdefault(path.resolve(), option)) != option:
            raise ConfigurationError([f"{option} {path}: is {other} too; name another file"])
        if option != "--parquet":  # whose writer is opened before the runs
            check_writable(option, path)


def _check(planned: Sequence[Point | Impossible], output: Output) -> None:
    if not any(isinstance(each, Point) for each in planned):
        # Of a sweep in which nothing can be, the first point's problems stand for all.
        first = planned[0]
        assert isinstance(first, Impossible)
        raise ConfigurationError([*first.problems])
    if output.perfetto is not None and len(planned) > 1:
        raise ConfigurationError(["--perfetto is of one point; leave out --sweep"])


def _say(planned: Sequence[Point | Impossible]) -> None:
    """What was assumed, what is not simulated, and which points cannot be."""
    possible = [each for each in planned if isinstance(each, Point)]
    if keys := sorted({name for each in possible for name in each.uncounted}):
        unknown = "which key of a tenant asks is not known, unless it has only one"
        typer.echo(f"not simulated: limits of {', '.join(keys)}; {unknown}", err=True)
    names = sorted({name for each in possible for name in each.assumed})
    if names:
        taken = ", ".join(sorted({each.profile or DEFAULT_PROFILE for each in possible}))
        unsaid = "`simulation.pools` does not say what its engines are"
        typer.echo(f"{', '.join(names)}: {unsaid}; taken to be {taken}", err=True)
    for line in dict.fromkeys(line for each in possible for line in each.extrapolated):
        typer.echo(line, err=True)
    for each in planned:
        if isinstance(each, Impossible):
            for problem in each.problems:
                typer.echo(f"{label_of(each.set)}: left out: {problem}", err=True)


def _say_failed(planned: Sequence[Point | Impossible], gathered: Gathered) -> None:
    """What came out only when it was run. Raises ConfigurationError if nothing else did."""
    failed = [(planned[number], problems) for number, problems in enumerate(gathered.problems) if problems]
    if failed and not any(gathered.runs):
        raise ConfigurationError([*failed[0][1]])
    for point, problems in failed:
        for problem in problems:
            typer.echo(f"{label_of(point.set) or 'a seed'}: left out: {problem}", err=True)


def _tasks(plan: Plan, planned: Sequence[Point | Impossible], output: Output) -> list[Task]:
    return [
        (number, settings)
        for number, each in enumerate(planned)
        if isinstance(each, Point)
        for settings in runs_of(
            plan,
            each,
            records=output.parquet is not None,
            plots=output.html is not None,
            perfetto=output.perfetto,
        )
    ]


def _run(tasks: list[Task], gathered: Gathered, jobs: int | None, ray: str | None) -> bool:
    """Run everything; True if Ctrl-C ended it early."""
    most = jobs or _cores()
    alone = ray is None and (most == 1 or len(tasks) == 1)
    span_s = span_of(tasks[0][1].load) if alone and len(tasks) == 1 else 0.0
    with progress(len(tasks), span_s) as bar:
        if ray is not None:
            found = on_ray(tasks, ray)
        else:
            found = here(tasks, bar.at_time) if alone else in_processes(tasks, most)
        try:
            with closing(found):
                for done in found:
                    gathered.add(done)
                    bar.advance()
        except KeyboardInterrupt:
            return True
    return any(run.counts is None for runs in gathered.runs for run in runs)


def _cores() -> int:
    """Those that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _report(result: Result, plots: Sequence[Plots | None], output: Output) -> None:
    if output.html is not None:
        output.html.write_text(as_html(result, plots), encoding="utf-8")
    if output.json:
        typer.echo(as_json(result))
    else:
        Console().print(as_table(result))


def _cost(gathered: Gathered) -> str:
    runs = [run for runs in gathered.runs for run in runs]
    # Of a run that Ctrl-C ended only those are known that were measured.
    requests = sum(run.counts.arrived if run.counts else run.figures.total.requests for run in runs)
    simulated = format_span(sum(run.simulated_s for run in runs))
    cpu = format_duration(sum(run.cpu_s for run in runs), 3)
    return f"{requests:,} requests, {simulated} simulated, {cpu} of CPU"
