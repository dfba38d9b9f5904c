"""Pool: who is chosen, and when it must be looked at again, are what a look at every replica would say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any

import msgspec
from hypothesis import event, given
from hypothesis import strategies as st

from tests.policy.build import ask
from tidegate.core.messages import FailureKind, ReplicaAdded, ReplicaSeen
from tidegate.policy.fleet import Fleet
from tidegate.policy.pool import Member, Pool
from tidegate.policy.replicas import Hold
from tidegate.policy.settings import (
    BreakerSettings,
    ClassSettings,
    HealthSettings,
    PoolSettings,
    RoutingPolicy,
    RoutingSettings,
)
from tidegate.policy.timers import Timers

LOADS: dict[RoutingPolicy, Callable[[Member], float]] = {
    RoutingPolicy.LEAST_TOKENS: lambda member: member.replica.kv_held / member.replica.weight,
    RoutingPolicy.LEAST_REQUESTS: lambda member: member.replica.in_flight / member.replica.weight,
}
POLICIES = st.sampled_from(sorted(LOADS))


@dataclass
class Weather:
    """A pool of changing replicas under random events."""

    rng: Random
    pool: Pool
    fleet: Fleet
    holds: list[Hold] = field(default_factory=list)
    now: float = 0.0
    joined: int = 0

    @classmethod
    def of(cls, policy: RoutingPolicy, rng: Random, **routing: Any) -> Weather:
        """Between one and six replicas of different weights and gates."""
        settings = PoolSettings(
            routing=msgspec.structs.replace(RoutingSettings(policy=policy), **routing),
            health=HealthSettings(rise=1, fall=1, slow_start_s=rng.choice([0.0, 5.0]), stale_after_s=3.0),
            breaker=BreakerSettings(consecutive_failures=1, open_s=2.0),
        )
        pool = Pool.of("m", settings, {"default": ClassSettings()})
        weather = cls(rng, pool, Fleet({"m": pool}, Timers[object](lambda item: False)))
        for _ in range(rng.randint(1, 6)):
            weather.join()
        return weather

    def join(self) -> None:
        """One more replica."""
        self.joined += 1
        added = ReplicaAdded(
            pool="m",
            replica=f"r{self.joined}",
            weight=self.rng.choice([1.0, 1.0, 0.3, 3.0]),
            max_concurrency=self.rng.choice([1, 2, 4]),
            kv_capacity_tokens=self.rng.choice([None, 50, 100]),
            max_prefill_tokens=self.rng.choice([None, None, 40]),
        )
        self.fleet.add(added, self.now)

    def change(self) -> None:
        """Something happens to some replica, or time passes."""
        rng = self.rng
        member = rng.choice(list(self.pool.members.values()))
        replica = member.replica
        hold = rng.choice(self.holds) if self.holds else None
        match rng.randrange(12):
            case 0 | 1 | 2:
                self.holds.append(replica.hold(rng.choice([10.0, 30.0]), rng.choice([10.0, 30.0])))
            case 3 if hold:
                self.holds.remove(hold)
                hold.replica.release(hold)
            case 4 if hold:
                hold.replica.on_first_token(hold)
            case 5 if hold:
                hold.replica.grow(hold, hold.kv_tokens + 15.0)
            case 6:
                replica.on_probe(self.now, rng.random() < 0.7)
                self.pool.look_again_at(member)
            case 7:
                self.fleet.drain(replica.name, self.now, rng.random() < 0.3)
            case 8:
                kind = rng.choice([FailureKind.BUSY, FailureKind.RESET])
                self.fleet.failed(member, kind, 0, self.now, [])
            case 9:
                seen = ReplicaSeen(
                    replica.name, running=replica.in_flight + rng.randint(0, 2), waiting=0,
                    kv_used_ratio=rng.random(), kv_capacity_tokens=rng.choice([40, 80]),
                )  # fmt: skip
                self.fleet.seen(seen, self.now)
            case 10 if len(self.pool.members) > 1 and rng.random() < 0.3:
                self.fleet.remove(replica.name)
            case 11 if self.joined < 8:
                self.join()
            case _:
                self.now += rng.random()


@given(POLICIES, st.randoms(use_true_random=False))
def test_the_least_loaded_with_room_is_chosen(policy: RoutingPolicy, rng: Random) -> None:
    """Whatever has happened, the choice is one that looking at every replica would have made."""
    weather = Weather.of(policy, rng)
    pool, load = weather.pool, LOADS[policy]
    for _ in range(40):
        weather.change()
        kv_tokens, prefill_tokens = rng.choice([(10.0, 5.0), (45.0, 30.0)])
        tried = tuple(name for name in pool.members if rng.random() < 0.1)

        chosen = pool.choose(weather.now, rng, kv_tokens, prefill_tokens, ask(1), tried)

        able = [
            member
            for name, member in pool.members.items()
            if member.available(weather.now)
            and member.replica.has_room(weather.now, kv_tokens, prefill_tokens)
            and name not in tried
        ]
        least = [member for member in able if load(member) == min(map(load, able))]
        event(f"{min(len(able), 2)} with room, {min(len(least), 2)} least loaded")
        assert chosen in least if able else chosen is None


@given(POLICIES, st.randoms(use_true_random=False))
def test_it_is_looked_at_again_when_time_alone_may_help(policy: RoutingPolicy, rng: Random) -> None:
    """It is the instant of the first pause that ends or scrape that grows stale, of all replicas."""
    weather = Weather.of(policy, rng)
    pool = weather.pool
    for _ in range(40):
        weather.change()
        now, when = weather.now, inf
        for member in pool.members.values():
            back_at, stale_at = member.back_at(now), member.replica.seen_at + 3.0
            if back_at > now:
                when = min(when, back_at)
            if member.replica.others and stale_at > now:
                when = min(when, stale_at)

        event("never" if when == inf else "once")
        assert pool.recheck_at(now) == when
        assert pool.back_at(now) == min(member.back_at(now) for member in pool.members.values())
