"""BurstGPT: half a year of one university's ChatGPT and GPT-4, as CSV. Version 2 adds sessions.

Source: github.com/HPMLL/BurstGPT, README. Times are seconds since midnight of the first day, in whole
seconds, so that many rows share one. Rows with 0 response tokens are failures; the files
`*_without_fails_*` have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidegate.workload.traces.lines import Lines, csv_cells, in_order, seconds, tokens
from tidegate.workload.traces.rows import TraceRow

TIME, MODEL, PROMPT, OUTPUT = COLUMNS = ("Timestamp", "Model", "Request tokens", "Response tokens")
SESSION, TOOK = "Session ID", "Elapsed time"


def read_burstgpt(lines: Lines, name: str = "trace") -> Iterator[TraceRow]:
    """Rows of a trace, in order of arrival. Raises ConfigurationError as `csv_cells` and `in_order` do."""
    started_s: float | None = None
    sessions: dict[str, tuple[int, int]] = {}
    """By the trace's name of it: its number, and how many turns it has had."""

    def row_of(cells: Sequence[str]) -> TraceRow:
        nonlocal started_s
        at, model, prompt, output, session, took = cells
        at_s = seconds(TIME, at)
        started_s = at_s if started_s is None else started_s
        number, turn = None, 0
        if session := session.strip():
            number, turn = sessions.get(session, (len(sessions), 0))
            sessions[session] = (number, turn + 1)
        return TraceRow(
            at_s - started_s,
            tokens(PROMPT, prompt),
            tokens(OUTPUT, output),
            model.strip(),
            number,
            turn,
            took_s=_took_s(took),
        )

    return in_order(csv_cells(lines, name, COLUMNS, [SESSION, TOOK]), name, row_of)


def _took_s(text: str) -> float | None:
    """None for what is no time: nobody's load depends on it."""
    try:
        return seconds(TOOK, text) if text else None
    except ValueError:
        return None
