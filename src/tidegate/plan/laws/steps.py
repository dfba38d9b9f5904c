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


@lru_cache(maxsize=512)
def steps_of(curve: Curve | Verifying) -> Steps:
    """Of a curve, once for all the loads that it is asked about."""
    return Steps(curve)


def _linear_s(curve: Linear, decodes: Floats, context_tokens: Floats | float) -> Floats:
    return curve.a_s + curve.b_s_per_sequence * decodes + curve.c_s_per_context_token * context_tokens


class _Axis:
    """Ascending points, between which something is straight: level before the first, on after the last."""

    def __init__(self, points: Sequence[float]) -> None:
        import numpy as np

        self._points = np.array(points)
        self._first, self._inner = points[0], self._points[1:-1]

    def place(self, at: Floats) -> tuple[NDArray[np.intp], Floats]:
        """On which piece each is, and where: none is before the first point."""
        import numpy as np

        after = np.maximum(at, self._first)
        return self._inner.searchsorted(after, "right"), after

    def pieces(self, seconds: Floats) -> tuple[Floats, Floats]:
        """Of each piece the constant and the slope; `seconds` has the points as its rows."""
        points = self._points.reshape(-1, *[1] * (seconds.ndim - 1))
        if len(points) == 1:
            return seconds, 0 * seconds
        slopes = (seconds[1:] - seconds[:-1]) / (points[1:] - points[:-1])
        return seconds[:-1] - slopes * points[:-1], slopes


class _Line:
    def __init__(self, line: Line) -> None:
        import numpy as np

        self._axis = _Axis(line.points)
        self._pieces = np.array(self._axis.pieces(np.array(line.seconds)))

    def __call__(self, at: Floats) -> Floats:
        piece, at = self._axis.place(at)
        constant, slope = self._pieces[:, piece]
        found: Floats = constant + slope * at
        return found


class _Grid:
    """Of each cell the constant, and the slopes along the columns, along the rows, and along both."""

    def __init__(self, grid: Grid) -> None:
        import numpy as np

        self._rows, self._columns = _Axis(grid.rows), _Axis(grid.columns)
        constants, slopes = self._rows.pieces(np.array(grid.seconds))
        cells = np.array([*self._columns.pieces(constants.T), *self._columns.pieces(slopes.T)])
        self._cells, self._width = cells.reshape(4, -1), cells.shape[2]

    def __call__(self, rows: Floats, columns: Floats) -> Floats:
        row, rows = self._rows.place(rows)
        column, columns = self._columns.place(columns)
        constant, along, down, both = self._cells[:, column * self._width + row]
        found: Floats = constant + along * columns + rows * (down + both * columns)
        return found
