"""What does a simulation say to somebody at a terminal?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import inf, isinf, isnan

from rich.box import SIMPLE_HEAD
from rich.console import Group as Parts
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tidegate.core.records import Budgets
from tidegate.core.text import printable
from tidegate.core.units import format_duration
from tidegate.sim.statistics import Estimate, Method, Spread
from tidegate.simulate.engines import PoolFigures
from tidegate.simulate.figures import Group
from tidegate.simulate.knee import curves_of
from tidegate.simulate.results import PointResult, Result, latencies
from tidegate.simulate.sweeps import label_of

MOST_TENANTS = 20
"""Rows; JSON has more."""
FIGURES = ("mean", "p50", "p95", "p99")


def as_table(result: Result) -> RenderableType:
    """One point in full, or a row for each of several."""
    if len(result.points) == 1:
        return Parts(*_one(result.points[0]))
    return Parts(*_many(result))


def number(value: float) -> str:
    """Three digits; `-` for what does not exist."""
    if isnan(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(ratio: float) -> str:
    """With one decimal, unless that is 0; `-` for what does not exist."""
    return "-" if isnan(ratio) else f"{ratio:.1%}".replace(".0%", "%")


def duration(seconds: float) -> str:
    """Three digits; `-` for what does not exist."""
    return format_duration(seconds, 3)


def between(estimate: Estimate, shown: Callable[[float], str]) -> str:
    """Its interval, from 0 on: `21.5..21.9ms`, or `>21.5ms` where it has no upper end."""
    low = shown(max(0.0, estimate.low))
    if estimate.high == inf:
        return f">{low}"
    high = shown(estimate.high)
    unit = low.lstrip("0123456789.,")
    return f"{low.removesuffix(unit)}..{high}" if high.lstrip("0123456789.,") == unit else f"{low}..{high}"


def interval_words(spread: Spread) -> str:
    """How the intervals of a spread were found."""
    if spread.method is Method.SEEDS:
        return f"95 % intervals: Student's t over {spread.parts} seeds"
    if spread.method is Method.BATCHES:
        return f"95 % intervals: within one run, from the means of {spread.parts} batches"
    return "no intervals: too few samples"


# -- one point ------------------------------------------------------------------------------------


def _one(point: PointResult) -> Iterator[RenderableType]:
    figures = point.figures
    if figures is None:
        yield Text("\n".join(point.problems) or "nothing was done", style="bold yellow")
        return
    yield _latencies(latencies(figures))
    yield _counts(point, figures.total, figures.fairness)
    yield _groups("class", figures.classes, point.budgets)
    if len(figures.tenants) > 1:
        yield _groups("tenant", dict(list(figures.tenants.items())[:MOST_TENANTS]))
    if point.engines:
        yield _engines(point.engines)
    for warning in point.warnings:
        yield Text(f"warning: {warning}", style="yellow")


def _latencies(found: list[tuple[str, str, Spread]]) -> Table:
    spread = found[2][2]
    table = Table(
        caption=interval_words(spread),
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("")
    for name in ("mean", "P50", "P95", "P99", "max"):
        table.add_column(name, justify="right")
    for _, heading, each in found:
        shown = [_with_interval(getattr(each, name), duration) for name in FIGURES]
        table.add_row(heading, *shown, duration(each.max))
    return table


def _with_interval(estimate: Estimate, shown: Callable[[float], str]) -> Text:
    text = Text(shown(estimate.value))
    if not isnan(estimate.low):
        text.append(f"\n{between(estimate, shown)}", style="dim")
    return text


def _counts(point: PointResult, total: Group, fairness: Estimate) -> Table:
    grid = Table.grid(padding=(0, 2))
    failed = total.requests - total.ok
    grid.add_row("requests", f"{total.requests:,} measured, {total.ok:,} answered, {failed:,} refused or cut")
    ratio, rate = total.goodput_ratio, number(total.goodput_per_s.value)
    grid.add_row("goodput", f"{percent(ratio.value)} ({between(ratio, percent)}), {rate} requests/s")
    offered, answered = (number(each.value) for each in (total.offered_per_s, total.answered_per_s))
    grid.add_row("rate", f"{offered} requests/s offered, {answered} answered")
    output, prompt = (number(each.value) for each in (total.output_tokens_per_s, total.prompt_tokens_per_s))
    grid.add_row("tokens", f"{output} output tokens/s, {prompt} prompt tokens/s")
    if total.reasons:
        grid.add_row("refusals", refusal_words(total))
    grid.add_row("fairness", f"{number(fairness.value)} (Jain's index of tenants, 1 is fair)")
    grid.add_row("measured", _measured(point))
    if point.conservation is not None:
        grid.add_row("of all", conserved_words(point))
    return grid


def _measured(point: PointResult) -> str:
    warm_up = point.warm_up_s.value
    after = f" after {duration(warm_up)} of warm-up" if warm_up > 0 else ""
    runs = f", {len(point.seeds)} runs" if len(point.seeds) > 1 else ""
    return f"{duration(point.measured_s)}{after}{runs}"


def conserved_words(point: PointResult) -> str:
    """What became of all requests."""
    found = point.conservation
    if found is None:
        return "interrupted"
    words = ("finished", "broken", "rejected", "evicted", "cancelled", "in_flight")
    parts = [f"{count:,} {word}" for word in words if (count := getattr(found, word))]
    retries = f" ({found.retries:,} retries)" if found.retries else ""
    return f"{found.arrived:,} arrived{retries} = {' + '.join(parts).replace('_', ' ') or '0'}"


def refusal_words(group: Group) -> str:
    """Counts by reason; empty if nothing was refused or cut."""
    return ", ".join(f"{count:,} {reason}" for reason, count in group.reasons.items())


def _groups(kind: str, groups: Mapping[str, Group], budgets: Mapping[str, Budgets] | None = None) -> Table:
    table = Table(
        title=f"By {kind}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    table.add_column(kind, no_wrap=True)
    for name in ("asked", "answered", "goodput", "TTFT P95", "TPOT P95", "E2E P95", "share"):
        table.add_column(name, justify="right")
    for name, own in groups.items():
        budget = (budgets or {}).get(name, Budgets())
        table.add_row(
            _shown(name),
            f"{own.requests:,}",
            f"{own.ok:,}",
            _with_interval(own.goodput_ratio, percent),
            _judged(own.ttft_s.p95.value, budget.ttft_s),
            _judged(own.tpot_s.p95.value, budget.tpot_s),
            _judged(own.e2e_s.p95.value, budget.e2e_s),
            percent(own.token_share.value),
        )
    return table


def _engines(engines: Mapping[str, PoolFigures]) -> Table:
    table = Table(
        title="By pool", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    table.add_column("pool")
    for name in ("replicas", "busy", "batch", "prefix hits", "preemptions"):
        table.add_column(name, justify="right")
    for name, own in engines.items():
        table.add_row(
            _shown(name),
            f"{own.replicas}",
            percent(own.utilisation_ratio.value),
            number(own.decodes_per_step.value),
            percent(own.prefix_hit_ratio.value),
            number(own.preemptions.value),
        )
    return table


# -- a sweep --------------------------------------------------------------------------------------


def _many(result: Result) -> Iterator[RenderableType]:
    keys = list(dict.fromkeys(key for point in result.points for key in point.set))
    told = [point for point in result.points if point.figures is not None]
    hits = any(not isnan(each.prefix_hit_ratio.value) for point in told for each in point.engines.values())
    caption = interval_words(told[0].figures.total.e2e_s) if told and told[0].figures else ""
    table = Table(
        caption=caption, caption_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    for key in keys:
        table.add_column(_shown(key.rpartition(".")[2]))
    headings = ["req/s", "goodput", "TTFT P50", "TTFT P95", "TPOT P95", "E2E P95", "busy"]
    for name in [*headings, *(["hits"] if hits else [])]:
        table.add_column(name, justify="right")
    for point in result.points:
        table.add_row(*(_shown(point.set.get(key, "")) for key in keys), *_row(point, hits))
    yield table
    for curve in curves_of(result.points):
        knee = curve.knee
        if knee is not None:
            yield Text(f"knee: {label_of(knee.set)} (beyond it TTFT P95 grows faster than {curve.key})")
    labels: dict[str, list[str]] = {}
    for point in result.points:
        for warning in point.warnings:
            labels.setdefault(warning, []).append(label_of(point.set))
    for warning, where in labels.items():
        more = f" and {len(where) - 1} more" if len(where) > 1 else ""
        yield Text(f"warning, {where[0]}{more}: {warning}", style="yellow")


def _row(point: PointResult, hits: bool) -> Iterator[str]:
    if point.figures is None:
        yield "left out" if point.problems else "not run"
        return
    total = point.figures.total
    yield _plus_minus(total.answered_per_s, number)
    yield f"{percent(total.goodput_ratio.value)}"
    for estimate in (total.ttft_s.p50, total.ttft_s.p95, total.tpot_s.p95, total.e2e_s.p95):
        yield _plus_minus(estimate, duration)
    busy = [each.utilisation_ratio.value for each in point.engines.values()]
    yield percent(sum(busy) / len(busy)) if busy else "-"
    if hits:
        found = [v for each in point.engines.values() if not isnan(v := each.prefix_hit_ratio.value)]
        yield percent(sum(found) / len(found)) if found else "-"


def _table(title: str = "", caption: str = "") -> Table:
    return Table(
        title=title or None,
        caption=caption or None,
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )


# -- words ----------------------------------------------------------------------------------------


def _plus_minus(estimate: Estimate, shown: Callable[[float], str]) -> str:
    """The figure and half of its interval, both in its unit."""
    if isnan(estimate.low):
        return shown(estimate.value)
    if isinf(estimate.high) or isinf(estimate.low):
        return f"{shown(estimate.value)} {between(estimate, shown)}"
    return f"{shown(estimate.value)} ±{shown((estimate.high - estimate.low) / 2)}"


def _judged(value_s: float, budget_s: float | None) -> Text:
    """Red above its budget."""
    return Text(duration(value_s), style="red" if budget_s is not None and value_s > budget_s else "")


def _shown(text: str) -> str:
    """A name of the file, as it stands: neither markup nor a terminal's commands."""
    return escape(printable(text))
