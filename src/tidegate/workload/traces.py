"""What did real clients ask for, and when?

Reads the form of the Azure LLM inference traces of 2023 and 2024: CSV with a time and two token counts.
The caller opens the file. A trace is refused whole, by line and reason, rather than repaired: rows that
were silently dropped would change the very burstiness that it is replayed for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from math import inf

import msgspec

from tidegate.core.errors import ConfigurationError

TIME, PROMPT, OUTPUT = COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


class TraceRow(msgspec.Struct, frozen=True):
    """One request of a trace: seconds since the first row, and its tokens, each at least 0."""

    arrived_s: float
    prompt_tokens: int
    output_tokens: int


def read_trace(lines: Iterable[str | bytes], name: str = "trace") -> Iterator[TraceRow]:
    """Rows of a trace, in order of arrival.

    Columns are found by name, others are ignored, empty lines too. Raises ConfigurationError, which says
    `name`, the line and what is wrong with it, once the faulty line is reached.
    """
    numbered = _cells_by_line(lines)
    line, header = next(numbered, (1, []))
    if not header:
        raise ConfigurationError([f"{name}: is empty; expected a header with {', '.join(COLUMNS)}"])
    missing = [column for column in COLUMNS if column not in header]
    if missing:
        there = ", ".join(map(ascii, header))[:200]
        raise ConfigurationError([f"{name}, line {line}: no column {', '.join(missing)} among {there}"])
    places = [header.index(column) for column in COLUMNS]

    started: datetime | None = None
    last_s = 0.0
    for line, cells in numbered:
        try:
            _check_width(cells, len(header))
            at, prompt, output = (cells[place] for place in places)
            arrived = datetime.fromisoformat(at)
            started = started or arrived
            row = TraceRow(
                (arrived - started).total_seconds(), _tokens(PROMPT, prompt), _tokens(OUTPUT, output)
            )
            _check_order(row.arrived_s, last_s)
        except (ValueError, TypeError) as error:  # TypeError: times with and without a zone
            raise ConfigurationError([f"{name}, line {line}: {error}"]) from None
        last_s = row.arrived_s
        yield row
    if started is None:
        raise ConfigurationError([f"{name}: has a header, but no rows"])


def windowed(rows: Iterable[TraceRow], from_s: float = 0.0, for_s: float = inf) -> Iterator[TraceRow]:
    """Rows that arrived in `for_s` seconds from `from_s` on, with that instant as the new zero."""
    for row in rows:
        if row.arrived_s >= from_s + for_s:
            return
        if row.arrived_s >= from_s:
            yield TraceRow(row.arrived_s - from_s, row.prompt_tokens, row.output_tokens)


def sped_up(rows: Iterable[TraceRow], time_scale: float) -> Iterator[TraceRow]:
    """The same rows `time_scale` times as fast: 2 doubles the rate, and leaves the tokens alone."""
    if not 0 < time_scale < inf:
        raise ConfigurationError([f"a time scale is above 0, not {time_scale:g}"])
    for row in rows:
        yield TraceRow(row.arrived_s / time_scale, row.prompt_tokens, row.output_tokens)


def _cells_by_line(lines: Iterable[str | bytes]) -> Iterator[tuple[int, list[str]]]:
    """Line numbers from 1 and cells; the format quotes nothing."""
    for number, line in enumerate(lines, 1):
        text = line if isinstance(line, str) else line.decode("utf-8", "replace")
        stripped = text.removeprefix("\ufeff").strip()
        if stripped:
            yield number, [cell.strip() for cell in stripped.split(",")]


def _check_width(cells: Sequence[str], width: int) -> None:
    if len(cells) != width:
        raise ValueError(f"{len(cells)} columns where the header has {width}")


def _tokens(column: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{column} is {text!r}, not a whole number of tokens from 0")
    return int(text)


def _check_order(arrived_s: float, last_s: float) -> None:
    if arrived_s < last_s:
        raise ValueError(f"arrived {last_s - arrived_s:g} s before the line above it")
