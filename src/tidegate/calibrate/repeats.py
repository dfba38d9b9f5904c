"""Which repeats of a measurement had the machine to themselves, and how far apart are they?

What runs beside an engine can only delay it. So where repeats differ, the quieter ones tell of the engine and
the others of its neighbours: a line through all of them describes neither. Measured on llama.cpp beside other
work on two cores, with steps of 0.3 to 2 ms: lines through all repeats were 40 to 54 % off what a quieter
hour had shown, lines through the quieter ones 27 to 44 %. That is better, and not good: it has to be said.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tidegate.calibrate.points import Point

SLOWER = 1.25
"""A repeat that took so many times as long as the quietest quarter of its kind was disturbed."""

_Kind = tuple[str, bool]


def undisturbed(points: Sequence[Point]) -> list[Point]:
    """Without the disturbed ones. Points of one name are repeats of one measurement."""
    times = {kind: sorted(each.step_s for each in own) for kind, own in _by_kind(points).items()}
    most = {kind: SLOWER * own[(len(own) - 1) // 4] for kind, own in times.items()}
    return [each for each in points if each.step_s <= most[_kind(each)]]


def repeat_errors(points: Sequence[Point]) -> list[float]:
    """How far the other runs of its kind are from each point: their median, relative to it, without signs.

    A line that is nearer than that has met these points by luck. Nothing of points that no other run repeats.
    """
    kinds = _by_kind(points)
    errors = []
    for each in points:
        others = [other.step_s for other in kinds[_kind(each)] if other.run != each.run]
        if others:
            errors.append(abs(median(others) / each.step_s - 1))
    return errors


def _kind(point: Point) -> _Kind:
    """A prompt alone may be named as a batch is."""
    return point.name, point.prompt_tokens > 0


def _by_kind(points: Sequence[Point]) -> dict[_Kind, list[Point]]:
    found: dict[_Kind, list[Point]] = {}
    for each in points:
        found.setdefault(_kind(each), []).append(each)
    return found
