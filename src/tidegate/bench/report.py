"""What does a run say, to people and to programs?

One `Report` is made from the records; the table and the JSON show the same figures. Latencies are of
successful requests and count from the planned instant; rates are per second from the first planned
instant to the last end, the drain included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import nan

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tidegate.bench.load import LoadRecord
from tidegate.core.records import Budgets, Distribution, Summary, summarise
from tidegate.core.text import printable
from tidegate.core.units import format_duration, format_latency, format_number, format_ratio

LATE_S = 0.010
"""Sends that are later than this at P99 put the generator's own slowness into the figures."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """All requests, or those of one tenant. JSON has null where there is nothing to measure."""

    requests: int
    ok: int
    short: int
    """Successes with fewer output tokens than were asked for."""
    requests_per_s: float
    """Successful ones."""
    prompt_tokens_per_s: float
    output_tokens_per_s: float
    goodput_ratio: float
    """Requests that held every budget, over all requests."""
    goodput_per_s: float
    ttft_s: Distribution
    tpot_s: Distribution
    e2e_s: Distribution
    errors: dict[str, int]
    """By kind, the most frequent first."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A run in figures."""

    url: str
    model: str
    seed: int
    stream: bool
    budgets: Budgets
    span_s: float
    offered_per_s: float
    """Requests planned per second, between the first and the last."""
    lag_s: Distribution
    """How late the generator sent."""
    total: Figures
    tenants: dict[str, Figures]
    error_details: dict[str, str]
    """An example of what was said, by kind of error."""

    @property
    def late(self) -> bool:
        """True if the generator itself was too slow for its figures to be the server's."""
        return self.lag_s.p99 > LATE_S


def report_of(
    records: Sequence[LoadRecord],
    budgets: Budgets,
    *,
    url: str,
    model: str,
    seed: int = 0,
    stream: bool = True,
) -> Report:
    """Summarise a run."""
    started_at = min((record.arrived_at for record in records), default=nan)
    span_s = max((record.ended_at for record in records), default=nan) - started_at
    names = sorted({record.tenant for record in records})
    by_tenant = {name: [r for r in records if r.tenant == name] for name in names}
    return Report(
        url=url,
        model=model,
        seed=seed,
        stream=stream,
        budgets=budgets,
        span_s=span_s,
        offered_per_s=_offered_per_s([record.arrived_at for record in records]),
        lag_s=Distribution.of(r.queued_s for r in records if r.dispatched_at is not None),
        total=_figures(records, budgets, span_s),
        tenants={name: _figures(own, budgets, span_s) for name, own in by_tenant.items()},
        error_details={r.error: r.detail for r in reversed(records) if r.error},
    )


def as_table(report: Report) -> RenderableType:
    """The report for a terminal."""
    parts: list[RenderableType] = [_latencies(report), _counts(report)]
    if len(report.tenants) > 1:
        parts.append(_tenants(report))
    if report.total.errors:
        parts.append(_errors(report))
    if report.late:
        late = format_latency(report.lag_s.p99)
        warning = f"The generator sent {late} late at P99: these are not the server's figures alone."
        parts.append(Text(f"{warning} Lower the rate, or give it a core of its own.", style="bold yellow"))
    return Group(*parts)


def _figures(records: Sequence[LoadRecord], budgets: Budgets, span_s: float) -> Figures:
    summary: Summary = summarise(records, budgets, span_s)
    return Figures(
        requests=summary.requests,
        ok=summary.ok,
        short=sum(record.short for record in records),
        requests_per_s=_per_s(summary.ok, span_s),
        prompt_tokens_per_s=_per_s(summary.prompt_tokens, span_s),
        output_tokens_per_s=_per_s(summary.output_tokens, span_s),
        goodput_ratio=summary.goodput_ratio,
        goodput_per_s=summary.goodput_per_s,
        ttft_s=summary.ttft_s,
        tpot_s=summary.tpot_s,
        e2e_s=summary.e2e_s,
        errors=_count(record.error for record in records if record.error),
    )


def _count(labels: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for label in labels:
        counts[label] = counts.get(label, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _offered_per_s(arrivals: Sequence[float]) -> float:
    if len(arrivals) < 2:
        return nan
    return _per_s(len(arrivals) - 1, max(arrivals) - min(arrivals))


def _per_s(amount: float, span_s: float) -> float:
    return amount / span_s if span_s > 0 else nan


# -- for the terminal -----------------------------------------------------------------------------


def _latencies(report: Report) -> Table:
    table = Table(
        title=f"{_shown(report.model)} at {_shown(report.url)}", title_justify="left", box=SIMPLE_HEAD
    )
    table.add_column("")
    for name in ("mean", "P50", "P95", "P99", "max", "budget"):
        table.add_column(name, justify="right")
    total, budgets = report.total, report.budgets
    rows = [("E2E", total.e2e_s, budgets.e2e_s)]
    if report.stream:
        rows = [("TTFT", total.ttft_s, budgets.ttft_s), ("TPOT", total.tpot_s, budgets.tpot_s), *rows]
    for name, found, budget_s in rows:
        table.add_row(
            name,
            *(format_latency(value) for value in (found.mean, found.p50)),
            *(_judged(value, budget_s) for value in (found.p95, found.p99)),
            format_latency(found.max),
            format_latency(nan if budget_s is None else budget_s),
        )
    return table


def _counts(report: Report) -> Table:
    total = report.total
    grid = Table.grid(padding=(0, 2))
    failed = total.requests - total.ok
    offered, answered = format_number(report.offered_per_s), format_number(total.requests_per_s)
    goodput = format_number(total.goodput_per_s)
    output, prompt = format_number(total.output_tokens_per_s), format_number(total.prompt_tokens_per_s)
    grid.add_row("requests", f"{total.requests} planned, {total.ok} ok, {failed} failed")
    grid.add_row("goodput", f"{format_ratio(total.goodput_ratio)}, {goodput} requests/s")
    grid.add_row("rate", f"{offered} requests/s offered, {answered} answered")
    grid.add_row("tokens", f"{output} output tokens/s, {prompt} prompt tokens/s")
    grid.add_row("span", f"{format_duration(report.span_s, 3)} with the drain")
    if total.short:
        grid.add_row("short", f"{total.short} answers had fewer tokens than were asked for")
    grid.add_row("lag", f"{format_latency(report.lag_s.p99)} at P99, the generator's own")
    grid.add_row("seed", f"{report.seed}")
    return grid


def _tenants(report: Report) -> Table:
    table = Table(title="By tenant", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("tenant")
    for name in ("planned", "ok", "goodput", "TTFT P95", "TPOT P95", "E2E P95", "tokens/s"):
        table.add_column(name, justify="right")
    for name, own in report.tenants.items():
        table.add_row(
            _shown(name),
            f"{own.requests}",
            f"{own.ok}",
            format_ratio(own.goodput_ratio),
            *(format_latency(found.p95) for found in (own.ttft_s, own.tpot_s, own.e2e_s)),
            format_number(own.output_tokens_per_s),
        )
    return table


def _errors(report: Report) -> Table:
    table = Table(title="Errors", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("kind")
    table.add_column("count", justify="right")
    table.add_column("for example", overflow="fold")
    for kind, count in report.total.errors.items():
        table.add_row(_shown(kind), f"{count}", _shown(report.error_details.get(kind, "")))
    return table


def _shown(text: str) -> str:
    """What a server or a user said, as it stands: neither markup nor a terminal's commands."""
    return escape(printable(text))


def _judged(value_s: float, budget_s: float | None) -> Text:
    """Red above its budget."""
    return Text(format_latency(value_s), style="red" if budget_s is not None and value_s > budget_s else "")
