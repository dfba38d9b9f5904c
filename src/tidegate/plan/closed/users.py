"""What do so many users send who wait for an answer, think, and ask again, and what do they meet?

They are a finite source: whoever waits sends nothing, so that no queue grows without end, and where nobody
thinks as many requests are under way as there are users. Their number is a birth-death process with births
(users - n) / think and, as deaths, what the replicas complete with n requests shared out evenly. Who asks
finds the others as if he were not there (the arrival theorem; Sevcik and Mitrani, The distribution of queuing
network states at input and output instants, JACM 28 (1981)).

Those who never think, before replicas whose steps are known, are `closed_crowd`'s.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import cached_property
from math import ceil

from tidegate.plan.answer import Percentiles
from tidegate.plan.ask import Terms
from tidegate.plan.station import Bound, Latencies, Station

QUIET = 0.7
"""Of what is sustained, up to which the time to a first token is that of an open load; beyond, what grows is
the wait for a turn, which is known better here."""
NEGLIGIBLE = 1e-9
"""Numbers rarer than this, relative to the likeliest, are left out."""


class Crowd:
    """Users before so many replicas."""

    def __init__(self, station: Station, users: int, think_s: float, replicas: int) -> None:
        self._station, self._users, self._think_s = station, users, think_s
        self.replicas = replicas
        self._gate = station.gates.least

    @cached_property
    def rate_per_s(self) -> float:
        """Requests per second that they come to send."""
        return sum(share * self._completed_per_s(n) for n, share in self._under_way(self._users))

    @property
    def sustained_per_s(self) -> float:
        """Of one replica, every place of which is taken."""
        return self._station.sustained_per_s

    def bound(self, bound: Bound) -> Bound:
        """What keeps a replica from more: not the users."""
        return bound

    @cached_property
    def occupied(self) -> float:
        """Places that are taken, of all inside the gates, 0..1: what a target means for users.

        They push as hard as they are let: without thinking, the rate of any number of replicas is near what
        these sustain.
        """
        places = self._gate * self.replicas
        return sum(share * min(n, places) for n, share in self._under_way(self._users)) / places

    def latencies(self, terms: Terms) -> Latencies:
        """What they meet."""
        found = self._under_way(self._users - 1)
        places, full_per_s = self._gate * self.replicas, self._completed_per_s(self._gate * self.replicas)
        wait_s = _over(found, terms, lambda n: max(0, n + 1 - places) / full_per_s)
        tpot_s = _over(found, terms, lambda n: self._station.tpot_s(self._inside(n + 1)))
        most = QUIET * self.replicas * self._station.sustained_per_s
        quiet = self._station.latencies(min(self.rate_per_s, most), self.replicas)
        assert quiet is not None
        ttft_s = _sum(wait_s, quiet.ttft_s)
        decode_s = _times(tpot_s, self._station.decode_steps)
        return Latencies(wait_s=wait_s, ttft_s=ttft_s, tpot_s=tpot_s, e2e_s=_sum(ttft_s, decode_s))

    def _inside(self, under_way: int) -> int:
        """Of one replica's batch."""
        return max(1, min(self._gate, ceil(under_way / self.replicas)))

    def _completed_per_s(self, under_way: int) -> float:
        """By all replicas, among which requests are dealt out evenly."""
        if not under_way:
            return 0.0
        inside, served = self._inside(under_way), min(under_way, self._gate * self.replicas)
        return served * self._station.completed_per_s(inside) / inside

    def _under_way(self, users: int) -> list[tuple[int, float]]:
        """How many requests, and the share of time: up and down from the likeliest number."""
        if self._think_s == 0:
            return [(users, 1.0)]

        def ratio(n: int) -> float:
            return (users - n + 1) / self._think_s / self._completed_per_s(n)

        # The ratio of neighbours falls: the likeliest is the last that is likelier than the one before it.
        likeliest = bisect_left(range(1, users + 1), True, key=lambda n: ratio(n) < 1)
        below, share = [], 1.0
        for n in range(likeliest, 0, -1):
            share /= ratio(n)
            if share < NEGLIGIBLE:
                break
            below.append((n - 1, share))
        above, share = [(likeliest, 1.0)], 1.0
        for n in range(likeliest + 1, users + 1):
            share *= ratio(n)
            if share < NEGLIGIBLE:
                break
            above.append((n, share))
        shares = [*reversed(below), *above]
        total = sum(share for _, share in shares)
        return [(n, share / total) for n, share in shares]


def _over(found: list[tuple[int, float]], terms: Terms, measure: Callable[[int], float]) -> Percentiles:
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


def _sum(one: Percentiles, other: Percentiles) -> Percentiles:
    """Of two that are large together."""
    return Percentiles(
        mean=one.mean + other.mean,
        p50=one.p50 + other.p50,
        p95=one.p95 + other.p95,
        p99=one.p99 + other.p99,
        at_percentile=one.at_percentile + other.at_percentile,
    )


def _times(one: Percentiles, factor: float) -> Percentiles:
    return Percentiles(
        mean=one.mean * factor,
        p50=one.p50 * factor,
        p95=one.p95 * factor,
        p99=one.p99 * factor,
        at_percentile=one.at_percentile * factor,
    )
