"""What does a law of times say, in a mean and percentiles?"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cache
from math import inf, isfinite, log, nan
from typing import TYPE_CHECKING

import msgspec

from tidegate.core.errors import CallerError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEVELS = (*(each / 100 for each in range(100)), 0.995, 0.999)
"""Quantiles that are kept; between them a law is taken for straight."""


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A law of seconds."""

    mean: float
    at: tuple[float, ...]
    """At each of `LEVELS`."""

    @classmethod
    def of(cls, law: tuple[NDArray[np.float64], NDArray[np.float64]]) -> Spread:
        """Of times, in any order, and how often each comes; at least one."""
        import numpy as np

        seconds, shares = law

        order = seconds.argsort()
        upto = shares[order].cumsum()
        total = float(upto[-1])
        places = np.minimum(upto.searchsorted(_levels() * total), len(order) - 1)
        return cls(mean=float((seconds * shares).sum()) / total, at=tuple(seconds[order[places]].tolist()))

    @classmethod
    def of_tail(cls, probability: float, relief_per_s: float) -> Spread:
        """Of a wait that is 0, or with that probability exponential."""
        if not probability:
            return cls(mean=0.0, at=(0.0,) * len(LEVELS))
        least = bisect_right(LEVELS, 1 - probability)
        above = (log(probability / (1 - level)) / relief_per_s for level in LEVELS[least:])
        return cls(mean=probability / relief_per_s, at=(*(0.0,) * least, *above))

    @classmethod
    def never(cls) -> Spread:
        """Of what grows without end."""
        return cls(mean=inf, at=(inf,) * len(LEVELS))

    @classmethod
    def undefined(cls) -> Spread:
        """Of what never happens."""
        return cls(mean=nan, at=(nan,) * len(LEVELS))

    def at_most(self, other: Spread) -> Spread:
        """Of what is part of the other, and so is no longer at any level."""
        if self.at[-1] <= other.at[0] and self.mean <= other.mean:
            return self
        return Spread(mean=min(self.mean, other.mean), at=tuple(map(min, self.at, other.at)))

    def at_least(self, other: Spread) -> Spread:
        """Of what the other is part of, and so is no shorter at any level."""
        if self.at[0] >= other.at[-1] and self.mean >= other.mean:
            return self
        return Spread(mean=max(self.mean, other.mean), at=tuple(map(max, self.at, other.at)))

    def quantile(self, ratio: float) -> float:
        """The time that this share (0..1) stays within."""
        if not 0 <= ratio <= LEVELS[-1]:
            raise CallerError(f"a quantile is from 0 to {LEVELS[-1]}, not {ratio}")
        above = bisect_left(LEVELS, ratio - 1e-12)
        if not above or not isfinite(self.at[above]):
            return self.at[above]
        low, high = LEVELS[above - 1], LEVELS[above]
        return self.at[above - 1] + (self.at[above] - self.at[above - 1]) * (ratio - low) / (high - low)

    @property
    def p50(self) -> float:
        """The median."""
        return self.at[50]

    @property
    def p95(self) -> float:
        """19 of 20 stay within it."""
        return self.at[95]

    @property
    def p99(self) -> float:
        """99 of 100 stay within it."""
        return self.at[99]


@cache
def _levels() -> NDArray[np.float64]:
    import numpy as np

    return np.array(LEVELS) * (1 - 1e-12)  # what rounding leaves out of a sum is no longer time
