"""What do users meet who wait for an answer, think or do not, and ask again?

Before replicas whose steps are known. Their number under way is a finite source's (`source`), with what
replicas complete of so many inside (`inside`). Who finds all places of all gates taken waits before them, in
one queue. Users who never think always have as many requests under way as they are, which is the loop that
docs/accuracy judges the planner by, but for its opening: there, all ask in the same instant, and wait for
each other's prompts.

All that are in a batch go on alike: TPOT is the same of each. Means obey the interactive response time law,
users = rate x (E2E + think) (Denning and Buzen, Operational analysis, 1978).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from tidegate.core.units import format_duration, format_number
from tidegate.plan.answer import Opening, Percentiles
from tidegate.plan.ask import Terms
from tidegate.plan.closed.inside import Inside
from tidegate.plan.closed.loop import REQUESTS_PER_CLIENT, Loop
from tidegate.plan.closed.source import Source, gathered
from tidegate.plan.closed.spread import first_tokens, mixed, seat_waits, summed, thinned
from tidegate.plan.laws.spread import Spread
from tidegate.plan.station import Bound, Latencies

if TYPE_CHECKING:
    from tidegate.plan.closed.spread import Law

EDGES = (*(each / 10 for each in range(1, 10)), 0.95, 0.98, 0.99, 0.995, 1.0)
"""Of the numbers that are found, in groups: finer where a tail is."""
FINE = 48
"""Times that a law of first tokens is told by where answers of many lengths come after it."""


LUCK = 12
"""Parts of the luck that guesses have, where it comes to lengths and first tokens."""


class ClosedCrowd:
    """Users before so many replicas of that kind, to which their requests are dealt out evenly."""

    def __init__(self, inside: Inside, users: int, replicas: int = 1) -> None:
        self._inside = inside
        self.users, self.think_s, self.replicas = users, inside.think_s, replicas
        self.places = inside.gate * replicas
        self.source = Source(users, inside.think_s, self.places, self._completed_per_s)

    def having(self, *, users: int | None = None, replicas: int | None = None) -> ClosedCrowd:
        """The same kind of users, more or fewer of them, before as many replicas."""
        return ClosedCrowd(self._inside, users or self.users, replicas or self.replicas)

    @property
    def rate_per_s(self) -> float:
        """Requests per second that they come to send."""
        return self.source.rate_per_s

    @property
    def sustained_per_s(self) -> float:
        """Of one replica, every place of which is taken."""
        return self._inside.sustained_per_s

    @property
    def loaded(self) -> float:
        """What a target is of, 0..1: as far as they think, rate over what is sustained, as of requests that
        come by themselves; as far as they wait, places, for then any number of replicas is asked for all.
        """
        thinking = self.rate_per_s * self.think_s / self.users
        used = self.rate_per_s / (self.replicas * self.sustained_per_s)
        return (1 - thinking) * self.source.occupied + thinking * used

    def tpot_s(self, inside: int) -> float:
        """Of a batch that always has so many."""
        return self._inside.loop(inside).tpot_s

    def latencies(self, terms: Terms) -> Latencies:
        """What they meet, long after they began."""
        met = [
            (share * weight, loop, wait)
            for found, share in gathered(self.source.found, EDGES)
            for weight, loop, wait in self._met(found + 1)
        ]
        return self._told(met, terms)

    def run(self, terms: Terms) -> Latencies | None:
        """What a benchmark of ten requests each reports, the opening's among them; None: they think.

        It is sent to engines, which take as many as they have room for as requests begin; a gate counts them
        at their ends.
        """
        if self.think_s:
            return None
        met = []
        for count, users in self._dealt(self.users):
            loop = self._inside.benchmark(users)
            met.append((count * loop.requests_per_s, loop, (users - loop.seats, loop.waiting_s)))
        return self._told(met, terms)

    def opening(self, run: Latencies | None) -> Opening:
        """What they meet who all ask in the same instant; `run`, as above, has it in it."""
        found = self._met(self.users, requests=1.0)
        last_s = max(loop.ttft_s + loop.burst_s + wait_s for _, loop, (_, wait_s) in found)
        who = f"If all {self.users:,} users ask in the same instant, the last first token comes"
        if self.users == 1:
            who = "The first token of the only user comes"
        told = f"{who} after about {format_duration(last_s, 2)}."
        if run is None:
            return Opening(last_ttft_s=last_s, words=told)
        told += (
            f" {REQUESTS_PER_CLIENT:g} requests each from there on, as benchmarks send them, have a TTFT of "
            f"{format_duration(run.ttft_s.mean, 3)} on average, and "
            f"{format_duration(run.ttft_s.p95, 3)} at P95."
        )
        return Opening(last_ttft_s=last_s, ttft_s=run.ttft_s, words=told)

    def bound(self, bound: Bound) -> Bound:
        """What keeps a replica from more, and how many wait for it."""
        waiting = sum(share * max(0, n - self.places) for n, share in self.source.under_way)
        if waiting < 0.5:
            return bound
        wait_s = waiting / self.rate_per_s
        wait = (
            f"Of {self.users:,} users {format_number(self.places)} are served at once; the others wait "
            f"{format_duration(wait_s, 3)} for a place, on average."
        )
        if self.think_s:
            wait = (
                f"All {format_number(self.places)} places are taken; who asks waits "
                f"{format_duration(wait_s, 3)} for one, on average."
            )
        return msgspec.structs.replace(bound, because=f"{bound.because} {wait}")

    def _completed_per_s(self, n: int) -> float:
        """By all replicas, of which some have one more than others."""
        each, more = divmod(min(n, self.places), self.replicas)
        rate = (self.replicas - more) * self._inside.completed_per_s(each)
        return rate + more * self._inside.completed_per_s(each + 1) if more else rate

    def _met(self, n: int, requests: float | None = None) -> list[tuple[float, Loop, tuple[int, float]]]:
        """With so many under way: shares of requests, their loop, and how many wait with them how long."""
        asked = {} if requests is None else {"requests": requests}
        if n > self.places:
            loop = self._inside.loop(self._inside.gate, **asked)
            waiting = n - self.places
            return [(1.0, loop, (waiting, waiting / self.replicas / loop.requests_per_s))]
        parts = [(count, self._inside.loop(users, **asked)) for count, users in self._dealt(n)]
        total = sum(count * loop.requests_per_s for count, loop in parts)
        return [(count * loop.requests_per_s / total, loop, (0, 0.0)) for count, loop in parts]

    def _dealt(self, n: int) -> list[tuple[int, int]]:
        """How many replicas have how many of so many."""
        each, more = divmod(n, self.replicas)
        parts = (more, each + 1), (self.replicas - more, each)
        return [(count, users) for count, users in parts if count and users]

    def _told(self, met: Sequence[tuple[float, Loop, tuple[int, float]]], terms: Terms) -> Latencies:
        """Over requests that meet these loops, each as often as that."""
        import numpy as np

        waits: list[tuple[float, Law]] = []
        ttfts: list[tuple[float, Law]] = []
        tpots: list[tuple[float, Law]] = []
        e2es: list[tuple[float, Law]] = []
        lengths, shares = (np.array(each) for each in zip(*self._inside.outputs, strict=True))
        for share, loop, (waiting, wait_s) in met:
            wait = seat_waits(waiting, wait_s)
            ttft = summed(wait, first_tokens(loop))
            after_s = loop.e2e_s - loop.ttft_s
            more = (lengths - 1) / (self._inside.output_tokens - 1) if after_s else np.zeros(len(lengths))
            tpot = self._inside.tpots(loop)
            waits.append((share, wait))
            ttfts.append((share, ttft))
            tpots.append((share, tpot))
            luck, likely = thinned(tpot, LUCK)
            after = np.outer(after_s * more, luck / loop.tpot_s if after_s else luck * 0 + 1).ravel()
            often = np.outer(shares / shares.sum(), likely).ravel()
            e2es.append((share, summed(thinned(ttft, FINE), (after, often))))
        return Latencies(
            wait_s=_percentiles(waits, terms),
            ttft_s=_percentiles(ttfts, terms),
            tpot_s=_percentiles(tpots, terms),
            e2e_s=_percentiles(e2es, terms),
        )


def _percentiles(laws: Sequence[tuple[float, Law]], terms: Terms) -> Percentiles:
    spread = Spread.of(mixed(laws))
    return Percentiles(
        mean=spread.mean,
        p50=spread.p50,
        p95=spread.p95,
        p99=spread.p99,
        at_percentile=spread.quantile(terms.percentile),
    )
