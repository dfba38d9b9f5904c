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
from tidegate.core.units import format_latency, format_number, format_ratio, format_span
from tidegate.simulate.engines import PoolFigures
from tidegate.simulate.figures import Group
from tidegate.simulate.intervals import Estimate, Method, Spread
from tidegate.simulate.knee import curves_of
from tidegate.simulate.results import PointResult, Result, latencies
from tidegate.simulate.sweeps import label_of

SHOWN_TENANTS = 20
"""The largest; JSON has more."""
FIGURES = ("mean", "p50", "p95", "p99")
LATENCIES = ("TTFT\nP95", "TPOT\nP95", "E2E\nP95")
WIDE = 9
"""Columns above which they stand closer."""
LOPSIDED = 2.0
"""An interval that reaches so much farther up than down is told by its upper end, where only one has room."""
LONG_NAME = 10
"""Characters of a setting or value above which it stands on two lines."""


def as_table(result: Result) -> RenderableType:
    """One point in full, or a row for each of several."""
    if len(result.points) == 1:
        return Parts(*_one(result.points[0]))
    return Parts(*_many(result))


def between(estimate: Estimate, shown: Callable[[float], str]) -> str:
    """Its interval, from 0 on: `21.5..21.9ms`, or `>21.5ms` where it has no upper end."""
    low = shown(max(0.0, estimate.low))
    if estimate.high == inf:
        return f">{low}"
    high = shown(estimate.high)
    unit = low.lstrip("0123456789.,")
    return f"{low.removesuffix(unit)}..{high}" if high.lstrip("0123456789.,") == unit else f"{low}..{high}"


def plus_minus(estimate: Estimate, shown: Callable[[float], str]) -> str:
    """The figure, and below it half of its interval, or that end of it which says more."""
    value = shown(estimate.value)
    if isnan(estimate.low):
        return value
    if isinf(estimate.high) or isinf(estimate.low):
        return f"{value}\n{between(estimate, shown)}"
    if estimate.high - estimate.value > LOPSIDED * (estimate.value - estimate.low):
        return f"{value}\n<{shown(estimate.high)}"
    return f"{value}\n±{shown((estimate.high - estimate.low) / 2)}"


def interval_words(spread: Spread) -> str:
    """How the intervals of a spread were found."""
    if spread.method is Method.SEEDS:
        return f"95 % intervals: Student's t over {spread.parts} seeds"
    if spread.method is Method.SPECTRUM:
        return f"95 % intervals: within one run, from its {spread.parts} slowest waves"
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
        yield from _tenants(figures.tenants)
    if point.engines:
        yield _engines(point.engines)
    for warning in point.warnings:
        yield Text(f"warning: {warning}", style="yellow")
    for note in point.notes:
        yield Text(f"note: {note}", style="dim")


def _tenants(tenants: dict[str, Group]) -> Iterator[RenderableType]:
    largest = sorted(tenants, key=lambda name: -tenants[name].requests)[:SHOWN_TENANTS]
    yield _groups("tenant", {name: tenants[name] for name in sorted(largest)})
    if len(largest) < len(tenants):
        yield Text(f"the largest {len(largest)} tenants; --json shows {len(tenants)}", style="dim")


def _latencies(found: list[tuple[str, Spread]]) -> Table:
    _, spread = found[2]
    table = _table("", "mean", "P50", "P95", "P99", "max", caption=interval_words(spread))
    for heading, each in found:
        shown = [_with_interval(getattr(each, name), format_latency) for name in FIGURES]
        table.add_row(heading, *shown, format_latency(each.max))
    return table


def _with_interval(estimate: Estimate, shown: Callable[[float], str]) -> Text:
    text = Text(shown(estimate.value))
    if not isnan(estimate.low):
        text.append(f"\n{between(estimate, shown)}", style="dim")
    return text


def _counts(point: PointResult, total: Group, fairness: Estimate) -> Table:
    grid = Table.grid(padding=(0, 2))
    for name, words in summary(point, total, fairness).items():
        grid.add_row(name, words)
    return grid


def summary(point: PointResult, total: Group, fairness: Estimate) -> dict[str, str]:
    """What came, what became of it, and how long that was measured."""
    failed = total.requests - total.ok
    ratio, rate = total.goodput_ratio, format_number(total.goodput_per_s.value)
    offered, answered = (format_number(each.value) for each in (total.offered_per_s, total.answered_per_s))
    output = format_number(total.output_tokens_per_s.value)
    prompt = format_number(total.prompt_tokens_per_s.value)
    surely = "" if isnan(ratio.low) else f" ({between(ratio, format_ratio)})"
    words = {
        "requests": f"{total.requests:,} measured, {total.ok:,} answered, {failed:,} refused or cut",
        "goodput": f"{format_ratio(ratio.value)}{surely}, {rate} requests/s",
        "rate": f"{offered} requests/s offered, {answered} answered",
        "tokens": f"{output} output tokens/s, {prompt} prompt tokens/s",
        "refusals": ", ".join(f"{count:,} {reason_words(key)}" for key, count in total.reasons.items()),
        "fairness": f"{format_number(fairness.value)} (Jain's index of tenants, 1 is fair)",
        "measured": measured_words(point),
        "of all": conserved_words(point),
    }
    return {name: text for name, text in words.items() if text}


def reason_words(key: str) -> str:
    """A key of `Group.reasons`, as people see it. An engine's 400 has one cause: `Replica.refusal`."""
    if key == "status_400":
        return "engine: too long (400)"
    return key.replace("status_", "engine: status ")


def measured_words(point: PointResult) -> str:
    """How much simulated time the figures are of."""
    warm_up = point.warm_up_s.value
    after = f" after {format_span(warm_up)} of warm-up" if warm_up > 0 else ""
    runs = f", {len(point.seeds)} runs" if len(point.seeds) > 1 else ""
    return f"{format_span(point.measured_s)}{after}{runs}"


def conserved_words(point: PointResult) -> str:
    """What became of all requests; nothing where that is not known, after Ctrl-C."""
    found = point.conservation
    if found is None:
        return ""
    words = ("finished", "broken", "rejected", "evicted", "cancelled", "in_flight")
    parts = [f"{count:,} {word}" for word in words if (count := getattr(found, word))]
    retries = f" ({found.retries:,} retries)" if found.retries else ""
    return f"{found.arrived:,} arrived{retries} = {' + '.join(parts).replace('_', ' ') or '0'}"


def _groups(kind: str, groups: Mapping[str, Group], budgets: Mapping[str, Budgets] | None = None) -> Table:
    table = _table(kind, "asked", "answered", "goodput", *LATENCIES, "of all\ntokens")
    for name, own in groups.items():
        budget = (budgets or {}).get(name, Budgets())
        table.add_row(
            _shown(name),
            f"{own.requests:,}",
            f"{own.ok:,}",
            _with_interval(own.goodput_ratio, format_ratio),
            _judged(own.ttft_s.p95.value, budget.ttft_s),
            _judged(own.tpot_s.p95.value, budget.tpot_s),
            _judged(own.e2e_s.p95.value, budget.e2e_s),
            format_ratio(own.token_share.value),
        )
    return table


def _engines(engines: Mapping[str, PoolFigures]) -> Table:
    table = _table("pool", "replicas", "busy", "batch", "prefix hits", "preemptions")
    for name, own in engines.items():
        table.add_row(
            _shown(name),
            f"{own.replicas}",
            format_ratio(own.utilisation_ratio.value),
            format_number(own.decodes_per_step.value),
            format_ratio(own.prefix_hit_ratio.value),
            format_number(own.preemptions.value),
        )
    return table


# -- a sweep --------------------------------------------------------------------------------------


def _many(result: Result) -> Iterator[RenderableType]:
    keys = list(dict.fromkeys(key for point in result.points for key in point.set))
    told = [point for point in result.points if point.figures is not None]
    hits = any(not isnan(each.prefix_hit_ratio.value) for point in told for each in point.engines.values())
    caption = interval_words(told[0].figures.total.e2e_s) if told and told[0].figures else ""
    headings = ["req/s", "goodput", "TTFT\nP50", *LATENCIES, "refused", *(["hits"] if hits else [])]
    names = [_broken(key.rpartition(".")[2]) for key in keys]
    table = _table(*names, *headings, names=len(names), caption=caption)
    for point in result.points:
        table.add_row(*(_broken(point.set.get(key, "")) for key in keys), *_row(point, hits))
    yield table
    for curve in curves_of(result.points):
        knee = curve.knee
        if knee is not None:
            yield Text(f"knee: {label_of(knee.set)} (beyond it TTFT P95 grows faster than {curve.key})")
    warned = [(point.set, each) for point in result.points for each in point.warnings]
    noted = [(point.set, each) for point in result.points for each in point.notes]
    yield from _where("warning", warned, "yellow")
    yield from _where("note", noted, "dim")


def _where(kind: str, said: list[tuple[dict[str, str], str]], style: str) -> Iterator[Text]:
    """Each once, with the first of the points that it is said of."""
    labels: dict[str, list[str]] = {}
    for values, text in said:
        labels.setdefault(text, []).append(label_of(values))
    for text, where in labels.items():
        more = f" and {len(where) - 1} more" if len(where) > 1 else ""
        yield Text(f"{kind}, {where[0]}{more}: {text}", style=style)


def _row(point: PointResult, hits: bool) -> Iterator[str]:
    if point.figures is None:
        yield "left out" if point.problems else "not run"
        return
    total = point.figures.total
    yield plus_minus(total.answered_per_s, format_number)
    yield f"{format_ratio(total.goodput_ratio.value)}"
    for estimate in (total.ttft_s.p50, total.ttft_s.p95, total.tpot_s.p95, total.e2e_s.p95):
        yield plus_minus(estimate, format_latency)
    yield format_ratio(total.refused_ratio)
    if hits:
        found = [v for each in point.engines.values() if not isnan(v := each.prefix_hit_ratio.value)]
        yield format_ratio(sum(found) / len(found)) if found else "-"


def _table(*headings: str, names: int = 1, caption: str = "") -> Table:
    """Figures stay whole; where they leave too little room, the first `names` columns are folded."""
    table = Table(
        caption=caption or None,
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1 if len(headings) <= WIDE else 0, 0, 0),
        pad_edge=False,
    )
    for place, heading in enumerate(headings):
        if place < names:
            table.add_column(heading, overflow="fold")
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    return table


# -- words ----------------------------------------------------------------------------------------


def _judged(value_s: float, budget_s: float | None) -> Text:
    """Red above its budget."""
    return Text(format_latency(value_s), style="red" if budget_s is not None and value_s > budget_s else "")


def _shown(text: str) -> str:
    """A name of the file, as it stands: neither markup nor a terminal's commands."""
    return escape(printable(text))


def _broken(text: str) -> str:
    """A name of the file on two lines if it is long, apart at its middle underscore."""
    shown = _shown(text)
    places = [place for place, sign in enumerate(shown) if sign == "_"]
    if len(shown) <= LONG_NAME or not places:
        return shown
    middle = min(places, key=lambda place: abs(2 * place - len(shown))) + 1
    return f"{shown[:middle]}\n{shown[middle:]}"
