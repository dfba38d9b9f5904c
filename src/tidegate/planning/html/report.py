"""What is in the HTML report of a plan? All that is told at a terminal, and the load-latency curve drawn."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from tidegate import __version__
from tidegate.core.errors import ConfigurationError
from tidegate.core.units import format_latency, format_number
from tidegate.plan.answer import Answer, LoadCurve
from tidegate.plan.ask import Ask, Terms
from tidegate.plan.offline import comparison
from tidegate.planning.advice_table import advice_told
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
from tidegate.planning.files import taken, write_whole
from tidegate.planning.html.parts import as_parts, as_table
from tidegate.planning.table import changes, classes, definitions, facts, latencies, room, schedule, waits
from tidegate.simulate.html import elements
from tidegate.simulate.html.plots import Axis, Level, Mark, Plot, Series, as_figure

STEEP = 5.0
"""So many times from the least to the most, from which an axis is logarithmic."""


def write_report(ask: Ask, answer: Answer, path: Path, *, force: bool) -> None:
    """Write it, whole. Raises ConfigurationError for a file that is there, and where the system refuses."""
    if problems := [*taken("--html", path, force=force)]:
        raise ConfigurationError(problems)
    try:
        write_whole(path, as_html(answer, ask.terms))
    except OSError as error:
        raise ConfigurationError([f"--html {path}: cannot be written: {error.strerror}"]) from None


def as_html(answer: Answer, terms: Terms) -> str:
    """One file: no script, nothing fetched."""
    return elements.page("tidegate plan", "\n".join(_body(answer, terms)))


def _body(answer: Answer, terms: Terms) -> Iterator[str]:
    yield f"<h1>{escape(answer.summary)}</h1>"
    yield f'<p class="quiet">tidegate plan {escape(__version__)}; by closed forms</p>'
    for warning in answer.warnings:
        yield f'<p class="warning">{escape(warning)}</p>'
    yield f"<p>{escape(answer.because)}</p>"
    if answer.opening is not None:
        yield f"<p>{escape(answer.opening.words)}</p>"
    if answer.offline is not None:
        yield f"<p>{escape(comparison(answer, answer.offline))}</p>"
    else:
        yield "<h2>What requests meet</h2>"
        yield as_table(latencies(answer, terms))
        if answer.classes:
            yield as_table(classes(answer, terms))
    yield as_table(facts(answer))
    for kept in (answer.offload, answer.fleet):
        if kept is not None:
            yield f"<p>{escape(kept.because)}</p>"
    if answer.disaggregated is not None:
        from tidegate.planning.apart_table import sides

        yield from as_parts(sides(answer, terms))
    if answer.curve is not None:
        yield "<h2>Load and latency</h2>"
        yield from _curve(answer.curve, terms)
    if answer.waits:
        yield "<h2>Why not fuller?</h2>"
        yield as_table(room(answer))
        yield as_table(waits(answer, terms.percentile))
    if answer.changes:
        yield "<h2>What changes it</h2>"
        yield as_table(changes(answer))
    if answer.hours:
        yield "<h2>The day</h2>"
        yield as_table(schedule(answer))
    yield from _others(answer, terms)
    if answer.advice is not None:
        yield "<h2>Configuration, and why</h2>"
        yield from as_parts(advice_told(answer, whole=True))
    yield "<h2>What the words mean</h2>"
    yield elements.definitions(definitions(answer))


def _others(answer: Answer, terms: Terms) -> Iterator[str]:
    """What else it could be, and what a simulation says, where that was asked for."""
    if answer.search is not None:
        from tidegate.planning.search_table import alternatives

        yield "<h2>What else it could be</h2>"
        yield from as_parts(alternatives(answer.search, terms))
    if "verify" in answer.__struct_fields__:
        from tidegate.planning.verify.table import told_of

        yield "<h2>Simulated</h2>"
        yield from as_parts(told_of(answer))


def _curve(curve: LoadCurve, terms: Terms) -> Iterator[str]:
    yield f"<p>{escape(sentence(curve))}</p>"
    drawn = [
        as_figure(_plot(curve, terms, name)) for name in ("TTFT", "TPOT", "E2E") if not is_flat(curve, name)
    ]
    yield f'<div class="plots">{"".join(drawn)}</div>'
    yield f"<details><summary>Figures</summary>{as_table(curve_table(curve))}</details>"


def _plot(curve: LoadCurve, terms: Terms, name: str) -> Plot:
    loads = [load_at(point) for point in curve.points]
    series = [
        Series(name=each, x=loads, y=[value_at(figure_of(point, name), each) for point in curve.points])
        for each in percentiles_of(curve.percentile)
    ]
    values = [value for each in series for value in each.y]
    logarithmic = min(values) > 0 and max(values) / min(values) >= STEEP
    budget = levels(terms).get(name)
    return Plot(
        title=f"{name} by load",
        series=series,
        x=Axis(
            label="requests/s" if curve.users is None else "users",
            shown=format_number,
            least=0.0,
            most=end_of(curve),
        ),
        y=Axis(label=name, shown=format_latency, logarithmic=logarithmic, least=None if logarithmic else 0.0),
        marks=[Mark(at, f"{word}: {format_number(at)}", low=not logarithmic) for word, at in places(curve)],
        levels=[] if budget is None else [Level(budget, f"budget: {format_latency(budget)}")],
    )
