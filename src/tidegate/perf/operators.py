"""How long does a step take, when each operator of the model was measured by itself?

Profilers time a model's operators alone: matrix products and norms by the tokens computed, the output layer
by sequences, attention by what prefills and what decodes. A step is their sum over the layers. Prompts beside
decoding sequences are measured together, because one is not the sum of both: the kernel that serves both
serves decoding sequences worse.

What the sum leaves out is one constant, a gap per layer: time between kernels, and that attention waits for
the longest sequence of a batch, where the tables know batches of one length.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Final

import msgspec

from tidegate.core.curve import Grid, Line, Stack, Table
from tidegate.core.errors import ConfigurationError

ONCE: Final = ("embedding", "final_layernorm")
"""Operators of the tokens that a model has once; all others it has once in each layer, but for:"""
TWICE: Final = ("layernorm",)
"""before attention and before the feed-forward part."""
US: Final = 1e-6

Shape = tuple[int, int, int, int]
"""New prompt tokens, tokens in the cache before them, decoding sequences, tokens in the cache of each."""
Row = Mapping[str, str]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Microseconds of one layer's operators, of one model on one accelerator."""

    dense: Mapping[str, Mapping[int, float]]
    """By operator, by tokens in the step."""
    per_sequence: Mapping[str, Mapping[int, float]]
    """By operator, by sequences."""
    attention: Mapping[Shape, float]


def measured(
    dense: Iterable[Row], per_sequence: Iterable[Row], attention: Iterable[Row], only: Mapping[str, str]
) -> Measured:
    """What rows of these three tables say about `only`: columns `gpu`, `model` and `tp`."""
    one = {key: str(value) for key, value in only.items()}
    by_tokens: dict[str, dict[int, float]] = defaultdict(dict)
    by_sequences: dict[str, dict[int, float]] = defaultdict(dict)
    for row in _of(dense, one):
        by_tokens[row["layer"]][int(row["tokens"])] = float(row["time_us"])
    for row in _of(per_sequence, one):
        by_sequences[row["layer"]][int(row["sequences"])] = float(row["time_us"])
    shapes: dict[Shape, float] = {}
    for row in _of(attention, one):
        shape = (row["prefill_chunk"], row["kv_prefill"], row["n_decode"], row["kv_decode"])
        new, before, decodes, context = map(int, shape)
        shapes[new, before, decodes, context] = float(row["time_us"])
    if not (by_tokens and by_sequences and shapes):
        raise ConfigurationError([f"operators: nothing was measured of {' '.join(one.values())}"])
    return Measured(dense=by_tokens, per_sequence=by_sequences, attention=shapes)


def _of(rows: Iterable[Row], only: Mapping[str, str]) -> Iterable[Row]:
    return (row for row in rows if all(row[key] == value for key, value in only.items()))


def table(measured: Measured, *, layers: int, gap_s: float = 0.0) -> Table:
    """Seconds of whole steps. `gap_s`: per layer, what no operator was measured for."""
    prefill = _prefill(measured.attention, layers)
    return Table(
        tokens=_tokens(measured.dense, layers, layers * gap_s),
        sequences=_line(measured.per_sequence.values(), dict.fromkeys(measured.per_sequence, 1.0)),
        decode=_decode(measured.attention, layers),
        prefill=prefill,
        mixed=_mixed(measured.attention, layers, prefill),
    )


def _tokens(dense: Mapping[str, Mapping[int, float]], layers: int, overhead_s: float) -> Line:
    times = {name: 1.0 if name in ONCE else layers * (2.0 if name in TWICE else 1.0) for name in dense}
    line = _line(dense.values(), times)
    return Line(points=line.points, seconds=tuple(seconds + overhead_s for seconds in line.seconds))


def _line(operators: Collection[Mapping[int, float]], times: Mapping[str, float]) -> Line:
    """The weighted sum of operators that were measured at the same points."""
    points = sorted(set.intersection(*(set(operator) for operator in operators)))
    weighted = list(zip(operators, times.values(), strict=True))
    seconds = [US * sum(weight * operator[point] for operator, weight in weighted) for point in points]
    return Line(points=tuple(map(float, points)), seconds=_rising_at_the_end(seconds))


def _decode(attention: Mapping[Shape, float], layers: int) -> Grid:
    cells = {
        (decodes, context): layers * US * time
        for (new, _, decodes, context), time in attention.items()
        if new == 0
    }
    return _grid(cells)


def _prefill(attention: Mapping[Shape, float], layers: int) -> Grid:
    cells = {
        (new, before): layers * US * time
        for (new, before, decodes, _), time in attention.items()
        if decodes == 0
    }
    return _grid(cells)


def _mixed(attention: Mapping[Shape, float], layers: int, prefill: Grid) -> Stack | None:
    """What decoding sequences add to a step with prompts: its time less that of its prompts alone.

    It hardly depends on what the prompts had in the cache (standard deviation 2 % of a step's attention, in
    the tables that this was written for), so it is the mean over that, up to the longest chunk.
    """
    most = max(new for new, *_ in attention)
    added: dict[int, dict[tuple[int, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    for (new, before, decodes, context), time in attention.items():
        if new and decodes and before <= most:
            alone_s = prefill(new, before)
            added[new][decodes, context].append(layers * US * time - alone_s)
    if not added:
        return None
    depths = sorted(added)
    grids = [_grid({at: max(0.0, fmean(s)) for at, s in added[depth].items()}) for depth in depths]
    return Stack(depths=tuple(map(float, depths)), grids=tuple(grids))


def _grid(cells: Mapping[tuple[int, int], float]) -> Grid:
    """All cells of the rows and columns that occur; those not measured go on as those before them do."""
    rows = sorted({row for row, _ in cells})
    columns = sorted({column for _, column in cells})
    filled: list[tuple[float, ...]] = []
    for row in rows:
        line: list[float] = []
        for place, column in enumerate(columns):
            if (row, column) in cells:
                line.append(cells[row, column])
            elif place >= 2:
                step = (columns[place] - columns[place - 1]) / (columns[place - 1] - columns[place - 2])
                line.append(line[-1] + max(0.0, line[-1] - line[-2]) * step)
            elif filled:
                line.append(filled[-1][place] * row / rows[len(filled) - 1])
            else:
                line.append(0.0)
        filled.append(_rising_at_the_end(line))
    return Grid(rows=tuple(map(float, rows)), columns=tuple(map(float, columns)), seconds=tuple(filled))


def _rising_at_the_end(seconds: Sequence[float]) -> tuple[float, ...]:
    """Noise in the last two points must not become a slope below zero for all beyond them."""
    if len(seconds) < 2:
        return tuple(seconds)
    return (*seconds[:-1], max(seconds[-2:]))


def experts(
    measured_us: Mapping[tuple[int, int], float], *, layers: int, ranks: int, experts: int, chosen: int
) -> Line:
    """Seconds of the expert layers, by the tokens of all `ranks` that share `experts` evenly.

    `measured_us` is one GPU's time by tokens and by experts that get any of them, each token choosing
    `chosen`. A rank computes its share of all (token, expert) pairs; T tokens that choose evenly and
    independently reach 1 - (1 - chosen / experts)^T of the experts. Uneven choices take longer; no table says
    by how much.
    """
    columns = sorted({active for _, active in measured_us})
    grid = _grid({at: US * time for at, time in measured_us.items()})
    most = max(tokens for tokens, _ in measured_us)
    points = [2.0**power for power in range(int(most * ranks).bit_length())]
    seconds = []
    for tokens in points:
        active = experts / ranks * (1 - (1 - chosen / experts) ** tokens)
        seconds.append(layers * grid(max(1.0, tokens / ranks), min(max(active, columns[0]), columns[-1])))
    return Line(points=tuple(points), seconds=_rising_at_the_end(seconds))
