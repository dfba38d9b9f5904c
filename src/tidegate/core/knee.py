"""At which load does latency turn up? The knee of a curve, simulated or computed."""

from __future__ import annotations

from collections.abc import Sequence

FEWEST_POINTS = 4


def knee_place(loads: Sequence[float], waits: Sequence[float]) -> int | None:
    """Index of the knee of a curve with ascending loads; None if it has too few points, or does not rise.

    Source: Kneedle (Satopää, Albrecht, Irwin and Raghavan 2011), for a convex rise: where the curve, scaled
    to the unit square, is furthest below its diagonal.
    """
    if len(loads) < FEWEST_POINTS or waits[-1] <= waits[0]:
        return None
    span, rise = loads[-1] - loads[0], waits[-1] - waits[0]
    below = [
        (load - loads[0]) / span - (wait - waits[0]) / rise for load, wait in zip(loads, waits, strict=True)
    ]
    place = max(range(len(below)), key=below.__getitem__)
    return place if below[place] > 0.1 else None  # a line, but for noise, has none
