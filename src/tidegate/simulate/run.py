"""One run of one point: what is it told, and what does it give back?

Both cross from one process to another, so a run gives figures, not requests, unless those are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import process_time

import msgspec
import numpy as np

from tidegate.sim.counts import Counts
from tidegate.sim.run import Outcome, simulate
from tidegate.sim.samples import Sample
from tidegate.sim.scenario import Scenario
from tidegate.simulate.columns import Columns, Floats, Mask, Rows, e2e_s, ok, tpot_s, ttft_s
from tidegate.simulate.engines import PoolFigures, engines_of
from tidegate.simulate.figures import Figures, Terms, Window, measure
from tidegate.simulate.intervals import warm_up
from tidegate.simulate.load import Load, span_of, workload_of
from tidegate.simulate.perfetto import BatchTrace
from tidegate.simulate.timeline import Recorder, Timeline, step_of

AUTO = "auto"
SHOWN_RATIOS = (*(step / 100 for step in range(100)), 0.995, 0.999, 1.0)
"""Of the distributions that plots show."""


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    scenario: Scenario
    load: Load
    terms: Terms
    seed: int
    warm_up: str | float = AUTO
    """Seconds that are not measured, or AUTO: found where load and fleet are steady, else 0."""
    plots: bool = False
    """Keep what only plots show."""
    keep_records: bool = False
    perfetto: Path | None = None


class Distributions(msgspec.Struct, frozen=True, kw_only=True):
    """Latencies at `SHOWN_RATIOS`, of answered requests within the window; empty where there are none."""

    ttft_s: tuple[float, ...]
    tpot_s: tuple[float, ...]
    e2e_s: tuple[float, ...]


class Plots(msgspec.Struct, frozen=True, kw_only=True):
    """What is only shown in plots, never counted."""

    total: Distributions
    classes: dict[str, Distributions]
    timeline: Timeline


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a run gave."""

    seed: int
    figures: Figures
    engines: dict[str, PoolFigures]
    counts: Counts | None
    """None: it was interrupted."""
    retries: int
    steady: bool
    """False: no steady state was found; all of the run was measured."""
    window: Window
    changing: bool
    """Load or fleet change by plan: see `changes`."""
    simulated_s: float
    cpu_s: float
    plots: Plots | None = None
    columns: Columns | None = None


def run(settings: RunSettings, on_time: Callable[[float], None] | None = None) -> RunResult:
    """Simulate. `on_time` is told now and then how many simulated seconds have passed.

    Ctrl-C ends the run early; what has ended by then is measured.
    """
    columns = Columns()
    pool_of = {each.name: pool for pool, replicas in settings.scenario.pools.items() for each in replicas}
    recorder = Recorder(step_of(span_of(settings.load)), pool_of)
    began = process_time()
    outcome = _simulated(settings, columns, recorder, on_time)
    rows = columns.rows()
    seen_s = float(rows["arrived_at"][-1]) if len(rows) else 0.0
    # Clients come back for long after nobody new comes: what the fleet does then is not the load's doing.
    last_s = outcome.last_arrival_at if outcome else seen_s
    from_s, steady = _measured_from(settings, columns)
    window = Window(min(from_s, last_s), last_s)
    return RunResult(
        seed=settings.seed,
        figures=measure(columns, window, settings.terms),
        engines=engines_of(settings.scenario, outcome) if outcome else {},
        counts=outcome.counts if outcome else None,
        retries=outcome.retries if outcome else 0,
        steady=steady,
        window=window,
        changing=changes(settings),
        simulated_s=outcome.simulated_s if outcome else seen_s,
        cpu_s=process_time() - began,
        plots=_plots(columns, window, recorder.timeline) if settings.plots else None,
        columns=columns if settings.keep_records else None,
    )


def _simulated(
    settings: RunSettings,
    columns: Columns,
    recorder: Recorder,
    on_time: Callable[[float], None] | None,
) -> Outcome | None:
    trace = BatchTrace(settings.perfetto) if settings.perfetto is not None else None

    def on_sample(sample: Sample) -> None:
        if settings.plots:
            recorder(sample)
        if trace is not None:
            trace.sample(sample)
        if on_time is not None:
            on_time(sample.at_s)

    try:
        return simulate(
            settings.scenario,
            workload_of(settings.load, settings.seed),
            settings.seed,
            for_s=settings.load.span_s,
            on_record=columns.add,
            sample_s=recorder.timeline.step_s,
            on_sample=on_sample,
            on_batch=trace.batch if trace is not None else None,
        )
    except KeyboardInterrupt:
        return None
    finally:
        if trace is not None:
            trace.close()


def changes(settings: RunSettings) -> bool:
    """Whether load or fleet change by plan: a trace, a traffic file, faults, replicas that come later.

    Then there is no steady state to wait for: the beginning is as much a part of the run as its end.
    """
    load, scenario = settings.load, settings.scenario
    later = any(each.joins_at_s for replicas in scenario.pools.values() for each in replicas)
    return load.trace is not None or load.traffic is not None or bool(scenario.faults) or later


def _measured_from(settings: RunSettings, columns: Columns) -> tuple[float, bool]:
    """Where the window begins, and whether a steady state was found where one was looked for."""
    if isinstance(settings.warm_up, float):
        return settings.warm_up, True
    if changes(settings):
        return 0.0, True
    rows = columns.rows()
    answered = ok(rows)
    cut = warm_up(e2e_s(rows)[answered])
    return (float(rows["arrived_at"][answered][cut]) if cut else 0.0), cut is not None


def _plots(columns: Columns, window: Window, timeline: Timeline) -> Plots:
    rows = columns.rows()
    measured = ok(rows) & window.holds(rows["arrived_at"])
    return Plots(
        total=_distributions(rows, measured),
        classes={
            name: _distributions(rows, measured & (rows["priority"] == number))
            for number, name in enumerate(columns.names("priority"))
        },
        timeline=timeline,
    )


def _distributions(rows: Rows, shown: Mask) -> Distributions:
    def at_ratios(values: Floats) -> tuple[float, ...]:
        values = values[shown & ~np.isnan(values)]
        return tuple(np.quantile(values, SHOWN_RATIOS).tolist()) if len(values) else ()

    return Distributions(
        ttft_s=at_ratios(ttft_s(rows)), tpot_s=at_ratios(tpot_s(rows)), e2e_s=at_ratios(e2e_s(rows))
    )
