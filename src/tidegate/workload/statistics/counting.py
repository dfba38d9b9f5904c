"""What is the spread of numbers that are too many to keep?

Token counts repeat: counted by value they take memory for each distinct value, and every quantile stays
exact. Arrivals are counted in windows as they pass.
"""

from __future__ import annotations

from math import nan, sqrt

import msgspec

from tidegate.core.records import Distribution


class Tally:
    """Whole numbers, counted by value."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def add(self, value: int) -> None:
        """Count one."""
        self._counts[value] = self._counts.get(value, 0) + 1

    def distribution(self) -> Distribution:
        """All so far; quantiles as `core.records.percentile` defines them."""
        values = sorted(self._counts)
        count = sum(self._counts.values())
        return Distribution(
            count=count,
            mean=sum(value * self._counts[value] for value in values) / count if count else nan,
            p50=self._percentile(values, count, 0.50),
            p95=self._percentile(values, count, 0.95),
            p99=self._percentile(values, count, 0.99),
            max=values[-1] if values else nan,
        )

    def _percentile(self, values: list[int], count: int, ratio: float) -> float:
        if not count:
            return nan
        rank = ratio * (count - 1)
        low, passed = int(rank), 0
        for place, value in enumerate(values):
            passed += self._counts[value]
            if passed > low:
                above = value if passed > low + 1 or place + 1 == len(values) else values[place + 1]
                return value + (above - value) * (rank - low)
        return float(values[-1])


class Moments:
    """Mean and spread of pairs of numbers, in one pass. Source: Welford (1962)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = self.other_mean = 0.0
        self._squares = self._other_squares = self._products = 0.0

    def add(self, value: float, other: float = 0.0) -> None:
        """Count one pair."""
        self.count += 1
        off, other_off = value - self.mean, other - self.other_mean
        self.mean += off / self.count
        self.other_mean += other_off / self.count
        self._squares += off * (value - self.mean)
        self._other_squares += other_off * (other - self.other_mean)
        self._products += off * (other - self.other_mean)

    @property
    def variance(self) -> float:
        """Of all values, as they are the whole population; nan without any."""
        return self._squares / self.count if self.count else nan

    @property
    def cv(self) -> float:
        """Standard deviation over mean; nan where the mean is 0."""
        return sqrt(self.variance) / self.mean if self.count and self.mean else nan

    @property
    def correlation(self) -> float:
        """Pearson's, -1..1; nan where one side never changes."""
        spread = sqrt(self._squares * self._other_squares)
        return self._products / spread if spread else nan


class Windows(msgspec.Struct, frozen=True, kw_only=True):
    """Arrivals counted in windows of one length, side by side from the first arrival on."""

    windows: int
    dispersion: float
    """Variance over mean of the counts: 1 for Poisson, above for bursts; nan without windows."""
    peak_ratio: float
    """The fullest window's count over the mean's."""


class WindowCounter:
    """Counts of arrivals in windows of `window_s`; arrivals ascend."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._window, self._count = 0, 0
        self._passed = self._total = self._squares = self._most = 0

    def add(self, at_s: float) -> None:
        """Count one arrival."""
        window = int(at_s / self.window_s)
        if window != self._window:
            self._close(window - self._window)
            self._window, self._count = window, 0
        self._count += 1

    def whole(self) -> Windows:
        """Of the windows that ended before the last arrival."""
        return self._windows(self._passed, self._total, self._squares, self._most)

    def with_rest(self) -> Windows:
        """The same and the last, in which the arrivals end: it holds less than it would have held."""
        return self._windows(
            self._passed + 1,
            self._total + self._count,
            self._squares + self._count**2,
            max(self._most, self._count),
        )

    def _close(self, windows: int) -> None:
        """The window under way, and those after it in which nothing came."""
        self._passed += windows
        self._total += self._count
        self._squares += self._count**2
        self._most = max(self._most, self._count)

    @staticmethod
    def _windows(windows: int, total: int, squares: int, most: int) -> Windows:
        mean = total / windows if windows else 0.0
        return Windows(
            windows=windows,
            dispersion=(squares / windows - mean**2) / mean if mean else nan,
            peak_ratio=most / mean if mean else nan,
        )
