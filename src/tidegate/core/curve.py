"""How long does one step of an engine take?

A step computes some tokens for every sequence of a batch: one for each that decodes, a chunk of the prompt
for each that does not yet. A `Curve` is a frozen value, so that a configuration, a tape and a file can carry
it.

Between two events a batch only grows: each decode step reads a little more cache than the one before it. Both
curves are linear in that context (the table between two of its columns), so that a run of decode steps has a
closed form; `Run` is it, and `step_s` gives the same seconds step by step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf, isfinite
from typing import TypeVar

import msgspec

from tidegate.core.errors import ConfigurationError

T = TypeVar("T")

UNBOUNDED = 2**62
"""Steps of a run that no breakpoint ends."""

Chunk = tuple[int, int]
"""New prompt tokens computed in this step, and tokens of that sequence already in the cache before."""


class Run(msgspec.Struct, frozen=True, gc=False):
    """The next `steps` decode steps of a constant batch: step k, from 0, takes `first_s + k * growth_s`."""

    first_s: float
    growth_s: float
    steps: int


class Linear(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="linear"):
    """`a + b x sequences + c x context + d x new tokens + e x (prefix after² - prefix before²)`.

    The context term is the reading of the KV cache, the quadratic one the attention of prompts; without
    both no measured engine is met: alone, a + b x batch left R² at 0.53 to 0.92 where this form reached 0.97
    to 0.99 (vLLM and llama.cpp on CPUs; own measurements).
    """

    a_s: float
    b_s_per_sequence: float = 0.0
    c_s_per_context_token: float = 0.0
    """Per token that a decoding sequence attends to."""
    d_s_per_prefill_token: float = 0.0
    """Per prompt token computed in the step, and per drafted token verified."""
    e_s_per_prefill_token_squared: float = 0.0

    def __post_init__(self) -> None:
        """ConfigurationError for a step that would take no time, less than none, or no number."""
        constants = (
            self.b_s_per_sequence,
            self.c_s_per_context_token,
            self.d_s_per_prefill_token,
            self.e_s_per_prefill_token_squared,
        )
        if not (self.a_s > 0 and isfinite(self.a_s) and all(c >= 0 and isfinite(c) for c in constants)):
            raise ConfigurationError(["curve: a_s must be above 0, the others 0 or more, and all finite"])

    def step_s(
        self, decodes: int, context_tokens: float, chunks: Sequence[Chunk] = (), draft_tokens: int = 0
    ) -> float:
        """Seconds of a step: `decodes` sequences that attend to `context_tokens` in sum, and `chunks`."""
        seconds = (
            self.a_s
            + self.b_s_per_sequence * (decodes + len(chunks))
            + self.c_s_per_context_token * context_tokens
        )
        if draft_tokens:
            seconds += self.d_s_per_prefill_token * draft_tokens
        for new, before in chunks:
            seconds += (
                self.d_s_per_prefill_token * new
                + self.e_s_per_prefill_token_squared * new * (new + 2 * before)  # (before + new)² - before²
            )
        return seconds

    def decode_run(
        self,
        decodes: int,
        context_tokens: float,
        growth_tokens: float | None = None,
        draft_tokens: int = 0,
    ) -> Run:
        """The coming decode steps. `context_tokens` is of the first of them, and grows by `growth_tokens`.

        By default each sequence grows by one token a step. `draft_tokens` are verified in each step.
        """
        growth = decodes if growth_tokens is None else growth_tokens
        first_s = (
            self.a_s + self.b_s_per_sequence * decodes + self.c_s_per_context_token * context_tokens
        ) + self.d_s_per_prefill_token * draft_tokens
        return Run(first_s, self.c_s_per_context_token * growth, UNBOUNDED)


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measured seconds at ascending points: straight between, level before the first, on after the last."""

    points: tuple[float, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        """ConfigurationError unless each of one or more ascending points has its seconds."""
        _check("points", self.points, self.seconds)

    def __call__(self, point: float) -> float:
        """Seconds at `point`."""
        return _at(self.seconds, *_place(self.points, point))


class Grid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measured seconds by row and column: bilinear between, level before the first, on after the last."""

    rows: tuple[float, ...]
    columns: tuple[float, ...]
    seconds: tuple[tuple[float, ...], ...]
    """`seconds[i][j]` at `rows[i]` and `columns[j]`."""

    def __post_init__(self) -> None:
        """ConfigurationError unless rows and columns ascend and each cell has its seconds."""
        _check("rows", self.rows, tuple(0.0 for _ in self.seconds))
        for cells in self.seconds:
            _check("columns", self.columns, cells)

    def __call__(self, row: float, column: float) -> float:
        """Seconds at that place."""
        left, along = _place(self.columns, column)
        return _across(self.seconds, lambda cells: _at(cells, left, along), *_place(self.rows, row))

    def slope(self, row: float, column: float) -> tuple[float, float]:
        """Seconds per column from `column` on, and the column up to which that holds."""
        columns = self.columns
        if column < columns[0] or len(columns) == 1:
            return 0.0, columns[0] if column < columns[0] else inf
        left = min(bisect_right(columns, column), len(columns) - 1) - 1
        width = columns[left + 1] - columns[left]
        slope_s = _across(
            self.seconds, lambda cells: (cells[left + 1] - cells[left]) / width, *_place(self.rows, row)
        )
        return slope_s, columns[left + 1] if left + 2 < len(columns) else inf


class Stack(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Grids one behind the other: linear between them, level before the first, on after the last."""

    depths: tuple[float, ...]
    grids: tuple[Grid, ...]

    def __post_init__(self) -> None:
        """ConfigurationError unless each of one or more ascending depths has its grid."""
        _check("depths", self.depths, tuple(0.0 for _ in self.grids))

    def __call__(self, depth: float, row: float, column: float) -> float:
        """Seconds at that place."""
        return _across(self.grids, lambda grid: grid(row, column), *_place(self.depths, depth))


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="table"):
    """Measured seconds: by tokens, by sequences, and of attention for decodes and for each chunk."""

    tokens: Line
    """Of all that depends only on the tokens computed in the step: matrix products, norms, the launch."""
    sequences: Line | None = None
    """Of all that is done once per sequence: the output layer, sampling."""
    decode: Grid | None = None
    """Attention of decoding sequences; rows: how many, columns: tokens that each attends to (their mean)."""
    prefill: Grid | None = None
    """Attention of one chunk; rows: its new tokens, columns: tokens in the cache before."""
    mixed: Stack | None = None
    """Attention of decoding sequences beside prompts, by the tokens of these; `decode` where there is none.
    The kernels that serve both serve decoding sequences worse: twice as long is common."""

    def step_s(
        self, decodes: int, context_tokens: float, chunks: Sequence[Chunk] = (), draft_tokens: int = 0
    ) -> float:
        """Seconds of a step: `decodes` sequences that attend to `context_tokens` in sum, and `chunks`."""
        prompt_tokens = sum(new for new, _ in chunks)
        seconds = self.tokens(decodes + draft_tokens + prompt_tokens)
        if self.sequences is not None:
            seconds += self.sequences(decodes + len(chunks))
        if decodes and chunks and self.mixed is not None:
            seconds += self.mixed(prompt_tokens, decodes, context_tokens / decodes)
        elif decodes and self.decode is not None:
            seconds += self.decode(decodes, context_tokens / decodes)
        if self.prefill is not None:
            known, each_s = None, 0.0
            for chunk in chunks:
                if chunk is not known:  # whoever plans has many that are alike
                    known, each_s = chunk, self.prefill(*chunk)
                seconds += each_s
        return seconds

    def decode_run(
        self,
        decodes: int,
        context_tokens: float,
        growth_tokens: float | None = None,
        draft_tokens: int = 0,
    ) -> Run:
        """The coming decode steps, up to the column of the table that the mean context reaches."""
        first_s = self.step_s(decodes, context_tokens, (), draft_tokens)
        if self.decode is None:
            return Run(first_s, 0.0, UNBOUNDED)
        context, growth = context_tokens / decodes, (growth_tokens or decodes) / decodes
        slope_s, end = self.decode.slope(decodes, context)
        steps = UNBOUNDED if end == inf else 1 + int((end - context) / growth)
        return Run(first_s, slope_s * growth, steps)


Curve = Linear | Table


def _place(points: Sequence[float], point: float) -> tuple[int, float]:
    """The piece that `point` is on, and how far along it: 0 at its start, 1 at its end."""
    if point <= points[0] or len(points) == 1:
        return 0, 0.0
    left = min(bisect_right(points, point), len(points) - 1) - 1
    return left, (point - points[left]) / (points[left + 1] - points[left])


def _at(values: Sequence[float], left: int, along: float) -> float:
    return values[left] + along * (values[left + 1] - values[left]) if along else values[left]


def _across(cells: Sequence[T], measure: Callable[[T], float], left: int, along: float) -> float:
    seconds = measure(cells[left])
    return seconds + along * (measure(cells[left + 1]) - seconds) if along else seconds


def _check(name: str, points: Sequence[float], seconds: Sequence[float]) -> None:
    """Ascending points of at least one, each with its seconds, which do not fall after the last but one."""
    ascending = points and all(left < right for left, right in pairwise(points))
    if not ascending or not all(0 <= value < inf for value in (*points, *seconds)):
        raise ConfigurationError(
            [f"curve: {name} must ascend; they and their seconds are 0 or more, and finite"]
        )
    if len(points) != len(seconds):
        raise ConfigurationError([f"curve: {len(points)} {name}, but seconds for {len(seconds)}"])
    if len(seconds) > 1 and seconds[-1] < seconds[-2]:
        raise ConfigurationError(
            [f"curve: the last {name} take less than those before: that goes below zero"]
        )


def scaled(curve: Curve, factor: float) -> Curve:
    """The same steps, each `factor` times as long."""
    if isinstance(curve, Linear):
        return Linear(**{name: factor * value for name, value in msgspec.structs.asdict(curve).items()})
    parts = {name: part for name, part in msgspec.structs.asdict(curve).items() if part is not None}
    return msgspec.structs.replace(curve, **{name: _scaled(part, factor) for name, part in parts.items()})


def _scaled(part: Line | Grid | Stack, factor: float) -> Line | Grid | Stack:
    if isinstance(part, Line):
        return msgspec.structs.replace(part, seconds=tuple(factor * each for each in part.seconds))
    if isinstance(part, Grid):
        cells = tuple(tuple(factor * each for each in row) for row in part.seconds)
        return msgspec.structs.replace(part, seconds=cells)
    return msgspec.structs.replace(part, grids=tuple(_scaled(each, factor) for each in part.grids))
