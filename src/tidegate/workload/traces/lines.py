"""How are the lines of a trace read, and what is said about one that is wrong?

The caller opens the file. A trace is refused whole, by line and reason, rather than repaired: rows that were
silently dropped would change the very burstiness that it is replayed for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from operator import itemgetter
from typing import Annotated, TypeVar

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.workload.traces.rows import TraceRow

Lines = Iterable[str | bytes]
Object = TypeVar("Object")
Count = Annotated[int, msgspec.Meta(ge=0)]
"""Of a JSON line: tokens, an id, a turn."""
Seconds = Annotated[float, msgspec.Meta(ge=0)]

_SHOWN = 200
"""Characters of a header that a message repeats."""


def text_of(line: str | bytes) -> str:
    """A line without its end and without a byte order mark. Raises ValueError if it is not UTF-8."""
    try:
        text = line if isinstance(line, str) else line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8; save the file as UTF-8") from None
    return text.removeprefix("\ufeff").strip()


def header_of(text: str) -> list[str]:
    """The names in the first line of a CSV file."""
    return [cell.strip() for cell in text.split(",")]


def csv_cells(
    lines: Lines, name: str, columns: Sequence[str], optional: Sequence[str] = ()
) -> Iterator[tuple[int, Sequence[str]]]:
    """Line numbers from 1, and the cells of `columns` and `optional` ones; the form quotes nothing.

    Columns are found by name, others are ignored, empty lines too; an optional one that is not there is an
    empty cell. Raises ConfigurationError, which says `name`, the line and what is wrong with it, once it is
    reached.
    """
    pick: Callable[[list[str]], Sequence[str]] | None = None
    width, rows = 0, 0
    for number, line in enumerate(lines, 1):
        try:
            text = text_of(line)
            if not text:
                continue
            cells = text.split(",")
            if pick is None:
                header = header_of(text)
                pick, width = _picker(header, columns, optional), len(header)
                continue
            if len(cells) != width:
                raise ValueError(f"{len(cells)} columns where the header has {width}")
        except ValueError as error:
            raise ConfigurationError([f"{name}, line {number}: {error}"]) from None
        rows += 1
        yield number, pick(cells)
    if pick is None:
        raise ConfigurationError([f"{name}: is empty; expected a header with {', '.join(columns)}"])
    if not rows:
        raise ConfigurationError([f"{name}: has a header, but no rows"])


def in_order(
    rows: Iterable[tuple[int, Object]], name: str, row_of: Callable[[Object], TraceRow]
) -> Iterator[TraceRow]:
    """Rows made of what stands on numbered lines, if each arrives no earlier than the one before.

    `row_of` raises ValueError or TypeError for what is no row. Raises ConfigurationError, which says the
    line.
    """
    last_s = -inf
    for number, found in rows:
        try:
            row = row_of(found)
            if row.arrived_s < last_s:
                late = f"arrived {last_s - row.arrived_s:g} s before the line above it"
                raise ValueError(f"{late}; sort the lines by time")
        except (ValueError, TypeError) as error:  # TypeError: times with and without a zone
            raise ConfigurationError([f"{name}, line {number}: {error}"]) from None
        last_s = row.arrived_s
        yield row


def json_objects(lines: Lines, name: str, kind: type[Object]) -> Iterator[tuple[int, Object]]:
    """Line numbers from 1 and what stands there; fields that `kind` has not are ignored, empty lines too.

    Raises ConfigurationError, which says `name`, the line, the field and what is wrong with it.
    """
    decode = msgspec.json.Decoder(kind).decode
    empty = True
    for number, line in enumerate(lines, 1):
        try:
            text = text_of(line)
            if not text:
                continue
            found = decode(text)
        except (msgspec.MsgspecError, ValueError) as error:
            raise ConfigurationError([f"{name}, line {number}: {error}"]) from None
        empty = False
        yield number, found
    if empty:
        raise ConfigurationError([f"{name}: is empty; expected one JSON object a line"])


def tokens(column: str, text: str) -> int:
    """A count of tokens. Raises ValueError, which says the column, for what is no whole number from 0."""
    if not (text.isascii() and text.isdecimal()):
        text = text.strip()
        if not (text.isascii() and text.isdecimal()):
            raise ValueError(f"{column} is {text!r}, not a whole number of tokens from 0")
    return int(text)


def seconds(column: str, text: str) -> float:
    """An instant, at least 0. Raises ValueError, which says the column."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < inf:
        raise ValueError(f"{column} is {text.strip()!r}, not a number of seconds from 0")
    return found


def block_ranges(text: str, separator: str) -> tuple[range, ...]:
    """The ids that `1-244,260` names, range by range. Raises ValueError for what is none."""
    ranges: list[range] = []
    for part in text.split(separator) if text else ():
        first, dash, last = part.partition("-")
        if not (first.isascii() and first.isdecimal() and (last if dash else first).isdecimal()):
            raise ValueError(f"{part!r} is no block id and no range of them, as in 1-244")
        ranges.append(range(int(first), int(last if dash else first) + 1))
        if not ranges[-1]:
            raise ValueError(f"{part!r} is a range that ends before it begins")
    return tuple(ranges)


def ids_in(ranges: Iterable[range]) -> int:
    """How many ids they have, however many: `len` has an end, and a typing error in a file may lie beyond."""
    return sum(each.stop - each.start for each in ranges)


def check_blocks(blocks: int, prompt_tokens: int, block_tokens: int) -> None:
    """Raises ValueError unless a prompt has a block id for each block, or for each full one."""
    if blocks not in (prompt_tokens // block_tokens, -(-prompt_tokens // block_tokens)):
        problem = f"{blocks} block ids for a prompt of {prompt_tokens} tokens"
        raise ValueError(
            f"{problem} in blocks of {block_tokens}; one for each, with or without the last part"
        )


def _picker(
    header: Sequence[str], columns: Sequence[str], optional: Sequence[str]
) -> Callable[[list[str]], Sequence[str]]:
    missing = [column for column in columns if column not in header]
    if missing:
        there = ", ".join(map(ascii, header))[:_SHOWN]
        raise ValueError(f"no column {', '.join(missing)} among {there}")
    absent = [column for column in optional if column not in header]
    # One empty cell more stands for all that are absent.
    pick = itemgetter(
        *(len(header) if column in absent else header.index(column) for column in (*columns, *optional))
    )
    return (lambda cells: pick([*cells, ""])) if absent else pick
