"""What do the figures of a trace say, to people and to programs?"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from tidegate.core.records import Distribution
from tidegate.core.text import printable
from tidegate.core.units import format_number, format_ratio, format_span
from tidegate.workload.statistics.logs import ArrivalFigures, LogStatistics
from tidegate.workload.statistics.pools import PoolStatistics
from tidegate.workload.statistics.reuse import Reuse
from tidegate.workload.statistics.sessions import SessionStatistics
from tidegate.workload.traces.formats import Format

MOST_MODELS = 5
"""Shown; JSON has all."""

Show = Callable[[float], str]


class TraceReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A trace in figures: of a log, of sessions, or of a pool of clients, whichever it is."""

    trace: str
    form: Format
    log: LogStatistics | None = None
    sessions: SessionStatistics | None = None
    pool: PoolStatistics | None = None


def as_table(report: TraceReport) -> RenderableType:
    """The report for a terminal."""
    title = f"{escape(printable(report.trace))} ({report.form})"
    if report.log is not None:
        return Group(*_log(title, report.log))
    if report.sessions is not None:
        return Group(*_sessions(title, report.sessions))
    assert report.pool is not None
    return Group(*_pool(title, report.pool))


def _log(title: str, log: LogStatistics) -> Iterable[RenderableType]:
    lengths: list[tuple[str, Distribution, Show]] = [
        ("prompt tokens", log.prompt_tokens, format_number),
        ("output tokens", log.output_tokens, format_number),
    ]
    if log.sessions is not None:
        lengths += [
            ("turns a session", log.sessions.turns, format_number),
            ("gap in a session", log.sessions.gap_s, format_span),
        ]
        if log.sessions.think_s.count:
            lengths.append(("think time", log.sessions.think_s, format_span))
    yield _spreads(title, lengths)
    grid = _grid()
    grid.add_row("requests", f"{log.requests:,}")
    if log.arrivals is not None:
        _add_arrivals(grid, log.arrivals, log.requests)
    grid.add_row("correlation", f"{format_number(log.length_correlation)} of prompt and output tokens")
    if log.empty_outputs:
        grid.add_row("failures", f"{log.empty_outputs:,} with 0 output tokens")
    if log.repeated_rows:
        grid.add_row("repeated", f"{log.repeated_rows:,} rows are equal to the row above")
    if log.sessions is not None:
        found = log.sessions
        grid.add_row("sessions", f"{found.sessions:,} of {found.requests:,} requests")
    if log.reuse is not None:
        _add_reuse(grid, log.reuse)
    for name, requests in list(log.models.items())[:MOST_MODELS]:
        grid.add_row("model", f"{escape(printable(name))}: {format_ratio(requests / log.requests)}")
    yield grid


def _add_arrivals(grid: Table, arrivals: ArrivalFigures, requests: int) -> None:
    grid.add_row("span", format_span(arrivals.span_s))
    grid.add_row("rate", f"{format_number(arrivals.rate_per_s)} requests/s")
    rounded = f"; times are rounded, {arrivals.instants:,} differ" if arrivals.instants < requests / 2 else ""
    grid.add_row("gap CV", f"{format_number(arrivals.gap_cv)}{rounded}")
    counts = [f"{format_number(each.dispersion)} in {span_s} s" for span_s, each in arrivals.counts.items()]
    grid.add_row("variance/mean", f"{', '.join(counts)}, of counts in whole windows; 1 is Poisson")
    rest = [format_number(each.dispersion) for each in arrivals.counts_with_rest.values()]
    grid.add_row("", f"{', '.join(rest)} with the last window, in which the trace ends")
    minute = arrivals.counts[60]
    peak = format_number(minute.peak_ratio)
    grid.add_row("busiest minute", f"{peak} x the mean of {minute.windows} minutes")


def _add_reuse(grid: Table, reuse: Reuse) -> None:
    blocks, distinct = (
        f"{reuse.blocks:,} of {reuse.block_tokens} tokens",
        f"{reuse.distinct_blocks:,} distinct",
    )
    grid.add_row("blocks", f"{blocks}, {distinct}")
    found, tokens = format_ratio(reuse.found_blocks_ratio), format_ratio(reuse.found_tokens_ratio)
    grid.add_row("reuse", f"{found} of blocks, {tokens} of tokens, in an unlimited cache")
    some, more = format_ratio(reuse.requests_found_ratio), format_ratio(reuse.requests_found_more_ratio)
    grid.add_row("", f"{some} of requests find a block, {more} more than one")


def _sessions(title: str, found: SessionStatistics) -> Iterable[RenderableType]:
    yield _spreads(
        title,
        [
            ("prompt tokens", found.prompt_tokens, format_number),
            ("of them new", found.new_tokens, format_number),
            ("output tokens", found.output_tokens, format_number),
            ("requests a session", found.turns, format_number),
            ("session", found.span_s, format_span),
            ("gap", found.gap_s, format_span),
            ("think time", found.think_s, format_span),
            ("answer", found.took_s, format_span),
            ("TTFT", found.ttft_s, format_span),
        ],
    )
    grid = _grid()
    grid.add_row("sessions", f"{found.sessions:,}, {found.requests:,} requests; no common clock")
    grid.add_row("sub-agents", f"{found.agents:,} in {found.sessions_with_agents:,} sessions")
    median, high = format_number(found.gap_cv.p50), format_number(found.gap_cv.p95)
    grid.add_row("gap CV", f"P50 {median}, P95 {high}, by session")
    tools, system = format_number(found.tool_tokens), format_number(found.system_tokens)
    grid.add_row("head tokens", f"{tools} of tools, {system} of system prompt, on average")
    _add_reuse(grid, found.reuse)
    own = found.found_blocks_ratio
    spread = f"P5 {format_ratio(own.p5)}, P50 {format_ratio(own.p50)}, P95 {format_ratio(own.p95)}"
    grid.add_row("reuse by session", f"{spread} of blocks")
    yield grid


def _pool(title: str, pool: PoolStatistics) -> Iterable[RenderableType]:
    rows = [("rate, requests/s", pool.rate_per_s, format_number), ("gap CV", pool.cv, format_number)]
    yield _spreads(title, rows)
    grid = _grid()
    grid.add_row("clients", f"{pool.clients:,}, active in {pool.client_windows:,} windows of 10 minutes")
    empty = f", {pool.empty_windows} of them without traffic" if pool.empty_windows else ""
    grid.add_row("span", f"{format_number(pool.days)} days, {pool.windows:,} windows{empty}")
    grid.add_row("lowest rate", f"{format_number(pool.least_rate_per_s)} requests/s")
    first, ten = format_ratio(pool.top_client_share), format_ratio(pool.top_ten_share)
    grid.add_row("load", f"{first} by the first client, {ten} by ten")
    laws = [f"{name or 'none'} {count:,}" for name, count in pool.patterns.items()]
    grid.add_row("laws of gaps", ", ".join(laws))
    yield grid


def _spreads(title: str, rows: Iterable[tuple[str, Distribution, Show]]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("")
    for name in ("mean", "P50", "P95", "P99", "max"):
        table.add_column(name, justify="right")
    for name, found, shown in rows:
        table.add_row(name, *map(shown, (found.mean, found.p50, found.p95, found.p99, found.max)))
    return table


def _grid() -> Table:
    return Table.grid(padding=(0, 2))
