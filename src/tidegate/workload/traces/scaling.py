"""How is a recorded load made shorter, faster, heavier or lighter, and what stays true of it?

| | CV of gaps | variance/mean of counts in windows |
| --- | --- | --- |
| `windowed` | as it was | as it was |
| `sped_up` | as it was | as it was, in windows shorter by the factor |
| `at_rate`, above 1 | towards 1, as of several services together | as it was |
| `at_rate`, below 1 | towards 1, as of a part of the clients | less 1, it is times the factor |

`sped_up` asks what happens if the same day passes faster; conversations speed up too. `at_rate` asks what
happens if more or fewer such clients come: independent ones, as growth brings them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import ceil, inf
from random import Random

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.workload.dice import dice
from tidegate.workload.traces.rows import TraceRow

SHIFT_S = 600.0
"""How far copies are moved against each other: further than bursts reach, less than the hours of a day."""
SESSION_BITS, BLOCK_BITS = 40, 62
"""Copies number theirs as the trace does, under a random mask: two of them meet by rare accident only."""
MOST_ROWS = 10_000_000
"""Of a trace at another rate: it is made as a whole, and a row takes some 200 bytes of memory."""


def part_of(
    rows: Iterable[TraceRow], from_s: float, for_s: float, time_scale: float, step_rng: Random | None = None
) -> list[TraceRow]:
    """The rows from `from_s` on that fill `for_s` seconds when they pass `time_scale` times as fast.

    `from_s` is by the trace's clock, `for_s` by the replay's; `inf` is to the end. With `step_rng`, what
    shares an instant is spread. Raises ConfigurationError for a time scale that is not above 0.
    """
    part = windowed(rows, from_s, for_s * time_scale)
    return list(sped_up(part if step_rng is None else spread(part, step_rng), time_scale))


def windowed(rows: Iterable[TraceRow], from_s: float = 0.0, for_s: float = inf) -> Iterator[TraceRow]:
    """Rows that arrived in `for_s` seconds from `from_s` on, with that instant as the new zero."""
    for row in rows:
        if row.arrived_s >= from_s + for_s:
            return
        if row.arrived_s >= from_s:
            yield _moved(row, row.arrived_s - from_s)


def sped_up(rows: Iterable[TraceRow], time_scale: float) -> Iterator[TraceRow]:
    """The same rows `time_scale` times as fast: 2 doubles the rate, and leaves the tokens alone."""
    if not 0 < time_scale < inf:
        raise ConfigurationError([f"a time scale is above 0, not {time_scale:g}"])
    for row in rows:
        yield _moved(row, row.arrived_s / time_scale)


def _moved(row: TraceRow, arrived_s: float) -> TraceRow:
    return msgspec.structs.replace(row, arrived_s=arrived_s)


def spread(rows: Iterable[TraceRow], rng: Random) -> Iterator[TraceRow]:
    """Rows that share an instant, because a trace rounds its times, spread evenly at random over that step.

    A step lasts until the next instant that the trace has; the last one as long as the one before it. Order
    stays.
    """
    last_step_s = 0.0
    groups = (list(group) for _, group in groupby(rows, key=lambda row: row.arrived_s))
    group = next(groups, [])
    while group:
        following = next(groups, [])
        start_s = group[0].arrived_s
        last_step_s = following[0].arrived_s - start_s if following else last_step_s
        places = sorted(rng.random() for _ in group)
        yield from (
            _moved(row, start_s + place * last_step_s) for row, place in zip(group, places, strict=True)
        )
        group = following


def at_rate(rows: Sequence[TraceRow], factor: float, seed: int) -> list[TraceRow]:
    """`factor` times as many requests in the same time, in order of arrival; 1 changes nothing.

    Each whole copy beyond the first is moved by up to `SHIFT_S`, what is moved past the end coming in at
    the beginning, and has sessions and prefix blocks of its own: it does not find the first one's in a
    cache. Of the rest each session, or where there are none each row, is kept with the probability that is
    left. Raises ConfigurationError for more than `MOST_ROWS`, before it makes any.
    """
    if not 0 < factor < inf:
        raise ConfigurationError([f"a rate's factor is above 0, not {factor:g}"])
    if len(rows) * factor > MOST_ROWS:
        made = f"{factor:g} times the trace's rate makes {len(rows) * factor:,.0f} requests"
        problem = f"{made}, and {MOST_ROWS:,} are the most"
        raise ConfigurationError([f"{problem}; take a shorter part of the trace, or a lower rate"])
    found: list[TraceRow] = []
    for copy in range(ceil(factor)):
        rng = dice(seed, "copy", copy)
        kept = _sampled(rows, factor - copy, rng) if factor - copy < 1 else rows
        found += _copied(kept, _lap_s(rows), rng) if copy else kept
    found.sort(key=lambda row: row.arrived_s)
    return found


def _sampled(rows: Sequence[TraceRow], ratio: float, rng: Random) -> list[TraceRow]:
    sessions: dict[int, bool] = {}
    kept: list[TraceRow] = []
    for row in rows:
        if row.session is None:
            keep = rng.random() < ratio
        elif (known := sessions.get(row.session)) is not None:
            keep = known
        else:
            keep = sessions[row.session] = rng.random() < ratio
        if keep:
            kept.append(row)
    return kept


def _lap_s(rows: Sequence[TraceRow]) -> float:
    """Until the first row would come again: the span and one more mean gap."""
    return rows[-1].arrived_s * len(rows) / (len(rows) - 1) if len(rows) > 1 else 0.0


def _copied(rows: Iterable[TraceRow], lap_s: float, rng: Random) -> Iterator[TraceRow]:
    shift_s = rng.uniform(0.0, min(SHIFT_S, lap_s))
    session_mask, block_mask = rng.getrandbits(SESSION_BITS), rng.getrandbits(BLOCK_BITS)
    for row in rows:
        arrived_s = row.arrived_s + shift_s
        yield msgspec.structs.replace(
            row,
            arrived_s=arrived_s - lap_s if arrived_s >= lap_s else arrived_s,
            session=None if row.session is None else row.session ^ session_mask,
            prefix=tuple(block ^ block_mask for block in row.prefix),
        )
