"""Routing: which of the replicas that have room gets this request?

Each policy answers from the candidates (in the set, below their gate) and their load at this moment;
the governor counts the choice before anything else is decided, so that a burst cannot all land on
one replica. Ties are broken by the dice, never by registration order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from random import Random
from typing import Protocol, TypeVar

from tidegate.core.hashing import hash64
from tidegate.policy.settings import RoutingPolicy, RoutingSettings


class Loaded(Protocol):
    """What routing may know of a replica."""

    name: str
    weight: float
    in_flight: int
    kv_held: float


R = TypeVar("R", bound=Loaded)


@dataclass(slots=True)
class Router:
    """One pool's policy and the little that it remembers."""

    settings: RoutingSettings
    _turn: dict[str, float] = field(default_factory=dict)  # round robin: service had, per weight
    _level: float = 0.0
    _ring: Ring = field(default_factory=lambda: Ring((), ()))

    def by_tokens(self) -> bool | None:
        """Whether the least tokens decide, else requests, unless a prefix does; None where more is needed."""
        match self.settings.policy:
            case RoutingPolicy.LEAST_TOKENS | RoutingPolicy.PREFIX_AFFINITY:
                return True
            case RoutingPolicy.LEAST_REQUESTS:
                return False
            case _:
                return None

    def pick(self, candidates: Sequence[R], everyone: Sequence[R], affinity: int | None, rng: Random) -> R:
        """One of `candidates` (non-empty, a part of `everyone`) for a request with that affinity hash.

        Not where `by_tokens` says that load decides: the pool keeps its replicas in that order.
        """
        if len(candidates) == 1 and self.settings.policy is not RoutingPolicy.ROUND_ROBIN:
            return candidates[0]
        match self.settings.policy:
            case RoutingPolicy.POWER_OF_TWO:
                pair = rng.sample(range(len(candidates)), 2)
                return _least([candidates[i] for i in pair], rng)
            case RoutingPolicy.RANDOM:
                return rng.choices(candidates, [each.weight for each in candidates])[0]
            case RoutingPolicy.ROUND_ROBIN:
                return self._next_in_turn(candidates)
            case RoutingPolicy.CONSISTENT_HASH:
                if affinity is None:
                    return _least(candidates, rng)
                return self._nearest(candidates, everyone, affinity)
            case _:
                raise AssertionError(f"{self.settings.policy} is decided by load: see `by_tokens`")

    def _next_in_turn(self, candidates: Sequence[R]) -> R:
        """Weighted round robin: whoever has had least service per weight.

        Nobody is served for having been away: who comes (back) starts at the level of the last choice.
        """
        turn, level = self._turn, self._level
        chosen = min(candidates, key=lambda each: max(turn.get(each.name, 0.0), level))
        self._level = max(turn.get(chosen.name, 0.0), level)
        turn[chosen.name] = self._level + 1.0 / chosen.weight
        return chosen

    def _nearest(self, candidates: Sequence[R], everyone: Sequence[R], affinity: int) -> R:
        """Walk the ring from the key to the first replica that is not above its bounded load.

        Source: Mirrokni, Thorup and Zadimoghaddam, "Consistent hashing with bounded loads" (2018).
        """
        names = tuple(each.name for each in everyone)
        if self._ring.names != names:
            self._ring = Ring.of(names, self.settings.virtual_nodes)
        by_name = {each.name: each for each in candidates}
        weights = sum(each.weight for each in candidates)
        in_flight = sum(each.in_flight for each in candidates) + 1
        for name in self._ring.walk(affinity):
            replica = by_name.get(name)
            if replica is None:
                continue
            bound = ceil(self.settings.load_factor * in_flight * replica.weight / weights)
            if replica.in_flight + 1 <= bound:
                return replica
        # Bounds sum to more than the load, so some replica is below its own: not reached.
        return min(candidates, key=requests_load)


def requests_load(replica: Loaded) -> float:
    """Requests that it holds, per weight."""
    return replica.in_flight / replica.weight


def tokens_load(replica: Loaded) -> float:
    """KV tokens that it holds, per weight."""
    return replica.kv_held / replica.weight


def _least(candidates: Sequence[R], rng: Random) -> R:
    loads = [requests_load(replica) for replica in candidates]
    lowest = min(loads)
    first = loads.index(lowest)
    ties = loads.count(lowest)
    if ties > 1:
        for _ in range(int(rng.random() * ties)):
            first = loads.index(lowest, first + 1)
    return candidates[first]


@dataclass(slots=True, frozen=True)
class Ring:
    """Points on a circle of 64-bit hashes; the same names give the same ring in every process."""

    names: tuple[str, ...]
    points: tuple[tuple[int, str], ...]

    @classmethod
    def of(cls, names: tuple[str, ...], virtual_nodes: int) -> Ring:
        """A ring with `virtual_nodes` points for each name."""
        points = [
            (hash64(b"%s#%d" % (name.encode(), i)), name) for name in names for i in range(virtual_nodes)
        ]
        return cls(names, tuple(sorted(points)))

    def walk(self, key: int) -> Iterator[str]:
        """Every name once, in the order in which the circle meets them from `key` on."""
        first = bisect_right(self.points, (key, ""))
        met: set[str] = set()
        for index in range(first - len(self.points), first):  # from `first` on, around the end
            name = self.points[index][1]
            if name not in met:
                met.add(name)
                yield name
                if len(met) == len(self.names):
                    return
