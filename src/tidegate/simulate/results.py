"""What does a simulation say, of every point of a sweep?

`Result` is what `--json` prints: keys in the order of the fields, units last, null for what cannot be known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isinf, nan

import msgspec

from tidegate import __version__
from tidegate.core.records import Budgets
from tidegate.simulate.engines import PoolFigures, engines_over
from tidegate.simulate.figures import Figures, figures_over
from tidegate.simulate.intervals import (
    LEVEL,
    PERCENTILES,
    TAIL_SAMPLES,
    Estimate,
    Method,
    Spread,
    estimate_over,
)
from tidegate.simulate.run import RunResult

BOUNDARIES = {
    "ttft_s": "from the request's arrival at the gateway to the arrival of its first token there",
    "tpot_s": "(E2E - TTFT) / (output tokens - 1), of answers with 2 tokens or more",
    "e2e_s": "from the request's arrival at the gateway to the arrival of its last token there",
    "queued_s": "from the request's arrival at the gateway to its last dispatch",
}
"""Where each latency begins and ends. The way between a client and the gateway is in none of them."""


CHANGING = "load or fleet change over the run: intervals, which take them for steady, are rough"
TOO_SHORT = (
    "the run is far too short for how much latencies vary, or for how long they resemble each other: "
    "intervals are likely too narrow: run longer, or --repeat 5"
)
SHORT = "intervals are of one short run, and wide: --repeat 5, or a longer run, makes them surer"
SATURATED = (
    "half of the requests queued, and near saturation a quiet run looks surer than it is: run longer, "
    "or --repeat"
)
KNOWN = 0.9
"""The lower end of what requests queued, relative to it, from which a run was long enough to be believed."""


class Conservation(msgspec.Struct, frozen=True, kw_only=True):
    """What became of every request that reached the gateway, a client's retries among them."""

    arrived: int
    finished: int
    """Answered, truncated ones included."""
    broken: int
    """The answer broke off after its first byte."""
    rejected: int
    """Refused without having waited."""
    evicted: int
    """Refused after having waited or been tried."""
    cancelled: int
    """The client left."""
    in_flight: int
    """Not ended when the run ended."""
    retries: int
    """Of those that arrived, the ones that a client made again."""

    @property
    def holds(self) -> bool:
        """Whether all that arrived is accounted for."""
        ended = self.finished + self.broken + self.rejected + self.evicted + self.cancelled
        return self.arrived == ended + self.in_flight


class PointResult(msgspec.Struct, frozen=True, kw_only=True):
    """One point of a sweep, over its seeds."""

    set: dict[str, str]
    """What the sweep sets there; empty for the only point."""
    load: str = ""
    """What came in, in words."""
    budgets: dict[str, Budgets] = {}
    """By class."""
    problems: tuple[str, ...] = ()
    """Why it cannot be. Then it has no figures."""
    seeds: tuple[int, ...] = ()
    figures: Figures | None = None
    """null where there are problems, or nothing was done before Ctrl-C."""
    engines: dict[str, PoolFigures] = {}
    """By pool, over whole runs."""
    conservation: Conservation | None = None
    """Over whole runs of all seeds, warm-up included."""
    warm_up_s: Estimate = Estimate()
    """Not measured, at the beginning of each run."""
    measured_s: float = nan
    """Of all seeds together."""
    simulated_s: float = nan
    """Of all seeds together, to the last event."""
    warnings: tuple[str, ...] = ()
    """What makes its figures doubtful."""
    notes: tuple[str, ...] = ()
    """What would make them surer."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A whole simulation."""

    tidegate: str = __version__
    configuration: str
    boundaries: dict[str, str] = msgspec.field(default_factory=lambda: dict(BOUNDARIES))
    interval_level: float = LEVEL
    interrupted: bool = False
    """Ctrl-C: some points or seeds are missing."""
    points: list[PointResult]


def point_over(point: PointResult, runs: Sequence[RunResult]) -> PointResult:
    """A point, with the figures of its runs, one for each seed."""
    if not runs:
        return point
    figures = figures_over([run.figures for run in runs])
    conservation = _conserved(runs)
    return msgspec.structs.replace(
        point,
        seeds=tuple(run.seed for run in runs),
        figures=figures,
        engines=engines_over([run.engines for run in runs]),
        conservation=conservation,
        warm_up_s=estimate_over([run.window.from_s for run in runs]),
        measured_s=sum(run.window.span_s for run in runs),
        simulated_s=sum(run.simulated_s for run in runs),
        warnings=tuple(_warnings(figures, runs, conservation)),
        notes=tuple(_notes(figures, runs)),
    )


def latencies(figures: Figures) -> list[tuple[str, Spread]]:
    """Heading and figures of each latency."""
    total = figures.total
    return [("TTFT", total.ttft_s), ("TPOT", total.tpot_s), ("E2E", total.e2e_s), ("queued", total.queued_s)]


def saturated(queued: Spread) -> bool:
    """Whether a run is too short to be believed alone: half queued, and for how long is hardly known."""
    return queued.p50.value > 0 and not queued.mean.low >= KNOWN * queued.mean.value


def _conserved(runs: Sequence[RunResult]) -> Conservation | None:
    """None if no run was complete."""
    whole = [run for run in runs if run.counts is not None]
    if not whole:
        return None
    names = [name for name in Conservation.__struct_fields__ if name != "retries"]
    sums = {name: sum(getattr(run.counts, name) for run in whole) for name in names}
    return Conservation(**sums, retries=sum(run.retries for run in whole))


def _warnings(
    figures: Figures, runs: Sequence[RunResult], conservation: Conservation | None
) -> Iterator[str]:
    spreads = [(heading, spread) for heading, spread in latencies(figures)[:3] if spread.count]
    if not spreads:
        yield "nothing was answered: there is nothing to measure"
        return
    unsteady = sum(not run.steady for run in runs)
    if unsteady:
        where = "" if len(runs) == 1 else f" with {unsteady} of {len(runs)} seeds"
        yield (
            f"no steady state was found{where}: the run is too short, or the load more than the fleet can "
            "serve; all of it was measured"
        )
    if any(run.window.span_s <= 0 for run in runs):
        yield "warm-up lasts until the last request came: there is next to nothing to measure"
    if names := _tails(spreads, thin=True, bounded=False):
        yield f"too few samples lie beyond {names} to bound them: run longer, or --repeat 5"
    if names := _tails(spreads, thin=False, bounded=False):
        yield f"what lies beyond {names} are a few bursts, which set no bound: run longer, or --repeat 5"
    if any(spread.doubtful for _, spread in spreads):
        yield CHANGING if runs[0].changing else TOO_SHORT
    elif len(runs) == 1 and saturated(figures.total.queued_s):
        yield SATURATED
    if any(spread.method is Method.NONE for _, spread in spreads):
        yield "too few samples for intervals; run longer"
    if conservation is not None and not conservation.holds:
        yield "requests were lost or counted twice: this is a fault of the simulator; please report it"


def _notes(figures: Figures, runs: Sequence[RunResult]) -> Iterator[str]:
    """Where intervals hold, and could be narrower."""
    spreads = [(heading, spread) for heading, spread in latencies(figures)[:3] if spread.count]
    if names := _tails(spreads, thin=True, bounded=True):
        yield f"fewer than {TAIL_SAMPLES} samples of a run lie beyond {names}: a longer run is surer of them"
    if any(spread.short for _, spread in spreads) and not any(spread.doubtful for _, spread in spreads):
        yield CHANGING if runs[0].changing else SHORT


def _tails(spreads: Sequence[tuple[str, Spread]], *, thin: bool, bounded: bool) -> str:
    """Percentiles of some latency with few samples beyond them, or many; with an upper end, or without."""
    found = {
        name.upper()
        for _, spread in spreads
        for name in PERCENTILES
        if (name in spread.thin) is thin and isinf(getattr(spread, name).high) is not bounded
    }
    return ", ".join(sorted(found))
