"""`python -m accuracy.closed_form`: how far are the closed form's latencies from simulated ones?

Writes docs/closed-form.md, and all points into docs/closed-form.json. `--kept` takes the simulated figures
from there: where only the closed form has changed they are still the same.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev
from typing import Final

import msgspec
import numpy as np
from rich.console import Console

from accuracy.closed_form_cases import (
    CASES,
    LAST,
    LOADS,
    POOLED,
    POOLED_BURSTS,
    SECOND,
    SEEDS,
    Case,
    disorder,
    figures_of,
)
from accuracy.closed_form_report import page
from accuracy.closed_form_values import FIGURES, Interval, Point
from tidegate.plan.laws.population import Arrivals
from tidegate.plan.laws.steady import steady

DOCS: Final = Path(__file__).parents[1] / "docs"
PAGE, FILE = DOCS / "closed-form.md", DOCS / "closed-form.json"
TURNS_SEED: Final = 31
STUDENT: Final = 2.776
"""97.5 % quantile of Student's t with 4 degrees of freedom: five runs."""


def main() -> int:
    """Exit status: 0."""
    parser = argparse.ArgumentParser(prog="python -m accuracy.closed_form", description=__doc__)
    parser.add_argument(
        "--kept", action="store_true", help="compare with the simulations in docs/closed-form.json"
    )
    parser.add_argument("--turns", action="store_true", help="only count how replicas are chosen")
    arguments = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    if arguments.turns:
        for line in turns():
            console.print(line)
        return 0
    known = _kept() if arguments.kept else {}
    points = []
    for point in compared(known):
        console.print(point.told())
        points.append(point)
    FILE.write_bytes(b"[\n" + b",\n".join(map(msgspec.json.encode, points)) + b"\n]\n")
    PAGE.write_text(page(points))
    return 0


def turns() -> Iterator[str]:
    """How irregularly replicas are chosen, of each case that has several."""
    for case in (*POOLED, *POOLED_BURSTS, *SECOND):
        batch = case.batch
        gate = batch.gate()
        for load in (0.3, 0.7):
            rate_per_s = load * case.replicas * batch.saturated(gate).requests_per_s
            yield f"{case}; {load:.0%}: {disorder(case, gate, rate_per_s, TURNS_SEED):.2f}"


def compared(known: dict[tuple[str, float], Point]) -> Iterator[Point]:
    """Each case at each load; simulated unless it is known at that rate and gate."""
    for case in (*CASES, *LAST):
        batch = case.batch
        gate = batch.gate()
        full = batch.saturated(gate)
        for load in LOADS:
            rate_per_s = load * case.replicas * full.requests_per_s
            arrivals = Arrivals(rate_per_s=rate_per_s, cv2=case.gap_cv**2, replicas=case.replicas)
            found = steady(batch, arrivals, gate)
            closed = {name: getattr(getattr(found, field), at) for name, (field, at) in FIGURES.items()}
            before = known.get((str(case), load))
            if before is not None and before.gate == gate and math.isclose(before.rate_per_s, rate_per_s):
                simulated = before.simulated
            else:
                simulated = _simulated(case, gate, rate_per_s, load)
            yield Point(
                case=str(case),
                load=load,
                gate=gate,
                rate_per_s=rate_per_s,
                closed_s=closed,
                simulated=simulated,
            )


def _simulated(case: Case, gate: int, rate_per_s: float, load: float) -> dict[str, Interval]:
    """Each figure's mean over the runs, and half of its 95 % interval."""
    runs: dict[str, list[float]] = {name: [] for name in FIGURES}
    for seed in SEEDS:
        found = figures_of(case, gate, rate_per_s, load, seed)
        for name, (field, at) in FIGURES.items():
            values = found[field]
            runs[name].append(float(values.mean() if at == "mean" else np.percentile(values, float(at[1:]))))
    return {
        name: Interval(mean_s=fmean(each), half_s=STUDENT * stdev(each) / len(each) ** 0.5)
        for name, each in runs.items()
    }


def _kept() -> dict[tuple[str, float], Point]:
    points = msgspec.json.decode(FILE.read_bytes(), type=list[Point])
    return {(point.case, point.load): point for point in points}


if __name__ == "__main__":
    sys.exit(main())
