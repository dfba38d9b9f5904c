"""When do requests arrive?

Each kind of arrivals turns dice into instants: seconds from the start of the run, ascending, without
end unless a trace is replayed. Nothing here waits for anything, so that load stays open-loop: when a
request comes in never depends on how the ones before it fared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, count
from math import inf, isfinite
from random import Random

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.workload.laws.gaps import Gaps, Memoryless
from tidegate.workload.laws.rates import Rate, Steady
from tidegate.workload.traces.rows import TraceRow


class Poisson(msgspec.Struct, frozen=True):
    """Independent arrivals: gaps are exponential, with a coefficient of variation of 1."""

    rate_per_s: float

    def __post_init__(self) -> None:
        _check_rate(self.rate_per_s)

    def instants(self, rng: Random) -> Iterator[float]:
        """Endless."""
        at_s = 0.0
        while True:
            at_s += rng.expovariate(self.rate_per_s)
            yield at_s


class Constant(msgspec.Struct, frozen=True):
    """One arrival each 1/rate seconds, the first at once."""

    rate_per_s: float

    def __post_init__(self) -> None:
        _check_rate(self.rate_per_s)

    def instants(self, rng: Random) -> Iterator[float]:
        """Endless; needs no dice."""
        # Divided, not summed up: a sum of rounded gaps drifts from the rate.
        return (index / self.rate_per_s for index in count())


class Renewal(msgspec.Struct, frozen=True):
    """Gaps of any law, at a rate that may change: bursty traffic, days and nights, or both.

    Gaps are drawn in expected arrivals and turned into seconds by the rate's integral, so that over any
    time the expected number of arrivals is that integral exactly, however bursty they are.
    """

    rate: Rate
    gaps: Gaps = Memoryless()

    @classmethod
    def steady(cls, rate_per_s: float, gaps: Gaps) -> Renewal:
        """At one rate for ever."""
        return cls(Steady(rate_per_s), gaps)

    def instants(self, rng: Random) -> Iterator[float]:
        """Endless, unless the rate falls to 0 for good."""
        instant_of = self.rate.inverse()
        last_s = 0.0
        for expected in accumulate(self.gaps.gaps(rng)):
            # Rounding of an inverse may step back by a bit where time must not.
            last_s = max(last_s, instant_of(expected))
            if last_s == inf:
                return
            yield last_s


class Replay(msgspec.Struct, frozen=True):
    """The arrivals of a trace, as they were."""

    rows: Sequence[TraceRow]

    def instants(self, rng: Random) -> Iterator[float]:
        """One per row; needs no dice."""
        return (row.arrived_s for row in self.rows)


Arrivals = Poisson | Constant | Renewal | Replay


def _check_rate(rate_per_s: float) -> None:
    if not (isfinite(rate_per_s) and rate_per_s > 0):
        raise ConfigurationError([f"a rate is above 0 requests per second, not {rate_per_s:g}"])
