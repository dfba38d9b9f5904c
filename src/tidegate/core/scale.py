"""Where does a value lie along an axis, and where do round ones? For plots, in pixels or in characters."""

from __future__ import annotations

from math import ceil, floor, log10

import msgspec


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """From values between `low` and `high` to places between `start` and `end`."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False
    """Both values are above 0 then."""

    def __call__(self, value: float) -> float:
        """Where it lies; beyond the ends if it does."""
        if self.logarithmic:
            ratio = (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low))
        else:
            ratio = (value - self.low) / (self.high - self.low)
        return self.start + ratio * (self.end - self.start)

    def ticks(self) -> list[float]:
        """A few round values, ascending."""
        return _decades(self.low, self.high) if self.logarithmic else _steps(self.low, self.high)


def _steps(low: float, high: float) -> list[float]:
    """About five round values."""
    raw = (high - low) / 5
    power = 10 ** floor(log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    first = ceil(low / step - 1e-9)
    return [place * step for place in range(first, floor(high / step + 1e-9) + 1)]


def _decades(low: float, high: float) -> list[float]:
    """Powers of ten, with 2 and 5 between them where there is room."""
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    factors = (1, 2, 5) if high < 100 * low else (1,)
    ticks = [10.0**power * factor for power in powers for factor in factors]
    return [tick for tick in ticks if low <= tick <= high]
