"""Routing by prefix: whom it prefers, when it does not, and each complaint that users of other routers have.

The complaints are public reports against vLLM's router and production stack, SGLang, llm-d and Dynamo.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.policy.build import ask
from tests.policy.test_pool import Weather
from tidegate.core.messages import FailureKind, Probed, ReplicaAdded
from tidegate.policy.fleet import Fleet
from tidegate.policy.pool import Pool
from tidegate.policy.replicas import Hold
from tidegate.policy.settings import (
    ClassSettings,
    GateSettings,
    HealthSettings,
    PoolSettings,
    RoutingPolicy,
    RoutingSettings,
)
from tidegate.policy.timers import Timers

BLOCK_TOKENS = 100.0
LEAVE_TOKENS = 1_000


def blocks(conversation: int, length: int, shared: int = 0) -> tuple[int, ...]:
    """Of a prompt; its first `shared` blocks are the same in every conversation."""
    return tuple(n if n < shared else conversation * 1_000 + n for n in range(length))


@dataclass(slots=True)
class Site:
    """A pool that routes by prefix, and what it sends."""

    pool: Pool
    fleet: Fleet
    rng: Random
    now: float = 0.0
    holds: list[Hold] = field(default_factory=list)

    @classmethod
    def of(cls, replicas: int, policy: RoutingPolicy = RoutingPolicy.PREFIX_AFFINITY, **routing: Any) -> Site:
        """With replicas `r0`, `r1`, …; nothing is left to exploring unless it is asked for."""
        chosen = {"leave_ratio": 1.0, "leave_tokens": LEAVE_TOKENS, "explore_share": 0.0} | routing
        settings = PoolSettings(
            routing=RoutingSettings(policy=policy, **chosen),
            gate=GateSettings(max_concurrency=1_000),
            health=HealthSettings(rise=1, fall=1),
        )
        pool = Pool.of("m", settings, {"default": ClassSettings()})
        site = cls(pool, Fleet({"m": pool}, Timers[object](lambda item: False)), Random(1))
        for number in range(replicas):
            site.join(f"r{number}")
        return site

    def join(self, name: str, **gate: Any) -> None:
        """One more replica."""
        self.fleet.add(ReplicaAdded(pool="m", replica=name, **gate), self.now)

    def send(self, prefix: tuple[int, ...] = (), tokens: float = 100.0) -> str:
        """Where a request goes; it stays there."""
        request = ask(1, prefix=prefix, prefix_block_tokens=BLOCK_TOKENS)
        member = self.pool.choose(self.now, self.rng, tokens, tokens, request, ())
        assert member is not None
        self.holds.append(member.replica.hold(tokens, tokens))
        self.pool.on_sent(member, request)
        return member.replica.name

    def serve(self, prefix: tuple[int, ...] = (), tokens: float = 100.0) -> str:
        """Where a request goes that is over before the next one comes."""
        name = self.send(prefix, tokens)
        hold = self.holds.pop()
        hold.replica.release(hold)
        return name

    def load(self, name: str, tokens: float) -> None:
        """Something runs on a replica."""
        self.holds.append(self.pool.members[name].replica.hold(tokens, tokens))


# -- whom it prefers ------------------------------------------------------------------------------


def test_a_conversation_stays_where_it_began() -> None:
    """Each turn repeats the turns before it, and goes to the replica that has read them."""
    site = Site.of(8)
    began = {conversation: site.serve(blocks(conversation, 4)) for conversation in range(40)}

    assert len(set(began.values())) == 8
    for turn in range(2, 6):
        for conversation, replica in began.items():
            assert site.serve(blocks(conversation, 4 * turn)) == replica


def test_too_little_in_common_is_not_followed() -> None:
    """A prompt of ten blocks of which two are known goes by load; with three it follows them."""
    site = Site.of(2, match_ratio=0.25)
    first = site.serve(blocks(1, 10, shared=2))
    site.load(first, 50.0)
    assert site.serve(blocks(2, 10, shared=2)) != first

    site = Site.of(2, match_ratio=0.25)
    first = site.serve(blocks(1, 10, shared=3))
    site.load(first, 50.0)
    assert site.serve(blocks(2, 10, shared=3)) == first


def test_the_longer_match_is_preferred_and_nearly_as_long_is_as_good() -> None:
    """Of two that know most of a prompt the less loaded one gets it; one that knows half does not."""
    site = Site.of(3)
    prompt = blocks(1, 20)
    for name, known, load in [("r0", 20, 300.0), ("r1", 19, 200.0), ("r2", 10, 0.0)]:
        site.load(name, load)
        site.pool.on_sent(site.pool.members[name], ask(1, prefix=prompt[:known]))

    assert site.serve(prompt) == "r1"


@pytest.mark.parametrize("replicas", [4, 20], ids=["many of few know it", "few of many know it"])
def test_among_equals_the_dice_choose(replicas: int) -> None:
    """Of those who know a prompt and hold as much, not always the first."""
    site = Site.of(replicas)
    prompt = blocks(1, 8)
    for name in ("r0", "r1", "r2"):
        site.load(name, 50.0)
        site.pool.on_sent(site.pool.members[name], ask(1, prefix=prompt))

    went = Counter(site.serve(prompt) for _ in range(300))
    assert sorted(went) == ["r0", "r1", "r2"]
    assert min(went.values()) > 60


def test_without_a_prefix_it_is_least_tokens() -> None:
    """The same choices to the last throw of the dice, also where all prompts are short or new."""
    prompts = [(), blocks(7, 1)]
    ours, theirs = Site.of(5), Site.of(5, RoutingPolicy.LEAST_TOKENS)
    for number in range(200):
        prefix = blocks(number, 3) if number % 2 else prompts[0]
        assert ours.send(prefix) == theirs.send(prefix)


@pytest.mark.parametrize("state", ["drained", "down", "busy", "removed", "full"])
def test_who_may_not_be_given_more_is_left_at_once(state: str) -> None:
    """However much it knows: affinity chooses among those that are in the set and have room."""
    site = Site.of(3)
    prompt = blocks(1, 8)
    knows = site.serve(prompt)
    member = site.pool.members[knows]
    match state:
        case "drained":
            site.fleet.drain(knows, 0.0, True)
        case "down":
            site.fleet.probed(Probed(replica=knows, ok=False), 0.0)
        case "busy":
            site.fleet.failed(member, FailureKind.BUSY, 0, 0.0, [], 10.0)
        case "removed":
            site.fleet.remove(knows)
        case _:
            for _ in range(1_000):
                site.load(knows, 0.0)
    assert site.serve(prompt) != knows


def test_a_drained_replica_knows_what_it_knew() -> None:
    """Its process has lived on, and so has its cache."""
    site = Site.of(3)
    prompt = blocks(1, 8)
    knows = site.serve(prompt)
    site.fleet.drain(knows, 0.0, True)
    site.fleet.drain(knows, 1.0, False)

    assert site.serve(prompt) == knows


# -- complaints -----------------------------------------------------------------------------------


def test_hot_spot() -> None:
    """One engine of eight took 480 of 480 (vLLM router 179): what all share spreads within the gate."""
    site = Site.of(8)
    share = Counter(site.send(blocks(n, 12, shared=10)) for n in range(480))

    held = [member.replica.kv_held for member in site.pool.members.values()]
    assert len(share) == 8
    assert max(held) - min(held) <= LEAVE_TOKENS + 100.0


def test_a_burst_before_anything_is_known() -> None:
    """Equal scores sent a burst to one pod (llm-d 2515, SGLang 15473): load counts at the choice."""
    site = Site.of(4)

    assert set(Counter(site.send(blocks(n, 6)) for n in range(100)).values()) == {25}


def test_the_first_message_is_not_all() -> None:
    """Routing by the first message alone (SGLang 26263): what follows it tells two conversations apart."""
    site = Site.of(2)
    one, other = blocks(1, 10, shared=4), blocks(2, 10, shared=4)
    first = site.serve(one)
    site.load(first, LEAVE_TOKENS + 200.0)
    second = site.serve(other)
    assert second != first, "it was too loaded then"
    busy = site.holds.pop()
    busy.replica.release(busy)

    assert [site.serve(one), site.serve(other)] == [first, second]


def test_imbalance_does_not_throw_away_all_affinity() -> None:
    """When the best is too loaded SGLang went by load alone (32195): here the second best is asked first."""
    site = Site.of(6)
    prompt = blocks(1, 20)
    for name, known in [("r4", 20), ("r2", 10), ("r5", 6)]:
        site.pool.on_sent(site.pool.members[name], ask(1, prefix=prompt[:known]))

    site.load("r4", LEAVE_TOKENS + 200.0)
    assert site.serve(prompt) == "r2"


def test_memory_is_bounded() -> None:
    """The index grew until the router ran out of memory (production-stack 687, Dynamo 10774)."""
    site = Site.of(4, index_blocks=50)
    for number in range(2_000):
        site.serve(blocks(number, 8))
        if number % 100 == 0:
            site.fleet.remove(next(iter(site.pool.members)))
            site.join(f"new {number}")

    assert site.pool.prefixes is not None
    assert 0 < len(site.pool.prefixes) <= 4 * 50
    site.pool.prefixes.check()


def test_no_more_is_remembered_than_the_cache_holds() -> None:
    """A stale index sends to a cache that has long evicted: 1,000 tokens are ten blocks of 100."""
    site = Site.of(0)
    site.join("small", kv_capacity_tokens=1_000)
    site.join("large")
    site.pool.on_sent(site.pool.members["small"], ask(1, prefix=blocks(1, 8), prefix_block_tokens=100.0))
    site.pool.on_sent(site.pool.members["small"], ask(2, prefix=blocks(2, 8), prefix_block_tokens=100.0))

    assert site.pool.prefixes is not None
    assert len(site.pool.prefixes) == 10


@pytest.mark.parametrize("how", ["probes", "a refused connection"])
def test_a_restarted_replica_is_not_believed_to_remember(how: str) -> None:
    """After a crash its cache is empty, and its load is what counts."""
    site = Site.of(2)
    prompt = blocks(1, 8)
    knows = site.serve(prompt)
    if how == "probes":
        site.fleet.probed(Probed(replica=knows, ok=False), 0.0)
        site.fleet.probed(Probed(replica=knows, ok=True), 1.0)
    else:
        site.fleet.failed(site.pool.members[knows], FailureKind.CONNECT, 0, 0.0, [])
    site.load(knows, 100.0)
    site.now = 100.0

    assert site.serve(prompt) != knows


def test_cold_start() -> None:
    """A newcomer knows nothing, and is given new conversations, then its share of what all ask."""
    site = Site.of(2)
    for number in range(40):
        site.send(blocks(number, 4))
    site.join("new")
    assert {site.send(blocks(number, 4)) for number in range(100, 110)} == {"new"}
    hot = Counter(site.send(blocks(5, 4)) for _ in range(60))
    assert hot["new"] >= 20 - 4


def test_a_small_share_explores() -> None:
    """What all ask becomes known elsewhere, although its holder is never loaded."""
    site = Site.of(4, explore_share=0.02)
    prompt = blocks(1, 8)
    site.serve(prompt)
    site.load(site.serve(prompt), 10.0)
    went = Counter(site.serve(prompt) for _ in range(2_000))

    assert site.pool.prefixes is not None
    assert len(list(site.pool.prefixes.keys(site.pool.prefixes.match(prompt)[-1]))) > 1
    assert len(went) > 1


# -- laws -----------------------------------------------------------------------------------------


@given(st.randoms(use_true_random=False))
def test_the_choice_is_able_within_the_gate_and_the_best_known(rng: Random) -> None:
    """Whatever has happened: nobody unable, nobody too loaded, nobody passed over who knows far more."""
    weather = Weather.of(RoutingPolicy.PREFIX_AFFINITY, rng, leave_tokens=20, explore_share=0.0)
    pool = weather.pool
    assert pool.prefixes is not None
    for _ in range(40):
        weather.change()
        prefix = blocks(rng.randrange(3), rng.randrange(9), shared=2)
        request = ask(1, prefix=prefix, prefix_block_tokens=rng.choice([0.0, 10.0]))
        chosen = pool.choose(weather.now, rng, 10.0, 5.0, request, ())
        able = [
            member
            for member in pool.members.values()
            if member.available(weather.now) and member.replica.has_room(weather.now, 10.0, 5.0)
        ]
        if chosen is None:
            assert able == []
            continue
        loads = {each.key: each.replica.kv_held / each.replica.weight for each in able}
        least = min(loads.values())
        most = max(least * 1.5, least + 20.0)
        depths = dict.fromkeys(loads, 0)
        for depth, bits in enumerate(pool.prefixes.match(prefix), start=1):
            depths |= {key: depth for key in pool.prefixes.keys(bits) if key in depths}
        assert chosen in able
        assert loads[chosen.key] <= most
        longest = max((depths[key] for key in loads if loads[key] <= most), default=0)
        known = len(pool.prefixes.match(prefix))
        if known == longest >= 0.25 * len(prefix) and longest:
            event("follows a prefix")
            assert depths[chosen.key] >= 0.9 * longest
        elif loads[chosen.key] > least:
            event("follows a shorter one")
            assert depths[chosen.key] >= max(1.0, 0.25 * len(prefix))
        pool.on_sent(chosen, request)
        pool.prefixes.check()
