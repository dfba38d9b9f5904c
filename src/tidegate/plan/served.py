"""What does a replica do whose step times are known, computed or measured?

Its gates are those of its KV cache, of its batch and of the TPOT budget; what it sustains is the rate of a
batch that is as full as the least of them lets it be. Latencies are `steady`'s.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

from tidegate.core.units import format_duration, format_number
from tidegate.plan.answer import Gates, Impossible, Percentiles, Room, Wait
from tidegate.plan.ask import Load, Replica, Terms
from tidegate.plan.bounds import bound_of, gates_of
from tidegate.plan.ceilings import CLOSE, highest
from tidegate.plan.closed.clients import ClosedCrowd
from tidegate.plan.closed.inside import Inside
from tidegate.plan.laws.batching import Batch
from tidegate.plan.laws.lengths import Kind, Lengths
from tidegate.plan.laws.population import Arrivals
from tidegate.plan.laws.speculating import batch_of, of_tokens, pace_of, tpot_of, tpots_of
from tidegate.plan.laws.spread import Spread
from tidegate.plan.laws.steady import Solved, Steady
from tidegate.plan.room import burst_room, lost_room, queue_room
from tidegate.plan.station import SHOWN, SLACK, Bound, ClassLatencies, Latencies
from tidegate.plan.tenants import classes_of, of_class
from tidegate.plan.unmet import over_budget

LIGHT = 1e-3
"""Of what is sustained: a rate at which requests hardly meet."""


class ServedStation:
    """A replica, under a load and terms."""

    def __init__(self, replica: Replica, load: Load, terms: Terms, batch: Batch | None = None) -> None:
        """`batch`: of the replica under the load, where it is known."""
        self._replica, self._load, self._terms = replica, load, terms
        self._batch = batch or batch_of(replica.engine, lengths_of(load))
        self._gates = gates_of(self._batch, terms)
        self._full = self._batch.saturated(self._gates.least)
        self._saturated = lru_cache(maxsize=None)(self._batch.saturated)
        self._latencies = lru_cache(maxsize=1024)(self._computed)
        self._solved = lru_cache(maxsize=2)(self._solve)

    @property
    def gates(self) -> Gates:
        """Of the cache, the batch and the budget."""
        return self._gates

    @property
    def sustained_per_s(self) -> float:
        """Of a batch that is always full."""
        return self._full.requests_per_s

    @property
    def decode_steps(self) -> float:
        """Output tokens but the first."""
        return self._batch.decode_steps * pace_of(self._batch)

    def completed_per_s(self, inside: int) -> float:
        """Of a batch that always has so many."""
        return self._saturated(inside).requests_per_s

    def tpot_s(self, inside: int) -> float:
        """Of that batch."""
        return self._saturated(inside).tpot_s / pace_of(self._batch)

    @property
    def full_tpot_s(self) -> float:
        """Of that batch."""
        return self._full.tpot_s / pace_of(self._batch)

    @property
    def bound(self) -> Bound:
        """See `bounds`."""
        return bound_of(self._replica, self._load, self._terms, self._batch, self._full)

    @cached_property
    def inside(self) -> Inside:
        """The same replica for clients who wait for their answers."""
        return Inside(self._replica, self._load, self._gates)

    def latencies(self, rate_per_s: float, replicas: int) -> Latencies | None:
        """At that rate for all of them, from one queue."""
        return self._latencies(rate_per_s, replicas)

    def within(self, terms: Terms, rate_per_s: float, replicas: int) -> bool:
        """See `Station`. Where first tokens are late, nothing else is computed."""
        most_s = None if terms.classes else terms.budgets.ttft_s
        if most_s is not None:
            solved = self._solved(rate_per_s, replicas)
            if solved is None or solved.ttft_s.quantile(self._terms.percentile) > most_s * SLACK:
                return False
        found = self.latencies(rate_per_s, replicas)
        return found is not None and found.within(terms)

    def waits(self, replicas: int) -> tuple[Wait, ...]:
        """Before the gate, of one replica with a queue of its own and of all with one."""
        return tuple(self._wait(utilisation, replicas) for utilisation in SHOWN)

    def room(self, replicas: int, lost: int) -> tuple[Room, ...]:
        """The queue, a lost replica, bursts, and what a fuller batch does to TPOT."""
        isolated, pooled = self.ceiling(1), self.ceiling(replicas - lost)
        return (
            queue_room(self._terms, isolated, pooled, replicas - lost),
            lost_room(pooled, replicas, lost),
            burst_room(self._load.peak_ratio),
            self._batch_room(),
        )

    def ceiling(self, replicas: int) -> float:
        """The utilisation up to which so many replicas hold every budget."""

        def held(utilisation: float) -> bool:
            found = self.latencies(utilisation * replicas * self.sustained_per_s, replicas)
            return found is not None and found.within(self._terms)

        return highest(held, 1.0, CLOSE)

    def _batch_room(self) -> Room:
        half_s, full_s = self.tpot_s(max(1, self._gates.least // 2)), self.full_tpot_s
        grows = "TPOT" if self._batch.decode_steps else "a step"
        return Room(
            reason="batch",
            utilisation=None,
            words=(
                f"{grows} is {format_duration(half_s, 3)} at half of the gate, "
                f"{format_duration(full_s, 3)} at {self._gates.least:,}"
            ),
        )

    def _arrivals(self, rate_per_s: float, replicas: int) -> Arrivals:
        return Arrivals(rate_per_s=rate_per_s, cv2=self._load.gap_cv**2, replicas=replicas)

    def _wait(self, utilisation: float, replicas: int) -> Wait:
        each = utilisation * self.sustained_per_s
        isolated, pooled = self.latencies(each, 1), self.latencies(each * replicas, replicas)
        assert isolated is not None
        assert pooled is not None
        return Wait(
            utilisation=utilisation,
            isolated_s=isolated.wait_s.at_percentile,
            pooled_s=pooled.wait_s.at_percentile,
            pooled_replicas=replicas,
            ttft_s=pooled.ttft_s.at_percentile,
            tpot_s=pooled.tpot_s.at_percentile,
        )

    def _solve(self, rate_per_s: float, replicas: int) -> Solved | None:
        if rate_per_s >= replicas * self.sustained_per_s:
            return None
        return Solved(self._batch, self._arrivals(rate_per_s, replicas), self._gates.least)

    def _computed(self, rate_per_s: float, replicas: int) -> Latencies | None:
        if (solved := self._solved(rate_per_s, replicas)) is None:
            return None
        found = solved.steady()
        return Latencies(
            wait_s=self._percentiles(found.wait_s),
            ttft_s=self._percentiles(found.ttft_s),
            tpot_s=self._percentiles(tpots_of(self._batch, found.tpot_s)),
            e2e_s=self._percentiles(found.e2e_s),
            itl_s=self._percentiles(found.itl_s),
            sequences=found.sequences,
            classes=self._classes(found),
        )

    def _classes(self, found: Steady) -> tuple[ClassLatencies, ...]:
        if not self._terms.classes:
            return ()
        from tidegate.plan.classes import class_latencies

        tpot_s = tpots_of(self._batch, found.tpot_s)
        return class_latencies(
            self._batches, of_tokens(self._batch), (found.ttft_s, tpot_s), self._terms.percentile
        )

    @cached_property
    def _batches(self) -> dict[str, Batch]:
        """What each class would be to the replica by itself."""
        return {
            name: Batch(self._replica.engine, lengths_of(of_class(self._load, name)))
            for name in classes_of(self._load)
        }

    def _percentiles(self, spread: Spread) -> Percentiles:
        return Percentiles(
            mean=spread.mean,
            p50=spread.p50,
            p95=spread.p95,
            p99=spread.p99,
            at_percentile=spread.quantile(self._terms.percentile),
        )


def lengths_of(load: Load) -> Lengths:
    """As the batch has them. A prompt of no tokens is one of one."""
    kinds = tuple(
        Kind(
            prompt_tokens=max(1.0, kind.prompt_tokens),
            output_tokens=kind.output_tokens,
            prompt_cv=kind.prompt_cv,
            output_cv=kind.output_cv,
            share=kind.share,
        )
        for kind in load.kinds
    )
    return Lengths(kinds=kinds, hit_ratio=load.prefix_hit_ratio)


def served_station(replica: Replica, load: Load, terms: Terms) -> ServedStation | Impossible:
    """The replica, unless it cannot serve one such request within the terms."""
    engine, longest = (
        replica.engine,
        max(load.kinds, key=lambda kind: kind.prompt_tokens + kind.output_tokens),
    )
    tokens = longest.prompt_tokens + longest.output_tokens
    if tokens > engine.context_tokens:
        return Impossible(
            problem=(
                f"a request of {format_number(longest.prompt_tokens)} prompt and "
                f"{format_number(longest.output_tokens)} output tokens is longer than the "
                f"{format_number(engine.context_tokens)} that {replica.name} takes"
            ),
            remedy=f"shorter requests, or a model with a context of {format_number(tokens)} tokens",
            binding="kv_memory",
            needed=tokens,
            available=engine.context_tokens,
            unit="tokens",
        )
    room = engine.kv_tokens // replica.copies
    if tokens > room:
        return Impossible(
            problem=(
                f"one request of {format_number(tokens)} tokens does not fit into the KV cache of "
                f"{replica.name}, {format_number(room)} tokens{' a copy' * (replica.copies > 1)}"
            ),
            remedy="shorter requests, a KV cache in fewer bits, or more memory per replica would do",
            binding="kv_memory",
            needed=tokens,
            available=room,
            unit="tokens",
        )
    batch = batch_of(engine, lengths_of(load))
    token_s = tpot_of(batch, 1)
    tpot_s = terms.budgets.tpot_s
    if tpot_s is not None and batch.tpot_gate(tpot_s) < 1:
        return Impossible(
            problem=(
                f"the TPOT budget of {format_duration(tpot_s, 3)} is below one step of {replica.name}: "
                f"a request alone gets {format_duration(token_s, 3)}"
            ),
            remedy="a larger budget, more accelerators for a replica, or fewer bits per weight would do",
            binding="latency_budget",
            needed=token_s,
            available=tpot_s,
            unit="s",
        )
    station = ServedStation(replica, load, terms)
    if load.users is not None:
        alone = ClosedCrowd(station.inside, users=1).latencies(terms)
    else:
        found = station.latencies(LIGHT * station.sustained_per_s, 1)
        assert found is not None
        alone = found
    return over_budget(alone, terms, f"{replica.name} takes") or station
