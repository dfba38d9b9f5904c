"""What do users meet who wait for an answer, think, and ask again, before replicas known by two figures?

Each place takes as long for a request whatever the others do, so that the number under way (`source`) is that
of M/M/c//N, the machine repair model (Gross and Harris, Fundamentals of Queueing Theory).

Before replicas whose steps are known they are `clients`'.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegate.plan.answer import Opening, Percentiles
from tidegate.plan.ask import Terms
from tidegate.plan.closed.source import Numbers, Source
from tidegate.plan.station import Bound, Latencies, Station


class Crowd:
    """Users before so many replicas."""

    def __init__(self, station: Station, users: int, think_s: float, replicas: int) -> None:
        self._station = station
        self.users, self.think_s, self.replicas = users, think_s, replicas
        self.places = station.gates.least * replicas
        self.source = Source(users, think_s, self.places, self._completed_per_s)

    def having(self, *, users: int | None = None, replicas: int | None = None) -> Crowd:
        """The same kind of users, more or fewer of them, before as many replicas."""
        return Crowd(self._station, users or self.users, self.think_s, replicas or self.replicas)

    @property
    def rate_per_s(self) -> float:
        """Requests per second that they come to send."""
        return self.source.rate_per_s

    @property
    def sustained_per_s(self) -> float:
        """Of one replica, every place of which is taken."""
        return self._station.sustained_per_s

    @property
    def loaded(self) -> float:
        """What a target is of: each place does as much as any other, so that is rate over sustained, too."""
        return self.source.occupied

    def tpot_s(self, inside: int) -> float:
        """The pace, whatever the batch."""
        return self._station.tpot_s(inside)

    def bound(self, bound: Bound) -> Bound:
        """What keeps a replica from more: not the users."""
        return bound

    def run(self, terms: Terms) -> Latencies | None:
        """Nothing is known of prompts that wait for each other."""
        return None

    def opening(self, run: Latencies | None) -> Opening | None:
        """Likewise."""
        return None

    def latencies(self, terms: Terms) -> Latencies:
        """What they meet."""
        found, full_per_s = self.source.found, self._completed_per_s(self.places)
        wait_s = _over(found, terms, lambda n: max(0, n + 1 - self.places) / full_per_s)
        tpot_s = self._station.full_tpot_s
        return Latencies(
            wait_s=wait_s,
            ttft_s=wait_s.plus(tpot_s),
            tpot_s=Percentiles.of(tpot_s),
            e2e_s=wait_s.plus(self._station.decode_steps * tpot_s),
        )

    def _completed_per_s(self, n: int) -> float:
        return self._station.completed_per_s(min(n, self.places))


def _over(found: Numbers, terms: Terms, measure: Callable[[int], float]) -> Percentiles:
    """Of a measure that grows with the number of requests."""

    def at(quantile: float) -> float:
        upto = 0.0
        for n, share in found:
            upto += share
            if upto >= quantile - 1e-12:
                return measure(n)
        return measure(found[-1][0])

    return Percentiles(
        mean=sum(share * measure(n) for n, share in found),
        p50=at(0.5),
        p95=at(0.95),
        p99=at(0.99),
        at_percentile=at(terms.percentile),
    )
