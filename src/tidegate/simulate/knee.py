"""At which load does a curve of latency turn up?"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

import msgspec

from tidegate.simulate.results import PointResult

FEWEST_POINTS = 4


class Knee(msgspec.Struct, frozen=True):
    """The last load before latency grows faster than it."""

    key: str
    value: str


def knee_of(points: Sequence[PointResult]) -> Knee | None:
    """The knee of TTFT P95 over a sweep of one number; None if there is no such sweep, or no knee.

    Source: Kneedle (Satopää, Albrecht, Irwin and Raghavan 2011), for a convex rise: where the curve, scaled
    to the unit square, is furthest below its diagonal.
    """
    found = curve_of(points)
    if found is None:
        return None
    key, texts, loads, waits = found
    place = knee_place(loads, waits)
    return None if place is None else Knee(key, texts[place])


def curve_of(points: Sequence[PointResult]) -> tuple[str, list[str], list[float], list[float]] | None:
    """Key, values as written, values, and TTFT P95, if the points are a sweep of one number."""
    keys = {key for point in points for key in point.set}
    if len(keys) != 1:
        return None
    (key,) = keys
    told = []
    for point in points:
        if point.figures is None or isnan(wait := point.figures.total.ttft_s.p95.value):
            continue
        try:
            told.append((float(point.set[key]), point.set[key], wait))
        except ValueError:
            return None
    told.sort()
    return key, [text for _, text, _ in told], [load for load, _, _ in told], [wait for _, _, wait in told]


def knee_place(loads: Sequence[float], waits: Sequence[float]) -> int | None:
    """Index of the knee of a curve with ascending loads; None if it has too few points, or does not rise."""
    if len(loads) < FEWEST_POINTS or waits[-1] <= waits[0]:
        return None
    span, rise = loads[-1] - loads[0], waits[-1] - waits[0]
    below = [
        (load - loads[0]) / span - (wait - waits[0]) / rise for load, wait in zip(loads, waits, strict=True)
    ]
    place = max(range(len(below)), key=below.__getitem__)
    return place if below[place] > 0.1 else None  # a line, but for noise, has none
