"""What is in the HTML report? Everything that the JSON says, and how it went over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import accumulate
from math import isnan

from tidegate.core.records import Budgets
from tidegate.core.units import format_latency, format_number, format_ratio
from tidegate.simulate.figures import Group
from tidegate.simulate.html.elements import definitions, page, row, table
from tidegate.simulate.html.plots import MOST_SERIES, Axis, Mark, Plot, Series, as_figure
from tidegate.simulate.intervals import Estimate
from tidegate.simulate.knee import Curve, curves_of
from tidegate.simulate.results import BOUNDARIES, PointResult, Result, latencies
from tidegate.simulate.run import SHOWN_RATIOS, Distributions, Plots
from tidegate.simulate.sweeps import label_of
from tidegate.simulate.table import FIGURES, between, interval_words, summary
from tidegate.simulate.timeline import Timeline

HEADINGS = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E", "queued_s": "queued"}
MOST_DETAILED = 24
"""Points with tables and plots of their own."""


def as_html(result: Result, plots: Sequence[Plots | None]) -> str:
    """One file: no script, nothing fetched. `plots` are those of the points."""
    return page(f"tidegate simulate {result.configuration}", "\n".join(_body(result, plots)))


def _body(result: Result, plots: Sequence[Plots | None]) -> Iterator[str]:
    yield f"<h1>Would it hold? {escape(result.configuration)}</h1>"
    load = next((point.load for point in result.points if point.figures is not None), "")
    if len(result.points) > 1:
        load = f"{len(result.points)} points, the first of them: {load}"
    yield f'<p class="quiet">{escape(load)}; tidegate {escape(result.tidegate)}</p>'
    if result.interrupted:
        yield '<p class="warning">The simulation was interrupted: this is what was done by then.</p>'
    told = [(point, plots[place]) for place, point in enumerate(result.points) if point.figures is not None]
    if len(result.points) > 1:
        yield "<h2>Points</h2>"
        yield _points(result)
        yield _load_curves(result.points)
    else:
        yield from (part for point, _ in told for part in _outcome(point))
    if told:
        yield "<h2>Latencies</h2>"
        yield _distributions(told)
    for place, (point, own) in enumerate(told[:MOST_DETAILED]):
        label = label_of(point.set)
        inner = "\n".join([*(_outcome(point) if label else ()), *_point(point, own)])
        opened = " open" if place == 0 else ""
        yield f"<details{opened}><summary>{escape(label)}</summary>{inner}</details>" if label else inner
    if len(told) > MOST_DETAILED:
        yield f'<p class="quiet">The first {MOST_DETAILED} points are shown in detail; JSON has all.</p>'
    yield "<h2>What is measured</h2>"
    yield definitions({HEADINGS[key]: words for key, words in BOUNDARIES.items()})


# -- the whole ------------------------------------------------------------------------------------


def _points(result: Result) -> str:
    headings = ["", "answered/s", "goodput", "refused"]
    headings += ["TTFT P50", "TTFT P95", "TTFT P99", "TPOT P95", "E2E P95"]
    rows = []
    for point in result.points:
        label = label_of(point.set)
        if point.figures is None:
            reason = escape("; ".join(point.problems) or "not run")
            rows.append(row(label, f'<td colspan="{len(headings) - 1}" class="bad">{reason}</td>'))
            continue
        total = point.figures.total
        cells = [_cell(total.answered_per_s, format_number), _cell(total.goodput_ratio, format_ratio)]
        cells.append(f"<td>{format_ratio(total.refused_ratio)}</td>")
        waits = (total.ttft_s.p50, total.ttft_s.p95, total.ttft_s.p99, total.tpot_s.p95, total.e2e_s.p95)
        cells += [_cell(each, format_latency) for each in waits]
        rows.append(row(label, *cells))
    return table(headings, rows)


def _load_curves(points: Sequence[PointResult]) -> str:
    """Latency and goodput against what is swept, if that is a number."""
    curves = curves_of(points)
    if not curves:
        return ""
    key = curves[0].key
    (first, *others) = curves
    if others:
        latencies_ = [_against(curve, "p95", curve.label, bars=False) for curve in curves]
    else:
        latencies_ = [_against(first, name, name.upper(), bars=True) for name in ("p50", "p95", "p99")]
    knees = {curve.knee.set[key] for curve in curves if curve.knee is not None}
    x = Axis(label=key, shown=format_number)
    latency = Plot(
        title="TTFT P95 by load" if others else "TTFT by load",
        series=latencies_,
        x=x,
        y=Axis(label="TTFT", shown=format_latency, logarithmic=True),
        marks=[Mark(float(knee), f"knee: {knee}") for knee in sorted(knees)],
    )
    goodput = Plot(
        title="Goodput by load",
        series=[
            Series(
                name=curve.label, x=curve.loads, y=[_total(each).goodput_ratio.value for each in curve.points]
            )
            for curve in curves
        ],
        x=x,
        y=Axis(label="share of requests", shown=_whole_percent, least=0, most=1),
    )
    return f'<div class="plots">{as_figure(latency)}{as_figure(goodput)}</div>'


def _against(curve: Curve, percentile: str, name: str, *, bars: bool) -> Series:
    found: list[Estimate] = [getattr(_total(each).ttft_s, percentile) for each in curve.points]
    return Series(
        name=name,
        x=curve.loads,
        y=[each.value for each in found],
        low=[each.low for each in found] if bars else (),
        high=[each.high for each in found] if bars else (),
    )


def _total(point: PointResult) -> Group:
    assert point.figures is not None
    return point.figures.total


def _distributions(told: Sequence[tuple[PointResult, Plots | None]]) -> str:
    budgets = told[0][0].budgets
    figures = []
    for name, heading in (("ttft_s", "TTFT"), ("tpot_s", "TPOT"), ("e2e_s", "E2E")):
        series = [
            Series(name=label, x=values, y=SHOWN_RATIOS)
            for label, each in _shown(told).items()
            if (values := getattr(each, name))
        ]
        marks: dict[float, list[str]] = {}
        for class_, each in budgets.items():
            if value := getattr(each, name):
                marks.setdefault(value, []).append(class_)
        plot = Plot(
            title=f"{heading}: share of answers within",
            series=series,
            x=Axis(label=heading, shown=format_latency, logarithmic=True),
            y=Axis(label="share of answers", shown=_whole_percent, least=0, most=1),
            marks=[Mark(at, f"budget of {', '.join(whose)}", low=True) for at, whose in marks.items()],
        )
        figures.append(as_figure(plot))
    more = ""
    if len(told) > MOST_SERIES:
        more = f'<p class="quiet">Of the first {MOST_SERIES} points.</p>'
    return f'<div class="plots">{"".join(figures)}</div>{more}'


def _shown(told: Sequence[tuple[PointResult, Plots | None]]) -> dict[str, Distributions]:
    """The classes of a single point, whose budgets differ; else the points."""
    if len(told) == 1 and told[0][1] is not None and len(told[0][1].classes) > 1:
        figures, classes = told[0][0].figures, told[0][1].classes
        order = [] if figures is None else [*figures.classes]
        return {name: classes[name] for name in order[:MOST_SERIES]}
    return {label_of(point.set): own.total for point, own in told[:MOST_SERIES] if own is not None}


# -- one point ------------------------------------------------------------------------------------


def _outcome(point: PointResult) -> Iterator[str]:
    """What somebody with half a minute reads: how it went, and what to doubt."""
    assert point.figures is not None
    yield definitions(summary(point, point.figures.total, point.figures.fairness))
    for warning in point.warnings:
        yield f'<p class="warning">{escape(warning)}</p>'
    for note in point.notes:
        yield f'<p class="quiet">{escape(note)}</p>'


def _point(point: PointResult, plots: Plots | None) -> Iterator[str]:
    figures = point.figures
    assert figures is not None
    spread = figures.total.e2e_s
    rows = [
        row(
            heading,
            *(_cell(getattr(each, name), format_latency) for name in FIGURES),
            f"<td>{format_latency(each.max)}</td><td>{each.count:,}</td>",
        )
        for heading, each in latencies(figures)
    ]
    yield table(["", "mean", "P50", "P95", "P99", "max", "answers"], rows, interval_words(spread))
    yield _groups("class", figures.classes, point.budgets)
    yield _groups("tenant", figures.tenants, {})
    engines = [
        row(
            name,
            f"<td>{own.replicas}</td>",
            _cell(own.utilisation_ratio, format_ratio),
            _cell(own.decodes_per_step, format_number),
            _cell(own.prefix_hit_ratio, format_ratio),
            _cell(own.preemptions, format_number),
        )
        for name, own in point.engines.items()
    ]
    yield table(["pool", "replicas", "busy", "batch", "prefix hits", "preemptions"], engines)
    if plots is not None and plots.timeline is not None:
        yield _over_time(plots.timeline, point.seeds[0])


def _groups(kind: str, groups: Mapping[str, Group], budgets: Mapping[str, Budgets]) -> str:
    headings = [kind, "asked", "answered", "goodput", "TTFT P95", "TPOT P95", "E2E P95", "of all tokens"]
    rows = []
    for name, own in groups.items():
        budget = budgets.get(name, Budgets())
        cells = [f"<td>{own.requests:,}</td><td>{own.ok:,}</td>", _cell(own.goodput_ratio, format_ratio)]
        cells.append(_cell(own.ttft_s.p95, format_latency, budget.ttft_s))
        cells.append(_cell(own.tpot_s.p95, format_latency, budget.tpot_s))
        cells.append(_cell(own.e2e_s.p95, format_latency, budget.e2e_s))
        cells.append(_cell(own.token_share, format_ratio))
        rows.append(row(name, *cells))
    return table(headings, rows)


def _over_time(timeline: Timeline, seed: int) -> str:
    x = Axis(label="seconds from the start", shown=format_number)
    at = timeline.at_s
    share = Axis(label="share", shown=_whole_percent, least=0, most=1)
    many = Axis(label="requests", shown=format_number, least=0)
    rate = Axis(label="requests/s", shown=format_number, least=0)
    queues = [
        Series(name=f"{name}: {what}", x=at, y=values)
        for name, pool in timeline.pools.items()
        for what, values in (("in the gateway", pool.queued), ("in engines", pool.waiting))
    ]
    caches = [
        Series(name=f"{name}: {what}", x=at, y=values)
        for name, pool in timeline.pools.items()
        for what, values in (("mean", pool.kv_used_ratio), ("fullest", pool.kv_used_most))
    ]
    running = [Series(name=name, x=at, y=pool.running) for name, pool in timeline.pools.items()]
    rates = _largest(timeline.refusals, len(at))
    refusals = [
        Series(name=name, x=at, y=[value / timeline.step_s for value in values])
        for name, values in rates.items()
    ]
    figures = [
        Plot(title="Tenants' share of tokens", series=_shares(timeline), x=x, y=share, stacked=True),
        Plot(title="Queues", series=queues, x=x, y=many),
        Plot(title="Running in engines", series=running, x=x, y=many),
        Plot(title="KV cache in use", series=caches, x=x, y=share),
        Plot(title="Refused or cut", series=refusals, x=x, y=rate),
    ]
    drawn = "".join(as_figure(each) for each in figures)
    return f'<p class="quiet">Over time, seed {seed}:</p><div class="plots">{drawn}</div>'


def _shares(timeline: Timeline) -> list[Series]:
    """Of the tokens of the last tenth of the run or less, so that the shares do not flicker."""
    length = len(timeline.at_s)
    tokens = _largest(timeline.tenant_tokens, length)
    width = max(1, length // 24)
    sums = {name: _moving(values, width) for name, values in tokens.items()}
    totals = [sum(each) for each in zip(*sums.values(), strict=True)] if sums else []
    return [
        Series(
            name=name,
            x=timeline.at_s,
            y=[value / total if total else 0.0 for value, total in zip(values, totals, strict=True)],
        )
        for name, values in sums.items()
    ]


def _moving(values: Sequence[float], width: int) -> list[float]:
    """Sums of the last `width` values."""
    sums = [0.0, *accumulate(values)]
    return [sums[end] - sums[max(0, end - width)] for end in range(1, len(sums))]


def _largest(series: Mapping[str, Sequence[float]], length: int) -> dict[str, Sequence[float]]:
    """As many as can be told apart, the rest as one."""
    order = sorted(series, key=lambda name: -sum(series[name]))
    if len(order) <= MOST_SERIES:
        return {name: series[name] for name in order}
    kept = {name: series[name] for name in order[: MOST_SERIES - 1]}
    others = [sum(series[name][place] for name in order[MOST_SERIES - 1 :]) for place in range(length)]
    return {**kept, "others": others}


# -- elements -------------------------------------------------------------------------------------


def _cell(estimate: Estimate, shown: Callable[[float], str], budget: float | None = None) -> str:
    """A figure above its interval; marked where it is above its budget."""
    over = ' class="bad"' if budget is not None and estimate.value > budget else ""
    if isnan(estimate.low):
        return f"<td{over}>{shown(estimate.value)}</td>"
    return f"<td{over}>{shown(estimate.value)}<small>{between(estimate, shown)}</small></td>"


def _whole_percent(ratio: float) -> str:
    return f"{ratio:.0%}"
