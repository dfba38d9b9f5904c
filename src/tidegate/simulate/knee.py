"""At which load does latency turn up? The curves of a sweep, and their knees."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

import msgspec

from tidegate.core.knee import knee_place
from tidegate.simulate.results import PointResult
from tidegate.simulate.sweeps import label_of


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


def _curve(key: str, label: str, points: list[PointResult]) -> Curve:
    points = sorted(points, key=lambda point: float(point.set[key]))
    loads = tuple(float(point.set[key]) for point in points)
    return Curve(key=key, label=label, loads=loads, points=tuple(points))


def _is_number(text: str) -> bool:
    try:
        return not isnan(float(text))
    except ValueError:
        return False
