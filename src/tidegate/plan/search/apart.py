"""What do replicas for prompts and those that decode cost at least, and what exactly, if the budgets hold?

As `candidate` has it of replicas that do both.
"""

from __future__ import annotations

from functools import cached_property
from math import inf

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.perf.deployment import Deployment
from tidegate.plan.alternatives import Point
from tidegate.plan.ask import Ask, Replica
from tidegate.plan.disaggregated.apart import Sides
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.disaggregated.sizing import SizeApart, least_replicas, size_apart
from tidegate.plan.disaggregated.splitting import most_of
from tidegate.plan.search.candidate import Whole
from tidegate.plan.search.candidates import bits_of
from tidegate.plan.search.costs import Key, per_hour_tokens, point_of, prompt_alone_s
from tidegate.plan.sizing import NEAR

NEVER: Key = (inf, 0.0, 0.0)
"""Of what cannot be."""


class Apart:
    """Replicas for prompts and replicas that decode, of one deployment."""

    kind = "disaggregated"

    def __init__(self, ask: Ask, deployment: Deployment, front: Front) -> None:
        self.ask, self.deployment, self.front = ask, deployment, front
        assert isinstance(ask.replica, Replica)
        self.replica = ask.replica
        self.priced = ask.terms.per_hour_usd is not None and front.price(ask) is not None
        self._bits = tuple(-bits for bits in bits_of(deployment))

    @cached_property
    def station(self) -> Sides | None:
        """None where it is plain that no rate holds the budgets."""
        engine, load, terms = self.replica.engine, self.ask.load, self.ask.terms
        if load.longest_tokens > min(engine.context_tokens, engine.kv_tokens):
            return None
        try:
            sides = Sides(self.ask, self.front)
        except ConfigurationError:
            return None
        if not sides.decode.sustained_per_s or not sides.prefill.sustained_per_s:
            return None
        most_s = terms.budgets.ttft_s
        late = most_s is not None and prompt_alone_s(sides.prefill.batch, terms.percentile) > most_s
        return None if late else sides

    @property
    def alone(self) -> tuple[float, float]:
        """TTFT and TPOT of a request that meets no other: no rate has less."""
        sides = self.station
        assert sides is not None
        tpot_s = sides.decode.batch.saturated(1).tpot_s + sides.transfer.alone_s / sides.gaps
        return prompt_alone_s(sides.prefill.batch, self.ask.terms.percentile), tpot_s

    @cached_property
    def floor(self) -> Key:
        """No plan for it is better."""
        sides, rate = self.station, self.ask.load.requests_per_s
        assert sides is not None
        if rate is None and self.ask.load.users is None:
            splits = list(self.front.splits(self.replica, self.ask.terms.spare_replicas))
            return min((self._key(each, most_of(self.ask, sides, each)) for each in splits), default=NEVER)
        return self._key(least_replicas(self.ask, sides, rate or 0.0), rate or 0.0)

    @cached_property
    def size(self) -> SizeApart | None:
        """In full; None where it does not hold the budgets."""
        found = size_apart(self.ask, self.front, self.station)
        if not isinstance(found, SizeApart) or min(found.prefill_spare, found.decode_spare) < 0:
            return None
        most = found.most_per_s
        return found if most is None or found.requests_per_s <= most * (1 + NEAR) else None

    @cached_property
    def key(self) -> Key | None:
        """How good it is; None where it does not hold the budgets."""
        size = self.size
        return None if size is None else self._key(size.counts, size.requests_per_s)

    def may_be_better(self, than: Key) -> bool:
        """Whether it may hold the budgets at a lower key."""
        return self.station is not None and self.floor < than

    @cached_property
    def point(self) -> Point:
        """As told."""
        size = self.size
        assert size is not None
        used = size.utilisations
        parts = {"prefill": "compute", "link": "link", "decode": "bandwidth"}
        found = point_of(
            self,
            replicas=size.prefill_replicas + size.decode_replicas,
            accelerators=size.accelerators,
            spare_replicas=2 * self.ask.terms.spare_replicas,
            requests_per_s=size.requests_per_s,
            utilisation=size.utilisation,
            concurrency_per_replica=size.sides.decode.gates.least,
            binding=parts[max(used, key=used.__getitem__)],
            ttft_s=size.latencies.ttft_s.at_percentile,
            tpot_s=size.latencies.tpot_s.at_percentile,
        )
        prefill, cost = self.front.prefill, self.front.cost(self.ask, *size.counts)
        assert prefill.deployment is not None
        per_million = None if cost is None else cost / per_hour_tokens(self.ask, size.requests_per_s) * 1e6
        return msgspec.structs.replace(
            found,
            prefill_replicas=size.prefill_replicas,
            prefill_accelerator=prefill.deployment.accelerator.name,
            prefill_tp=prefill.deployment.tp,
            prefill_accelerators_per_replica=prefill.accelerators,
            cost_per_hour=cost,
            cost_per_million_output_tokens=per_million,
        )

    def _key(self, counts: tuple[int, int], rate: float) -> Key:
        cost = self.front.cost(self.ask, *counts)
        if cost is None:
            cost = counts[0] * self.front.prefill.accelerators + counts[1] * self.replica.accelerators
        if self.ask.load.requests_per_s is None and self.ask.load.users is None:
            cost = cost / per_hour_tokens(self.ask, rate) * 1e6
        return cost, *self._bits  # type: ignore[return-value]


Candidate = Whole | Apart
