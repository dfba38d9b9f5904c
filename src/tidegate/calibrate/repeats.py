"""Which repeats of a measurement had the machine to themselves, and how far apart are they?

What runs beside an engine can only delay it. So where repeats differ, the quieter ones tell of the engine and
the others of its neighbours: a line through all of them describes neither. Measured on llama.cpp beside other
work on two cores, with steps of 0.3 to 2 ms: lines through all repeats were 40 to 54 % off what a quieter
hour had shown, lines through the quieter ones 27 to 44 %. That is better, and not good: it has to be said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from tidegate.calibrate.points import Point

SLOWER = 1.25
"""A repeat that took so many times as long as the quietest quarter of its kind was disturbed."""


def undisturbed(points: Sequence[Point]) -> list[Point]:
    """Without the disturbed ones. Points of one name are repeats of one measurement."""
    most = {name: SLOWER * sorted(times)[(len(times) - 1) // 4] for name, times in _by_name(points).items()}
    return [each for each in points if each.step_s <= most[_kind(each)]]


def repeat_errors(points: Sequence[Point]) -> list[float]:
    """How far the median of its kind is from each point, relative to the point, without signs.

    No line can be nearer to all of them than that.
    """
    middle = {name: median(times) for name, times in _by_name(points).items()}
    return [abs(middle[_kind(each)] / each.step_s - 1) for each in points]


_Kind = tuple[str, bool]


def _kind(point: Point) -> _Kind:
    """A prompt alone may be named as a batch is."""
    return point.name, point.prompt_tokens > 0


def _by_name(points: Iterable[Point]) -> dict[_Kind, list[float]]:
    found: dict[_Kind, list[float]] = {}
    for each in points:
        found.setdefault(_kind(each), []).append(each.step_s)
    return found
