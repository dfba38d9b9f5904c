"""How long did the steps take in which a whole batch decoded, as its clients saw it?

A token arrives at each client once a step. Between the last client's first token and the first client's last
one the batch is constant, so that a line through the instants of the tokens has the mean step for its slope:
that a single token was late hardly moves it, and a stall spoils one window only.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

import msgspec

from tidegate.bench.load import LoadRecord
from tidegate.calibrate.experiment import Cell
from tidegate.calibrate.points import Point, decoding, prompt_alone

WINDOWS = 3
LEAST_GAPS = 8
"""Of a window."""


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """One answer as it came."""

    record: LoadRecord
    deltas: tuple[tuple[float, int], ...]
    """Instants, and how many deltas had come by then."""

    @property
    def tokens_per_delta(self) -> float:
        """An engine may put several into one."""
        return self.record.output_tokens / self.deltas[-1][1]


def points_of(cell: Cell, streams: Sequence[Stream], budget_tokens: int) -> list[Point]:
    """What a cell shows; nothing if it was not answered whole, or its batch was never complete."""
    if len(streams) < cell.sequences or not all(each.record.ok and each.deltas for each in streams):
        return []
    points = _windows(cell, streams) if cell.steps else []
    if cell.sequences == 1:
        points += _prompt(cell, streams[0].record, budget_tokens)
    return points


def at_once(streams: Sequence[Stream]) -> int:
    """How many answers came at the same time for longest; 1 if none took any time.

    Who waits for a seat gets its first token after another's last. That a client was late for a while, so
    that an answer came in one piece or its end after the next one's beginning, does not count for long.
    """
    changes = [(each.deltas[0][0], 1) for each in streams] + [(each.deltas[-1][0], -1) for each in streams]
    lasted: dict[int, float] = {}
    count = 0
    for (at, change), (until, _) in pairwise(sorted(changes)):
        count += change
        if count > 0:
            lasted[count] = lasted.get(count, 0.0) + until - at
    return max(lasted, key=lambda each: (lasted[each], each)) if any(lasted.values()) else 1


def _prompt(cell: Cell, record: LoadRecord, budget_tokens: int) -> list[Point]:
    """The prompt of a request that had the engine to itself."""
    if record.first_token_at is None or record.dispatched_at is None:
        return []
    if record.cached_tokens >= record.prompt_tokens:
        return []
    return [
        prompt_alone(
            f"a prompt of {cell.prompt_tokens:,}",
            record.first_token_at - record.dispatched_at,
            record.prompt_tokens,
            record.cached_tokens,
            budget_tokens=budget_tokens,
            held_out=cell.held_out,
        )
    ]


def _windows(cell: Cell, streams: Sequence[Stream]) -> list[Point]:
    begin = max(each.deltas[0][0] for each in streams)
    end = min(each.deltas[-1][0] for each in streams)
    steps = min(_gaps(each, begin, end) for each in streams)
    count = min(WINDOWS, int(steps // LEAST_GAPS))
    width = (end - begin) / max(count, 1)
    bounds = [(begin + index * width, begin + (index + 1) * width) for index in range(count)]
    return [point for start, stop in bounds if (point := _window(cell, streams, start, stop)) is not None]


def _window(cell: Cell, streams: Sequence[Stream], start: float, stop: float) -> Point | None:
    step_s, steps, context = [], [], 0.0
    for each in streams:
        inside = [(at, deltas) for at, deltas in each.deltas if start <= at <= stop]
        if len(inside) < 2 or inside[-1][1] == inside[0][1]:
            return None
        first, last = inside[0][1], inside[-1][1]
        steps.append((last - first) * each.tokens_per_delta)
        step_s.append(_slope(inside) / each.tokens_per_delta)
        # The step of the next token attends to all before it: of the first in here, `first`.
        context += each.record.prompt_tokens + (each.tokens_per_delta * (first + last) - 1) / 2
    mean_s, whole = fmean(step_s), fmean(steps)
    if mean_s <= 0:
        return None
    return decoding(
        cell.name,
        mean_s * whole,
        whole,
        sequences=len(streams),
        context_tokens=context,
        held_out=cell.held_out,
    )


def _slope(instants: Sequence[tuple[float, int]]) -> float:
    """Seconds per delta, by least squares."""
    at, count = fmean(at for at, _ in instants), fmean(deltas for _, deltas in instants)
    spread = sum((deltas - count) ** 2 for _, deltas in instants)
    return sum((each - at) * (deltas - count) for each, deltas in instants) / spread


def _gaps(stream: Stream, begin: float, end: float) -> float:
    inside = [deltas for at, deltas in stream.deltas if begin <= at <= end]
    return (inside[-1] - inside[0]) * stream.tokens_per_delta if inside else 0.0
