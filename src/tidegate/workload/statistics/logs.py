"""What does a log of requests look like: rate, burstiness, lengths, reuse?"""

from __future__ import annotations

from collections.abc import Iterable
from math import nan

import msgspec

from tidegate.core.records import Distribution
from tidegate.workload.statistics.counting import Moments, Tally, WindowCounter, Windows
from tidegate.workload.statistics.reuse import Reuse, UnlimitedCache
from tidegate.workload.traces.rows import TraceRow

WINDOWS_S = (1, 10, 60)


class ArrivalFigures(msgspec.Struct, frozen=True, kw_only=True):
    """When requests came."""

    span_s: float
    """From the first to the last."""
    rate_per_s: float
    """Requests over the span."""
    gap_cv: float
    """Coefficient of variation of the gaps: 1 for Poisson."""
    instants: int
    """Distinct ones. Far fewer than requests if a trace rounds its times: then its `gap_cv` says little."""
    counts: dict[int, Windows]
    """By length of the window in seconds, of whole windows."""
    counts_with_rest: dict[int, Windows]
    """The same with the last window, in which the trace ends."""


class SessionFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Conversations of a log, as far as it tells."""

    sessions: int
    requests: int
    """That belong to one."""
    turns: Distribution
    """Requests of a session."""
    gap_s: Distribution
    """Between two arrivals of the same session: answer and thought together."""
    think_s: Distribution
    """From the end of an answer to the next arrival, where the trace tells how long answers took."""


class LogStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A log in figures. JSON has null where there is nothing to measure."""

    requests: int
    arrivals: ArrivalFigures | None
    """None for a list of lengths without times."""
    prompt_tokens: Distribution
    output_tokens: Distribution
    length_correlation: float
    """Of prompt and output tokens, -1..1."""
    empty_outputs: int
    """Rows with 0 output tokens: failures, in most traces."""
    repeated_rows: int
    """Rows equal to the row above in all that is recorded; many: was the file put together?"""
    reuse: Reuse | None
    sessions: SessionFigures | None
    models: dict[str, int]
    """Requests by the name that the trace gives the model, the most frequent first."""


def statistics_of(rows: Iterable[TraceRow], *, timed: bool = True) -> LogStatistics:
    """Figures of a log in one pass, in memory for its distinct lengths, blocks and sessions."""
    count = _Count()
    for row in rows:
        count.add(row)
    return count.statistics(timed)


class _Count:
    """What is known of a log so far."""

    def __init__(self) -> None:
        self._prompts, self._outputs, self._lengths, self._gaps = Tally(), Tally(), Moments(), Moments()
        self._windows = [WindowCounter(window_s) for window_s in WINDOWS_S]
        self._last: TraceRow | None = None
        self._instants = self._empty = self._repeated = 0
        self._cache: UnlimitedCache | None = None
        self._sessions: dict[int, tuple[int, float, float | None]] = {}
        """Turns so far, the instant of the last, and how long its answer took."""
        self._session_gaps_s: list[float] = []
        self._thoughts_s: list[float] = []
        self._models: dict[str, int] = {}

    def add(self, row: TraceRow) -> None:
        self._prompts.add(row.prompt_tokens)
        self._outputs.add(row.output_tokens)
        self._lengths.add(row.prompt_tokens, row.output_tokens)
        self._empty += row.output_tokens == 0
        self._arrived(row)
        if row.prefix_block_tokens:
            if self._cache is None:
                self._cache = UnlimitedCache(row.prefix_block_tokens)
            self._cache.add(row.prompt_tokens, [row.prefix])
        if row.session is not None:
            turns, last_s, took_s = self._sessions.get(row.session, (0, nan, None))
            if turns:
                self._session_gaps_s.append(row.arrived_s - last_s)
            if took_s is not None:
                self._thoughts_s.append(max(0.0, row.arrived_s - last_s - took_s))
            self._sessions[row.session] = (turns + 1, row.arrived_s, row.took_s)
        if row.model:
            self._models[row.model] = self._models.get(row.model, 0) + 1

    def _arrived(self, row: TraceRow) -> None:
        for window in self._windows:
            window.add(row.arrived_s)
        if self._last is None:
            self._instants = 1
        else:
            self._gaps.add(row.arrived_s - self._last.arrived_s)
            self._instants += row.arrived_s > self._last.arrived_s
            self._repeated += row == self._last
        self._last = row

    def statistics(self, timed: bool) -> LogStatistics:
        prompts = self._prompts.distribution()
        return LogStatistics(
            requests=prompts.count,
            arrivals=self._arrivals(prompts.count) if timed else None,
            prompt_tokens=prompts,
            output_tokens=self._outputs.distribution(),
            length_correlation=self._lengths.correlation,
            empty_outputs=self._empty,
            repeated_rows=self._repeated if timed else 0,
            reuse=self._cache.reuse() if self._cache else None,
            sessions=self._conversations() if self._sessions else None,
            models=dict(sorted(self._models.items(), key=lambda item: (-item[1], item[0]))),
        )

    def _arrivals(self, requests: int) -> ArrivalFigures:
        span_s = self._last.arrived_s if self._last else 0.0
        return ArrivalFigures(
            span_s=span_s,
            rate_per_s=requests / span_s if span_s else nan,
            gap_cv=self._gaps.cv,
            instants=self._instants,
            counts={window_s: each.whole() for window_s, each in zip(WINDOWS_S, self._windows, strict=True)},
            counts_with_rest={
                window_s: each.with_rest() for window_s, each in zip(WINDOWS_S, self._windows, strict=True)
            },
        )

    def _conversations(self) -> SessionFigures:
        turns = [turns for turns, _, _ in self._sessions.values()]
        return SessionFigures(
            sessions=len(turns),
            requests=sum(turns),
            turns=Distribution.of(turns),
            gap_s=Distribution.of(self._session_gaps_s),
            think_s=Distribution.of(self._thoughts_s),
        )
