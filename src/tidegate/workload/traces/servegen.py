"""ServeGen's client pools: what each anonymous client of a production model asked for, in windows of 10
minutes.

Source: ServeGen, arXiv:2505.09999 (github.com/alibaba/ServeGen, data/), converted to two CSV files a pool.
These are summaries of logs, not logs: `sources.client_pools.ClientPool` draws requests from them.

`POOL.client_rates.csv`: client, t_s (window start), rate_rps, cv (of gaps), pattern (the law that fitted:
Gamma or Weibull), param1, param2. `POOL.client_lengths.csv`: client, t_s (of 6-hour windows), field, mean,
p5 … p99, max.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.workload.laws.numbers import Quantiles
from tidegate.workload.traces.lines import Lines, csv_cells, seconds

WINDOW_S = 600.0
RATE_COLUMNS = ("client", "t_s", "rate_rps", "cv", "pattern")
QUANTILE_COLUMNS = ("p5", "p25", "p50", "p75", "p90", "p95", "p99", "max")
LENGTH_COLUMNS = ("client", "t_s", "field", "mean", *QUANTILE_COLUMNS)
PATTERNS = ("Gamma", "Weibull", "")

_SHARES = (0.05, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 1.0)
_KNEE = 0.998


class ClientWindow(msgspec.Struct, frozen=True):
    """Ten minutes of one client."""

    client: int
    start_s: float
    rate_per_s: float
    cv: float
    pattern: str
    """`Gamma`, `Weibull`, or empty: too few arrivals to fit a law."""


class ClientLengths(msgspec.Struct, frozen=True):
    """Hours of one client: how long its prompts, its answers or their parts were."""

    client: int
    start_s: float
    field: str
    quantiles: Quantiles


def read_rates(lines: Lines, name: str = "client rates") -> Iterator[ClientWindow]:
    """Windows in the file's order. Raises ConfigurationError, which says `name`, line, field and reason."""
    above: tuple[int, float] = (-1, -1.0)
    for number, cells in csv_cells(lines, name, RATE_COLUMNS):
        try:
            window = _window(cells)
            if (window.client, window.start_s) <= above:
                raise ValueError("client and t_s are not above those of the line before; sort, or remove it")
        except ValueError as error:
            raise ConfigurationError([f"{name}, line {number}: {error}"]) from None
        above = (window.client, window.start_s)
        yield window


def read_lengths(lines: Lines, name: str = "client lengths") -> Iterator[ClientLengths]:
    """Tables of quantiles in the file's order. Raises ConfigurationError as `read_rates` does."""
    for number, (client, start, field, mean, *quantiles) in csv_cells(lines, name, LENGTH_COLUMNS):
        try:
            values = [_number(column, text) for column, text in zip(QUANTILE_COLUMNS, quantiles, strict=True)]
            table = _table(values, _number("mean", mean))
            found = ClientLengths(_client(client), seconds("t_s", start), field, table)
        except (ValueError, ConfigurationError) as error:
            raise ConfigurationError([f"{name}, line {number}: {error}"]) from None
        yield found


def _table(values: Sequence[float], mean: float) -> Quantiles:
    """Straight lines between what was published, with one more point in the tail for the sake of the mean.

    Between P99 and the maximum a straight line would be too heavy. What lies below P5 is put on it.
    """
    points = ((0.0, values[0]), *zip(_SHARES, values, strict=True))
    p99, most = values[-2:]
    # The line's area over the tail, less what is too much, is that of two lines through (_KNEE, height).
    excess = Quantiles(points).mean - mean
    height = p99 + (most - p99) * (_KNEE - 0.99) / 0.01 - excess / ((1.0 - 0.99) / 2)
    return Quantiles((*points[:-1], (_KNEE, min(most, max(p99, height))), points[-1]))


def _window(cells: Sequence[str]) -> ClientWindow:
    client, start, rate, cv, pattern = (cell.strip() for cell in cells)
    if pattern not in PATTERNS:
        raise ValueError(f"pattern is {pattern!r}, not Gamma, Weibull or empty")
    start_s = seconds("t_s", start)
    if start_s % WINDOW_S:
        raise ValueError(f"t_s is {start}, not a multiple of {WINDOW_S:g}")
    return ClientWindow(
        _client(client), start_s, _number("rate_rps", rate), _number("cv", cv or "0"), pattern
    )


def _client(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"client is {text!r}, not a whole number from 0")
    return int(text)


def _number(column: str, text: str) -> float:
    try:
        return seconds(column, text)
    except ValueError:
        raise ValueError(f"{column} is {text!r}, not a number from 0") from None
