"""At which load does latency turn up? The curves of a sweep, and their knees."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

import msgspec

from tidegate.simulate.results import PointResult
from tidegate.simulate.sweeps import label_of

FEWEST_POINTS = 4


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """Points that differ in one number only, ascending by it."""

    key: str
    """What is swept."""
    label: str
    """What else is set; empty where that is nothing."""
    loads: tuple[float, ...]
    points: tuple[PointResult, ...]
    """With figures, each."""

    @property
    def knee(self) -> PointResult | None:
        """The last point before TTFT P95 grows faster than the load; None if there is none."""
        waits = [each.figures.total.ttft_s.p95.value for each in self.points if each.figures is not None]
        place = knee_place(self.loads, waits)
        return None if place is None else self.points[place]


def curves_of(points: Sequence[PointResult]) -> list[Curve]:
    """One for each combination of the other settings; none if no number is swept.

    Of several swept numbers the one with the most values is the load, of as many the first.
    """
    told = [
        each for each in points if each.figures is not None and not isnan(each.figures.total.ttft_s.p95.value)
    ]
    values = {key: {point.set[key] for point in told} for point in told[:1] for key in point.set}
    numbers = {
        key: len(found) for key, found in values.items() if len(found) > 1 and all(map(_is_number, found))
    }
    if not numbers:
        return []
    key = max(numbers, key=numbers.__getitem__)
    groups: dict[str, list[PointResult]] = {}
    for point in told:
        others = label_of({name: value for name, value in point.set.items() if name != key})
        groups.setdefault(others, []).append(point)
    return [_curve(key, label, own) for label, own in groups.items()]


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


def _curve(key: str, label: str, points: list[PointResult]) -> Curve:
    points = sorted(points, key=lambda point: float(point.set[key]))
    loads = tuple(float(point.set[key]) for point in points)
    return Curve(key=key, label=label, loads=loads, points=tuple(points))


def _is_number(text: str) -> bool:
    try:
        return not isnan(float(text))
    except ValueError:
        return False
