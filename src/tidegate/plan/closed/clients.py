"""What do users meet who ask again as soon as they are answered?

As benchmarks ask: each replica has its share of them in a closed loop (`closed_loop`), by which docs/accuracy
judges the planner. Who finds neither room in the KV cache nor in the batch waits for a seat. Requests are
taken at their mean lengths, and all that are in a batch go on alike: TPOT is the same of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tidegate.core.units import format_duration, format_number
from tidegate.plan.answer import Gates, Percentiles
from tidegate.plan.ask import Load, Replica, Terms
from tidegate.plan.closed.loop import Clients, Loop, closed_loop
from tidegate.plan.closed.spread import first_tokens, seat_waits
from tidegate.plan.laws.spread import Spread
from tidegate.plan.station import Bound, Latencies

if TYPE_CHECKING:
    from tidegate.plan.closed.spread import Law


MANY = 2**31
"""Users who take every seat there is."""


class Part(NamedTuple):
    """Replicas that have as many users each."""

    replicas: int
    users: int
    loop: Loop


class ClosedCrowd:
    """Users before so many replicas of that kind, to which they are dealt out evenly."""

    def __init__(
        self, replica: Replica, load: Load, gates: Gates, replicas: int = 1, *, users: int | None = None
    ) -> None:
        """`users`: None are those of the load."""
        self._replica, self._load, self._gates = replica, load, gates
        self._users = users or load.users or 1
        self.replicas = replicas

    @cached_property
    def rate_per_s(self) -> float:
        """Requests per second that they come to send."""
        return sum(part.replicas * part.loop.requests_per_s for part in self._parts)

    @cached_property
    def sustained_per_s(self) -> float:
        """Of one replica, every seat of which is taken."""
        return self._loop(MANY).requests_per_s

    @cached_property
    def occupied(self) -> float:
        """Places that are taken, of all inside the gates, 0..1."""
        return min(1.0, self._users / (self._gates.least * self.replicas))

    def latencies(self, terms: Terms) -> Latencies:
        """What they meet."""
        import numpy as np

        waits = [seat_waits(part.loop, part.users - part.loop.seats) for part in self._parts]
        ttfts = [first_tokens(part.loop, part.users - part.loop.seats) for part in self._parts]
        tpots = [(np.array([part.loop.tpot_s]), np.ones(1)) for part in self._parts]
        e2es = [
            (seconds + part.loop.e2e_s - part.loop.ttft_s, shares)
            for part, (seconds, shares) in zip(self._parts, ttfts, strict=True)
        ]
        return Latencies(
            wait_s=self._of_all(waits, terms),
            ttft_s=self._of_all(ttfts, terms),
            tpot_s=self._of_all(tpots, terms),
            e2e_s=self._of_all(e2es, terms),
        )

    def bound(self, bound: Bound) -> Bound:
        """What keeps a replica from more, and how many wait for it."""
        most = max(self._parts, key=lambda part: part.users)
        waiting = most.users - most.loop.seats
        if waiting <= 0:
            return bound
        wait = (
            f"Of {most.users:,} users of a replica {format_number(most.loop.seats)} are served at once; the "
            f"others wait {format_duration(most.loop.waiting_s, 3)} for a place, on average."
        )
        return msgspec.structs.replace(bound, because=f"{bound.because} {wait}")

    @cached_property
    def _parts(self) -> list[Part]:
        each, more = divmod(self._users, self.replicas)
        dealt = ((more, each + 1), (self.replicas - more, each))
        return [Part(count, users, self._loop(users)) for count, users in dealt if count and users]

    def _loop(self, users: int) -> Loop:
        engine, tpot = self._replica.engine, self._gates.tpot
        if tpot is not None:
            engine = msgspec.structs.replace(engine, max_num_seqs=min(engine.max_num_seqs, tpot))
        prompt_tokens = max(1.0, self._load.prompt_tokens)
        clients = Clients(
            count=users,
            prompt_tokens=prompt_tokens,
            output_tokens=self._load.output_tokens,
            cached_tokens=self._load.prefix_hit_ratio * prompt_tokens,
        )
        return closed_loop(engine, clients, copies=self._replica.copies, waiting=self._replica.waiting)

    def _of_all(self, laws: Sequence[Law], terms: Terms) -> Percentiles:
        """Over requests of all replicas, which complete different numbers."""
        import numpy as np

        rates = [part.replicas * part.loop.requests_per_s for part in self._parts]
        shares = [rate * law[1] for rate, law in zip(rates, laws, strict=True)]
        spread = Spread.of((np.concatenate([law[0] for law in laws]), np.concatenate(shares)))
        return Percentiles(
            mean=spread.mean,
            p50=spread.p50,
            p95=spread.p95,
            p99=spread.p99,
            at_percentile=spread.quantile(terms.percentile),
        )
