"""How is a curve drawn without a library? As SVG, readable in light and dark, and without colours.

Lines differ by dashes as well as by colour; every plot has a description for screen readers, and a legend in
text. The style sheet (`report.css`) has the colours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from math import isfinite

import msgspec

from tidegate.core.scale import Scale

WIDTH, HEIGHT = 420, 260
LEFT, RIGHT, TOP, BOTTOM = 52, 20, 10, 38
MOST_SERIES = 8
"""Colours that can be told apart."""
_DASHES = ("", "6 3", "2 3", "8 3 2 3", "10 4", "4 2", "1 2", "12 3 3 3")


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A line, or an area on top of those before it."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    """Ends of an interval around each `y`; none without."""
    high: Sequence[float] = ()


class Mark(msgspec.Struct, frozen=True):
    """A line across the plot, at a value of x."""

    x: float
    label: str
    low: bool = False
    """Whether the label stands at the bottom: where the curve leaves room."""


class Level(msgspec.Struct, frozen=True):
    """The same at a value of y."""

    y: float
    label: str


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """One direction."""

    label: str
    shown: Callable[[float], str]
    """A value as text."""
    logarithmic: bool = False
    least: float | None = None
    most: float | None = None
    """Bounds; None: those of the data."""


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """One figure."""

    title: str
    series: Sequence[Series]
    x: Axis
    y: Axis
    marks: Sequence[Mark] = ()
    levels: Sequence[Level] = ()
    stacked: bool = False


def as_figure(plot: Plot) -> str:
    """The plot with its title and legend; a line that says so where there is nothing to draw."""
    title = f"<strong>{escape(plot.title)}</strong>"
    series = [_cleaned(each, plot) for each in plot.series[:MOST_SERIES]]
    if not any(each.x for each in series):
        return f"<figure>{title}<figcaption>nothing to show</figcaption></figure>"
    stacks = _stacked(series) if plot.stacked else series
    x = _scale(
        plot.x, [v for each in series for v in each.x] + [m.x for m in plot.marks], LEFT, WIDTH - RIGHT
    )
    tops = [value for each in stacks for values in (each.y, each.high) for value in values]
    tops += [0.0] if plot.stacked else [level.y for level in plot.levels]
    y = _scale(plot.y, tops, HEIGHT - BOTTOM, TOP)
    drawn = _areas(stacks, x, y) if plot.stacked else _lines(series, x, y)
    body = "".join([*_grid(plot, x, y), *drawn, *_marks(plot.marks, x), *_levels(plot.levels, y)])
    label = f"{plot.title}. {plot.y.label} against {plot.x.label}: {', '.join(each.name for each in series)}"
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">{body}</svg>'
    return f"<figure>{title}{svg}{_legend(series, plot.stacked)}</figure>"


def _cleaned(series: Series, plot: Plot) -> Series:
    """Without what cannot be drawn: nan, and on a logarithmic axis what is not above 0."""

    def drawable(axis: Axis, value: float) -> bool:
        return isfinite(value) and (value > 0 or not axis.logarithmic)

    keep = [
        place
        for place, (x, y) in enumerate(zip(series.x, series.y, strict=True))
        if drawable(plot.x, x) and drawable(plot.y, y)
    ]
    return Series(
        name=series.name,
        x=[series.x[place] for place in keep],
        y=[series.y[place] for place in keep],
        low=[series.low[place] for place in keep] if series.low else (),
        high=[series.high[place] for place in keep] if series.high else (),
    )


def _stacked(series: Sequence[Series]) -> list[Series]:
    """Each on top of those before it."""
    stacks: list[Series] = []
    below = [0.0] * len(series[0].y)
    for each in series:
        below = [under + own for under, own in zip(below, each.y, strict=True)]
        stacks.append(msgspec.structs.replace(each, y=below))
    return stacks


def _scale(axis: Axis, values: Sequence[float], start: float, end: float) -> Scale:
    told = [value for value in values if isfinite(value) and (value > 0 or not axis.logarithmic)]
    low = min(told) if axis.least is None else axis.least
    high = max(told) if axis.most is None else axis.most
    if axis.logarithmic:
        return Scale(low=low, high=high if high > low else low * 10, start=start, end=end, logarithmic=True)
    return Scale(low=low, high=high if high > low else low + 1, start=start, end=end)


def _grid(plot: Plot, x: Scale, y: Scale) -> Iterator[str]:
    bottom = HEIGHT - BOTTOM
    for tick in y.ticks():
        at = y(tick)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text x="{LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">{escape(plot.y.shown(tick))}</text>'
    for tick in x.ticks():
        at = x(tick)
        yield f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{bottom}"/>'
        yield f'<text x="{at:.1f}" y="{bottom + 14}" text-anchor="middle">{escape(plot.x.shown(tick))}</text>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield f'<text x="{middle:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(plot.x.label)}</text>'


def _lines(series: Sequence[Series], x: Scale, y: Scale) -> Iterator[str]:
    for place, each in enumerate(series):
        points = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in zip(each.x, each.y, strict=True))
        style = f'style="stroke:var(--s{place})" stroke-dasharray="{_DASHES[place]}"'
        yield f'<polyline class="line" points="{points}" {style}/>'
        for at, low, high in zip(each.x, each.low, each.high, strict=False):
            if isfinite(low) and isfinite(high):
                ends = f'y1="{y(max(low, y.low)):.1f}" y2="{y(high):.1f}"'
                style = f'style="stroke:var(--s{place})"'
                yield f'<line class="bar" x1="{x(at):.1f}" x2="{x(at):.1f}" {ends} {style}/>'


def _areas(stacks: Sequence[Series], x: Scale, y: Scale) -> Iterator[str]:
    floor_ = [0.0] * len(stacks[0].y)
    for place, each in enumerate(stacks):
        over = [f"{x(at):.1f},{y(value):.1f}" for at, value in zip(each.x, each.y, strict=True)]
        under = [f"{x(at):.1f},{y(value):.1f}" for at, value in zip(each.x, floor_, strict=True)]
        yield f'<polygon class="area" points="{" ".join(over + under[::-1])}" style="fill:var(--s{place})"/>'
        floor_ = list(each.y)


def _marks(marks: Sequence[Mark], x: Scale) -> Iterator[str]:
    """Labels stand below one another where they would run into each other."""
    rows = {False: 0, True: 0}
    for mark in marks:
        at = x(mark.x)
        yield f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        anchor = "end" if at > WIDTH / 2 else "start"
        shift = -4 if anchor == "end" else 4
        row = 12 * rows[mark.low]
        y = HEIGHT - BOTTOM - 6 - row if mark.low else TOP + 10 + row
        yield f'<text x="{at + shift:.1f}" y="{y}" text-anchor="{anchor}">{escape(mark.label)}</text>'
        rows[mark.low] += 1


def _levels(levels: Sequence[Level], y: Scale) -> Iterator[str]:
    for level in levels:
        at = y(level.y)
        yield f'<line class="mark" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        below = at + 13 if at < TOP + 14 else at - 4
        yield f'<text x="{LEFT + 4}" y="{below:.1f}" text-anchor="start">{escape(level.label)}</text>'


def _legend(series: Sequence[Series], stacked: bool) -> str:
    if len(series) == 1 and not series[0].name:
        return ""
    items = []
    for place, each in enumerate(series):
        dashes = "" if stacked else _DASHES[place]
        width = 8 if stacked else 2
        line = f'<line x1="0" x2="24" y1="5" y2="5" stroke-width="{width}" stroke-dasharray="{dashes}"'
        sample = f'<svg viewBox="0 0 24 10" aria-hidden="true">{line} style="stroke:var(--s{place})"/></svg>'
        items.append(f"<li>{sample}{escape(each.name)}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'
