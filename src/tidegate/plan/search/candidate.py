"""What does one deployment cost at least, and what exactly, if it holds the budgets?

The least takes two steps of a batch to know; the exact figure takes the latencies at a rate, which is ten
times the work. A search asks for the second only where the first may be the best.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import ceil, inf, isnan, nan

from tidegate.core.records import Budgets
from tidegate.perf.deployment import Deployment
from tidegate.plan.alternatives import Point
from tidegate.plan.answer import Gates, Impossible
from tidegate.plan.ask import Ask, Replica
from tidegate.plan.ceilings import CLOSE, highest
from tidegate.plan.closed.clients import ClosedCrowd
from tidegate.plan.closed.inside import Inside
from tidegate.plan.closed.users import Crowd
from tidegate.plan.laws.batching import Batch
from tidegate.plan.laws.speculating import batch_of, tpot_of
from tidegate.plan.search.candidates import bits_of
from tidegate.plan.search.costs import Key, cost_key, point_of, prompt_alone_s
from tidegate.plan.served import LIGHT, ServedStation, lengths_of
from tidegate.plan.sizing import (
    MOST_REPLICAS,
    NEAR,
    Size,
    crowd_of,
    fewest,
    fewest_for_users,
    held_by_all,
    holds,
    on_target,
    size_of,
)

AskFor = Callable[[Deployment], Ask]
"""The question about one of them; ConfigurationError where there is not even room for its weights."""
VARIED = 0.95
"""Of replicas that would be needed if as many users always were under way as are in the mean."""


class Whole:
    """Replicas that do both, of one deployment."""

    kind = "aggregated"

    def __init__(self, ask: Ask, deployment: Deployment) -> None:
        self.ask, self.deployment = ask, deployment
        assert isinstance(ask.replica, Replica)
        self.replica = ask.replica
        self.priced = ask.terms.per_hour_usd is not None
        self._enough: int | None = None
        """Replicas that hold the budgets, the fewest of which it is known."""
        self._bits = tuple(-bits for bits in bits_of(deployment))

    @cached_property
    def station(self) -> ServedStation | None:
        """None where it is plain that no rate holds the budgets."""
        load, terms = self.ask.load, self.ask.terms
        if load.longest_tokens > self.replica.longest_tokens:
            return None
        ttft_s, tpot_s = self.alone
        budgets = terms.budgets
        if terms.classes:  # the tightest TTFT is not of all prompts
            budgets = Budgets(tpot_s=budgets.tpot_s)
        if (budgets.ttft_s is not None and ttft_s > budgets.ttft_s) or (
            budgets.tpot_s is not None and tpot_s > budgets.tpot_s
        ):
            return None
        return ServedStation(self.replica, load, terms, self._batch)

    @cached_property
    def _batch(self) -> Batch:
        return batch_of(self.replica.engine, lengths_of(self.ask.load))

    @cached_property
    def alone(self) -> tuple[float, float]:
        """TTFT and TPOT of a request that meets no other: no rate has less. TPOT is 0 for one token."""
        load = self.ask.load
        if load.users is not None:
            inside = Inside(self.replica, load, Gates(batch=self.replica.engine.max_num_seqs))
            found = ClosedCrowd(inside, users=1).latencies(self.ask.terms)
            tpot_s = found.tpot_s.at_percentile
            return found.ttft_s.at_percentile, 0.0 if isnan(tpot_s) else tpot_s
        batch = self._batch
        tpot_s = tpot_of(batch, 1) if batch.decode_steps else 0.0
        return prompt_alone_s(batch, self.ask.terms.percentile), tpot_s

    @cached_property
    def floor(self) -> Key:
        """No plan for it is better."""
        station = self.station
        assert station is not None
        return self._key(*self._least(station))

    @cached_property
    def size(self) -> Size | None:
        """In full; None where it does not hold the budgets."""
        station, load = self.station, self.ask.load
        if station is None:
            return None
        if load.users is not None:
            return self._fewest_for_users(station, load.users)
        if load.requests_per_s is None:
            return self._most(station)
        return self._fewest(station, load.requests_per_s)

    @cached_property
    def key(self) -> Key | None:
        """How good it is; None where it does not hold the budgets."""
        return None if self.size is None else self._key(self.size.replicas, self.size.requests_per_s)

    def may_be_better(self, than: Key) -> bool:
        """Whether it may hold the budgets at a lower key: one look, at the most that this cost buys."""
        station, load, terms = self.station, self.ask.load, self.ask.terms
        if station is None or self.floor >= than:
            return False
        each = self._key(1, load.requests_per_s or 1.0)[0]
        if self.size_is_known or not each or not 0 < than[0] < inf:
            return True
        if load.requests_per_s is None and load.users is None:
            # The more they carry, the less a token costs: so many requests/s are as dear.
            replicas = terms.replicas or 1
            left = replicas - min(terms.spare_replicas, replicas - 1)
            return holds(station, terms, replicas * each / than[0], left)
        if terms.replicas is not None or terms.within_s is not None:
            return True
        most = int(than[0] / each * (1 + NEAR))
        if (each * most, *self._bits) >= than:  # as dear, and no more bits
            most -= 1
        left = max(1, most - terms.spare_replicas)
        if load.requests_per_s is not None:
            held = holds(station, terms, load.requests_per_s, left)
            if held:
                self._enough = min(left, self._enough or left)
            return held
        return on_target(crowd_of(self.ask, station, most), terms) and crowd_of(
            self.ask, station, left
        ).latencies(terms).within(terms)

    @property
    def size_is_known(self) -> bool:
        """Whether it was sized already."""
        return "size" in self.__dict__

    @cached_property
    def point(self) -> Point:
        """As told."""
        size = self.size
        assert size is not None
        terms = self.ask.terms
        if terms.within_s is not None:
            ttft_s, tpot_s = nan, size.station.full_tpot_s
        else:
            found = (
                size.crowd.latencies(terms)
                if size.crowd is not None
                else size.station.latencies(size.requests_per_s, size.replicas)
            )
            assert found is not None
            ttft_s, tpot_s = found.ttft_s.at_percentile, found.tpot_s.at_percentile
        return point_of(
            self,
            replicas=size.replicas,
            accelerators=size.replicas * self.replica.accelerators,
            spare_replicas=max(0, min(size.spare_replicas, terms.spare_replicas)),
            requests_per_s=size.requests_per_s,
            utilisation=size.utilisation,
            concurrency_per_replica=size.station.gates.least,
            binding=size.station.bound.binding,
            ttft_s=ttft_s,
            tpot_s=tpot_s,
        )

    def _least(self, station: ServedStation) -> tuple[float, float]:
        """Replicas that are needed at least, and the rate that they carry."""
        load, terms, each = self.ask.load, self.ask.terms, station.sustained_per_s
        rate = load.requests_per_s
        if rate is not None:
            if terms.replicas is not None:
                return terms.replicas, rate
            full = rate / each * (1 - NEAR)
            by_target = ceil(full / terms.target_utilisation)
            return max(max(1, ceil(full)) + terms.spare_replicas, by_target), rate
        if load.users is not None:
            return terms.replicas or self._least_for_users(station, load.users), nan
        replicas = terms.replicas or 1
        return replicas, terms.target_utilisation * replicas * each

    def _least_for_users(self, station: ServedStation, users: int) -> int:
        """A target is of places. Of a replica on target, so many users are inside, and so many think."""
        inside, terms = station.inside, self.ask.terms
        taken = terms.target_utilisation * inside.gate
        count = max(1, int(taken))
        thinking = taken / count * inside.loop(count).requests_per_s * inside.think_s
        # Their number varies, and with it what a replica completes: in the mean it is a little less.
        fewest = users / (taken + thinking) * (VARIED if thinking else 1 - NEAR)
        return max(1 + terms.spare_replicas, ceil(fewest))

    def _fewest(self, station: ServedStation, rate: float) -> Size | None:
        """As `sizing.size_of`, which looks for how many may be lost; here it is enough that the spare may."""
        terms, each = self.ask.terms, station.sustained_per_s
        spare = terms.spare_replicas
        least = max(1, ceil(rate / each * (1 - NEAR)))
        by_target = ceil(rate / (terms.target_utilisation * each) * (1 - NEAR))
        if least > MOST_REPLICAS:
            return None
        replicas = terms.replicas or max(least + spare, by_target)
        left = max(least, replicas - spare)
        if not holds(station, terms, rate, left):
            if terms.replicas is not None or not (self._enough or self._ever(station)):
                return None
            needed = fewest(station, terms, rate, left + 1, self._enough)
            if isinstance(needed, Impossible):
                return None
            replicas = needed + spare
        if replicas < least + spare:
            return None
        if terms.replicas is None:
            replicas = held_by_all(station, terms, rate, replicas)
        return Size(replicas=replicas, spare_replicas=spare, requests_per_s=rate, station=station)

    def _fewest_for_users(self, station: ServedStation, users: int) -> Size | None:
        """As `_fewest`, but that what they send depends on how many replicas there are."""
        ask, terms = self.ask, self.ask.terms
        if terms.replicas is not None:
            found = size_of(ask)
            return found if isinstance(found, Size) and found.spare_replicas >= 0 else None

        def held(crowd: Crowd | ClosedCrowd) -> bool:
            return crowd.latencies(terms).within(terms)

        by_target = fewest_for_users(lambda crowd: on_target(crowd, terms), ask, station)
        if isinstance(by_target, Impossible):
            return None
        needed: int | Impossible = max(1, by_target - terms.spare_replicas)
        assert isinstance(needed, int)
        if not held(crowd_of(ask, station, needed)):
            if not held(crowd_of(ask, station, max(users, needed))):  # where nobody meets another
                return None
            needed = fewest_for_users(held, ask, station, needed + 1)
            if isinstance(needed, Impossible):
                return None
        replicas = max(needed + terms.spare_replicas, by_target)
        crowd = crowd_of(ask, station, replicas)
        return Size(
            replicas=replicas,
            spare_replicas=terms.spare_replicas,
            requests_per_s=crowd.rate_per_s,
            station=station,
            crowd=crowd,
        )

    def _most(self, station: ServedStation) -> Size | None:
        terms = self.ask.terms
        if not self._ever(station):
            return None
        replicas = terms.replicas or 1
        spare = min(terms.spare_replicas, replicas - 1)
        most = terms.target_utilisation * replicas * station.sustained_per_s
        rate = highest(lambda each: holds(station, terms, each, replicas - spare), most, CLOSE)
        if not rate:
            return None
        return Size(replicas=replicas, spare_replicas=spare, requests_per_s=rate, station=station)

    def _ever(self, station: ServedStation) -> bool:
        """Whether requests that hardly meet are within the budgets."""
        return holds(station, self.ask.terms, LIGHT * station.sustained_per_s, 1)

    def _key(self, replicas: float, rate: float) -> Key:
        return cost_key(self.ask, replicas * self.replica.accelerators, rate), *self._bits  # type: ignore[return-value]
