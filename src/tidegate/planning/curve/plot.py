"""How is a load-latency curve drawn in characters?

With lines and dots where the terminal has them, in ASCII where it does not, and never wider than it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from tidegate.core.scale import Scale
from tidegate.core.units import format_latency, format_number
from tidegate.plan.answer import LoadCurve
from tidegate.plan.ask import Terms
from tidegate.planning.curve.words import (
    curve_table,
    end_of,
    figure_of,
    is_flat,
    levels,
    load_at,
    percentiles_of,
    places,
    sentence,
    value_at,
)

HEIGHT, MOST_WIDTH, LEFT = 10, 100, 8
STEEP = 5.0
"""So many times from the least to the most, from which an axis is logarithmic."""


class Glyphs(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn with."""

    series: str
    """One for each percentile."""
    budget: str
    plan: str
    knee: str
    side: str
    tick: str
    corner: str
    floor: str


FINE = Glyphs(series="·●×", budget="╌", plan="┊", knee="│", side="│", tick="┤", corner="└", floor="─")
PLAIN = Glyphs(series=".ox", budget="-", plan=":", knee="|", side="|", tick="+", corner="+", floor="-")


def curve_told(curve: LoadCurve, terms: Terms) -> RenderableType:
    """A sentence, two plots and the figures."""
    plots: list[RenderableType] = []
    for name in ("TTFT", "TPOT"):
        if not is_flat(curve, name):
            plots += [Drawn(curve, terms, name), Text("")]
    return Group(Text(""), Text(sentence(curve), style="bold"), Text(""), *plots, curve_table(curve))


class Drawn:
    """One plot, as wide as the terminal is."""

    def __init__(self, curve: LoadCurve, terms: Terms, name: str) -> None:
        self._curve, self._terms, self._name = curve, terms, name

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Its lines."""
        glyphs = PLAIN if options.ascii_only else FINE
        width = min(options.max_width, MOST_WIDTH)
        for line in self.lines(width, glyphs):
            yield Text(line, no_wrap=True, overflow="crop")

    def lines(self, width: int, glyphs: Glyphs) -> list[str]:
        """At most so wide."""
        columns = max(20, width - LEFT - 1)
        budget = levels(self._terms).get(self._name)
        names = percentiles_of(self._curve.percentile)
        loads = [load_at(point) for point in self._curve.points]
        drawn = [
            [value_at(figure_of(point, self._name), name) for point in self._curve.points] for name in names
        ]
        x = Scale(low=0.0, high=end_of(self._curve), start=0, end=columns - 1)
        y = _vertical([value for each in drawn for value in each], budget)
        canvas = [[" "] * columns for _ in range(HEIGHT)]
        for name, at in places(self._curve):
            for row in canvas:
                row[round(x(at))] = glyphs.knee if name == "knee" else glyphs.plan
        if budget is not None:
            canvas[_row(y, budget)] = [glyphs.budget] * columns
        for place in (0, 2, 1):  # the middle one is what was asked for, and lies above the others
            _line(
                canvas,
                [x(load) for load in loads],
                [y(value) for value in drawn[place]],
                glyphs.series[place],
            )
        head = self._legend(glyphs, width, logarithmic=y.logarithmic, budget=budget)
        foot = _foot(x, columns, glyphs, users=self._curve.users is not None)
        return [*head, *_framed(canvas, y, glyphs), *foot]

    def _legend(self, glyphs: Glyphs, width: int, *, logarithmic: bool, budget: float | None) -> list[str]:
        names = percentiles_of(self._curve.percentile)
        parts = [f"{glyph} {name}" for glyph, name in zip(glyphs.series, names, strict=True)]
        if budget is not None:
            parts.append(f"{glyphs.budget * 2} budget {format_latency(budget)}")
        parts += [
            f"{glyphs.knee if name == 'knee' else glyphs.plan} {name}" for name, _ in places(self._curve)
        ]
        return _packed([f"{self._name}{' (log)' if logarithmic else ''}", *parts], width)


def _packed(parts: Sequence[str], width: int) -> list[str]:
    """In as few lines as hold them, three blanks apart."""
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] += f"   {part}"
        else:
            lines.append(part)
    return lines


def _vertical(values: Sequence[float], budget: float | None) -> Scale:
    """From the top row to the bottom one."""
    told = [*values, *([] if budget is None else [budget])]
    low, high = min(told), max(told)
    if low > 0 and high / low >= STEEP:
        return Scale(low=low, high=high, start=HEIGHT - 1, end=0, logarithmic=True)
    return Scale(low=0.0, high=high or 1.0, start=HEIGHT - 1, end=0)


def _row(y: Scale, value: float) -> int:
    return min(HEIGHT - 1, max(0, round(y(value))))


def _line(canvas: list[list[str]], xs: Sequence[float], ys: Sequence[float], glyph: str) -> None:
    """Straight between the points, without gaps where it is steep."""
    before: int | None = None
    for column, row in _path(xs, ys):
        for each in _reached(before, row):
            canvas[each][column] = glyph
        before = row


def _path(xs: Sequence[float], ys: Sequence[float]) -> Iterator[tuple[int, int]]:
    """Column and row, in every column."""
    for (x0, y0), (x1, y1) in pairwise(zip(xs, ys, strict=True)):
        for column in range(round(x0), round(x1) + 1):
            part = 0.0 if x1 == x0 else min(1.0, max(0.0, (column - x0) / (x1 - x0)))
            yield column, min(HEIGHT - 1, max(0, round(y0 + part * (y1 - y0))))


def _reached(before: int | None, row: int) -> range:
    """The rows on the way from the one before to this one, without that."""
    if before is None or before == row:
        return range(row, row + 1)
    return range(before + 1, row + 1) if row > before else range(row, before)


def _framed(canvas: list[list[str]], y: Scale, glyphs: Glyphs) -> list[str]:
    labels = {_row(y, tick): format_latency(tick) for tick in y.ticks()}
    return [
        f"{labels.get(number, ''):>{LEFT - 1}} {glyphs.tick if number in labels else glyphs.side}"
        + "".join(row).rstrip()
        for number, row in enumerate(canvas)
    ]


def _foot(x: Scale, columns: int, glyphs: Glyphs, *, users: bool) -> list[str]:
    """The axis, with utilisation above the rates that it stands for; of users with their numbers alone."""
    line = f"{'':>{LEFT}}{glyphs.corner}{glyphs.floor * columns}"
    ratios, rates = [" "] * (columns + LEFT + 2), [" "] * (columns + LEFT + 2)
    for step in range(0, 11, 2):
        at = LEFT + 1 + round(step / 10 * (columns - 1))
        _put(ratios, at, f"{step / 10:.0%}")
        told = f"{round(step / 10 * x.high):,}" if users else format_number(step / 10 * x.high)
        _put(rates, at, told if step else "0 users" if users else "0/s")
    return [line, *([] if users else ["".join(ratios).rstrip()]), "".join(rates).rstrip()]


def _put(line: list[str], middle: int, text: str) -> None:
    start = min(len(line) - 1 - len(text), max(0, middle - len(text) // 2))
    line[start : start + len(text)] = text
