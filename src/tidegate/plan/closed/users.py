"""What do users meet who wait for an answer, think, and ask again, before replicas known by two figures?

Each place takes as long for a request whatever the others do, so that the number under way (`source`) is that
of M/M/c//N, the machine repair model (Gross and Harris, Fundamentals of Queueing Theory). Who asks finds the
others as if he were not there (the arrival theorem; Sevcik and Mitrani, The distribution of queuing network
states at input and output instants, JACM 28 (1981)).

Before replicas whose steps are known they are `clients`'.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from tidegate.plan.answer import Opening, Percentiles
from tidegate.plan.ask import Terms
from tidegate.plan.closed.source import Numbers, under_way
from tidegate.plan.station import Bound, Latencies, Station


class Crowd:
    """Users before so many replicas."""

    def __init__(self, station: Station, users: int, think_s: float, replicas: int) -> None:
        self._station, self._users, self._think_s = station, users, think_s
        self.replicas = replicas
        self._places = station.gates.least * replicas

    def having(self, *, users: int | None = None, replicas: int | None = None) -> Crowd:
        """The same kind of users, more or fewer of them, before as many replicas."""
        return Crowd(self._station, users or self._users, self._think_s, replicas or self.replicas)

    @property
    def users(self) -> int:
        """How many."""
        return self._users

    @property
    def think_s(self) -> float:
        """Of each, between an answer and the next request."""
        return self._think_s

    @property
    def places(self) -> int:
        """Inside all gates."""
        return self._places

    @cached_property
    def rate_per_s(self) -> float:
        """Requests per second that they come to send."""
        return sum(share * self._completed_per_s(n) for n, share in self._under_way(self._users))

    @property
    def sustained_per_s(self) -> float:
        """Of one replica, every place of which is taken."""
        return self._station.sustained_per_s

    @cached_property
    def occupied(self) -> float:
        """Places that are taken, of all inside the gates, 0..1."""
        found = self._under_way(self._users)
        return sum(share * min(n, self._places) for n, share in found) / self._places

    @property
    def loaded(self) -> float:
        """What a target is of: each place does as much as any other, so that is rate over sustained, too."""
        return self.occupied

    def tpot_s(self, inside: int) -> float:
        """The pace, whatever the batch."""
        return self._station.tpot_s(inside)

    def bound(self, bound: Bound) -> Bound:
        """What keeps a replica from more: not the users."""
        return bound

    def run(self, terms: Terms) -> Latencies | None:
        """Nothing is known of prompts that wait for each other."""
        return None

    def opening(self, terms: Terms) -> Opening | None:
        """Likewise."""
        return None

    def latencies(self, terms: Terms) -> Latencies:
        """What they meet."""
        found, full_per_s = self._under_way(self._users - 1), self._completed_per_s(self._places)
        wait_s = _over(found, terms, lambda n: max(0, n + 1 - self._places) / full_per_s)
        tpot_s = self._station.full_tpot_s
        return Latencies(
            wait_s=wait_s,
            ttft_s=wait_s.plus(tpot_s),
            tpot_s=Percentiles.of(tpot_s),
            e2e_s=wait_s.plus(self._station.decode_steps * tpot_s),
        )

    def _completed_per_s(self, n: int) -> float:
        return self._station.completed_per_s(min(n, self._places))

    def _under_way(self, users: int) -> Numbers:
        return under_way(users, self._think_s, self._completed_per_s)


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
