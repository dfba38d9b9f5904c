"""How long do many steps of an engine take, asked for at once?

What `core.curve` says of one step, in arrays: a plan asks for dozens, and one at a time they would be most of
what it costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from tidegate.core.curve import Curve, Grid, Line, Linear, Table
from tidegate.perf.speculative import Verifying

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


class Chunks(NamedTuple):
    """Of each step; those of one are alike."""

    prompts: Floats
    """Of which one is computed, each."""
    new: Floats
    """Prompt tokens of each that are computed in the step."""
    before: Floats
    """Tokens of it that are in the cache before."""


class Steps:
    """Of one curve, the points of which are made arrays once."""

    def __init__(self, curve: Curve | Verifying) -> None:
        self._guesses = 0
        """Of each sequence that decodes, which are tokens of the step, and attended to."""
        if isinstance(curve, Verifying):
            self._guesses, curve = curve.draft_tokens, curve.curve
        self._curve = curve
        if isinstance(curve, Table):
            self._tokens = _Line(curve.tokens)
            self._sequences = _Line(curve.sequences) if curve.sequences is not None else None
            self._decode = _Grid(curve.decode) if curve.decode is not None else None
            self._prefill = _Grid(curve.prefill) if curve.prefill is not None else None

    def decoding_s(self, decodes: Floats, context_tokens: Floats | float) -> Floats:
        """Seconds of steps that only decode, so many sequences that attend to so many tokens in sum."""
        guesses = self._guesses * decodes
        context_tokens = context_tokens + guesses
        if isinstance(self._curve, Linear):
            guessed_s = self._curve.d_s_per_prefill_token * guesses
            return _linear_s(self._curve, decodes, context_tokens) + guessed_s
        alone_s = self._tokens(decodes + guesses) + self._attention_s(decodes, context_tokens)
        return alone_s if self._sequences is None else alone_s + self._sequences(decodes)

    def beside_s(self, decodes: Floats, context_tokens: Floats | float, chunks: Chunks) -> Floats:
        """Seconds of steps that compute chunks of prompts too."""
        prompts, new, before = chunks
        tokens, curve = prompts * new, self._curve
        guesses = self._guesses * decodes
        context_tokens = context_tokens + guesses
        if isinstance(curve, Linear):
            square_s = curve.e_s_per_prefill_token_squared * tokens * (new + 2 * before)
            alone_s = _linear_s(curve, decodes + prompts, context_tokens)
            return alone_s + curve.d_s_per_prefill_token * (tokens + guesses) + square_s
        found = self._tokens(decodes + guesses + tokens) + self._attention_s(decodes, context_tokens, tokens)
        if self._sequences is not None:
            found = found + self._sequences(decodes + prompts)
        if self._prefill is not None:
            found = found + prompts * self._prefill(new, before)
        return found

    def _attention_s(
        self, decodes: Floats, context_tokens: Floats | float, prompt_tokens: Floats | None = None
    ) -> Floats:
        """Of what decodes."""
        import numpy as np  # as in `prompts`

        each = context_tokens / np.maximum(decodes, 1.0)
        found = np.zeros(len(decodes)) if self._decode is None else self._decode(decodes, each)
        if prompt_tokens is not None and isinstance(self._curve, Table) and self._curve.mixed is not None:
            for place in np.flatnonzero(prompt_tokens):  # one by one, for few tables have it
                found[place] = self._curve.mixed(
                    float(prompt_tokens[place]), float(decodes[place]), float(each[place])
                )
        return np.where(decodes > 0, found, 0.0)


@lru_cache(maxsize=64)
def steps_of(curve: Curve | Verifying) -> Steps:
    """Of a curve, once for all the loads that it is asked about."""
    return Steps(curve)


def _linear_s(curve: Linear, decodes: Floats, context_tokens: Floats | float) -> Floats:
    return curve.a_s + curve.b_s_per_sequence * decodes + curve.c_s_per_context_token * context_tokens


class _Axis:
    """Ascending points: on which piece is a point, and how far along it?"""

    def __init__(self, points: Sequence[float]) -> None:
        import numpy as np

        self._points = np.array(points)
        self._inner = self._points[1:-1]
        self._widths = self._points[1:] - self._points[:-1]

    def place(self, at: Floats) -> tuple[NDArray[np.intp], Floats]:
        """0 at a piece's start and before the first, 1 at its end, and on after the last."""
        import numpy as np

        if not len(self._widths):
            return np.zeros(at.shape, np.intp), np.zeros(at.shape)
        left = self._inner.searchsorted(at, "right")
        return left, np.maximum((at - self._points[left]) / self._widths[left], 0.0)


class _Line:
    def __init__(self, line: Line) -> None:
        import numpy as np

        self._axis = _Axis(line.points)
        self._seconds = np.array((*line.seconds, line.seconds[-1]))  # one more: every piece has an end
        self._rises = self._seconds[1:] - self._seconds[:-1]

    def __call__(self, at: Floats) -> Floats:
        left, along = self._axis.place(at)
        found: Floats = self._seconds[left] + along * self._rises[left]
        return found


class _Grid:
    def __init__(self, grid: Grid) -> None:
        import numpy as np

        self._rows, self._columns = _Axis(grid.rows), _Axis(grid.columns)
        rows = [(*cells, cells[-1]) for cells in (*grid.seconds, grid.seconds[-1])]
        self._seconds, self._width = np.array(rows).ravel(), len(rows[0])

    def __call__(self, rows: Floats, columns: Floats) -> Floats:
        row, down = self._rows.place(rows)
        column, along = self._columns.place(columns)
        place = row * self._width + column
        upper, lower = self._across(place, along), self._across(place + self._width, along)
        found: Floats = upper + down * (lower - upper)
        return found

    def _across(self, place: NDArray[np.intp], along: Floats) -> Floats:
        seconds = self._seconds[place]
        found: Floats = seconds + along * (self._seconds[place + 1] - seconds)
        return found
