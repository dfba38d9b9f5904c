"""Routing: how each policy spreads, that load is bounded, and that little moves when replicas come and go."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.build import approx, ask
from tidegate.core.messages import ReplicaAdded
from tidegate.policy.fleet import Fleet
from tidegate.policy.pool import Pool
from tidegate.policy.replicas import Replica
from tidegate.policy.routing import Ring, Router
from tidegate.policy.settings import ClassSettings, PoolSettings, RoutingPolicy, RoutingSettings
from tidegate.policy.timers import Timers


@dataclass(slots=True)
class Server:
    name: str
    weight: float = 1.0
    in_flight: int = 0
    kv_held: float = 0.0


def servers(count: int, *weights: float) -> list[Server]:
    return [Server(f"r{n}", weights[n] if weights else 1.0) for n in range(count)]


def spread(
    policy: RoutingPolicy,
    among: list[Server],
    requests: int,
    tokens: float = 10,
    seed: int = 1,
    key: int | None = None,
) -> list[int]:
    """Send so many at once, each counted where it went; how many went to each."""
    router, rng = Router(RoutingSettings(policy=policy)), Random(seed)
    for _ in range(requests):
        chosen = router.pick(among, among, rng.getrandbits(64) if key is None else key, rng)
        chosen.in_flight += 1
        chosen.kv_held += tokens
    return [each.in_flight for each in among]


def by_load(policy: RoutingPolicy, weights: list[float], sizes: list[float], seed: int = 1) -> list[Replica]:
    """The same through a pool, which keeps its replicas in the order of their load."""
    settings = PoolSettings(routing=RoutingSettings(policy=policy))
    pool, rng = Pool.of("m", settings, {"default": ClassSettings()}), Random(seed)
    fleet = Fleet({"m": pool}, Timers[object](lambda item: False))
    for number, weight in enumerate(weights):
        roomy = ReplicaAdded(pool="m", replica=f"r{number}", weight=weight, max_concurrency=1_000)
        fleet.add(roomy, 0.0)
    for number, size in enumerate(sizes):
        chosen = pool.choose(0.0, rng, size, 1.0, ask(number), ())
        assert chosen is not None
        chosen.replica.hold(size, 1.0)
    return [member.replica for member in pool.members.values()]


def shares(policy: RoutingPolicy, weights: list[float], requests: int, seed: int = 1) -> list[int]:
    """How many of so many at once went to each replica, by whichever way the policy goes."""
    if policy in BY_LOAD:
        return [each.in_flight for each in by_load(policy, weights, [10.0] * requests, seed)]
    return spread(policy, servers(len(weights), *weights), requests, seed=seed)


BY_LOAD = [RoutingPolicy.LEAST_TOKENS, RoutingPolicy.LEAST_REQUESTS]
EVEN = [*BY_LOAD, RoutingPolicy.ROUND_ROBIN]


@pytest.mark.parametrize("policy", EVEN)
@pytest.mark.parametrize("seed", range(5))
def test_a_burst_splits_evenly(policy: RoutingPolicy, seed: int) -> None:
    """A hundred at once over two idle replicas are fifty each, for load is counted at the choice."""
    assert shares(policy, [1, 1], 100, seed) == [approx(50, abs=1)] * 2


@pytest.mark.parametrize(
    ("policy", "tolerance"),
    [(policy, 2) for policy in EVEN] + [(RoutingPolicy.POWER_OF_TWO, 12), (RoutingPolicy.RANDOM, 60)],
)
def test_weights_are_shares(policy: RoutingPolicy, tolerance: int) -> None:
    """A replica of three times the weight gets three times the requests."""
    got = shares(policy, [1, 3, 1, 1], 600)
    assert got == [approx(share, abs=tolerance) for share in (100, 300, 100, 100)]


def test_ties_are_broken_by_the_dice() -> None:
    """Of ten idle replicas the first one registered is not the first choice of every process."""
    for policy in (RoutingPolicy.LEAST_TOKENS, RoutingPolicy.LEAST_REQUESTS, RoutingPolicy.POWER_OF_TWO):
        first = Counter(shares(policy, [1] * 10, 1, seed).index(1) for seed in range(200))
        assert len(first) == 10, policy


def test_least_tokens_counts_size() -> None:
    """One request of 32,000 tokens weighs as much as eight of 4,000."""
    among = by_load(RoutingPolicy.LEAST_TOKENS, [1, 1], [32_000, *[4_000] * 8])
    assert [each.kv_held for each in among] == [32_000, 32_000]


def test_load_decides_where_there_is_no_affinity() -> None:
    """Consistent hashing without a key sends to whoever has least."""
    among = servers(3)
    among[0].in_flight, among[2].in_flight = 4, 2
    router = Router(RoutingSettings(policy=RoutingPolicy.CONSISTENT_HASH))
    assert router.pick(among, among, None, Random(1)) is among[1]


def test_a_hot_key_stays_within_its_bounded_load() -> None:
    """Nine at once with one shared prefix over three replicas: none gets more than ceil(1.25 x 3)."""
    for key in range(50):
        got = spread(RoutingPolicy.CONSISTENT_HASH, servers(3), 9, key=key << 57)
        assert max(got) <= 4, key
        assert sum(got) == 9


def test_a_stuck_replica_gets_no_share_of_cold_keys() -> None:
    """Fifty distinct prompts while one replica is full of work: at least nine in ten go to the other."""
    slow, idle = among = servers(2)
    slow.in_flight = 100
    spread(RoutingPolicy.CONSISTENT_HASH, among, 50)
    assert idle.in_flight >= 45


def test_an_affine_key_keeps_its_replica() -> None:
    """The same key goes to the same replica while load allows, in every process."""
    among, rng = servers(5), Random(1)
    for key in (1, 2**40, 2**64 - 1):
        picks = set()
        for _ in range(20):
            router = Router(RoutingSettings(policy=RoutingPolicy.CONSISTENT_HASH))
            picks.add(router.pick(among, among, key, rng).name)
        assert len(picks) == 1


def homes(among: list[Server], candidates: list[Server], keys: int = 3_000) -> list[str]:
    router = Router(RoutingSettings(policy=RoutingPolicy.CONSISTENT_HASH))
    rng = Random(5)
    return [router.pick(candidates, among, rng.getrandbits(64), rng).name for _ in range(keys)]


def test_only_the_keys_of_who_left_move() -> None:
    """When a replica leaves or is out of the set, only its keys move; when it is back, so are they."""
    among = servers(6)
    before = homes(among, among)
    for after in (homes(among[:5], among[:5]), homes(among, among[:5])):  # removed; and only unavailable
        moved = [old for old, new in zip(before, after, strict=True) if old != new]
        assert set(moved) == {"r5"}
        assert len(moved) == before.count("r5")
    assert homes(among, among) == before
    assert all(share == approx(500, rel=0.3) for share in Counter(before).values())


@given(st.integers(1, 8), st.integers(0, 2**64 - 1), st.integers(1, 40))
def test_a_walk_meets_everyone_once(count: int, key: int, virtual_nodes: int) -> None:
    """From any key, the ring names each replica exactly once."""
    names = tuple(f"r{n}" for n in range(count))
    assert sorted(Ring.of(names, virtual_nodes).walk(key)) == sorted(names)


@given(
    st.sampled_from(
        [each for each in RoutingPolicy if Router(RoutingSettings(policy=each)).by_tokens() is None]
    ),
    st.lists(st.tuples(st.integers(0, 50), st.floats(0.1, 10)), min_size=1, max_size=6),
    st.integers(0, 2**64 - 1),
    st.data(),
)
def test_the_choice_is_one_of_the_candidates(
    policy: RoutingPolicy, state: list[tuple[int, float]], key: int, data: st.DataObject
) -> None:
    """Never a replica outside the candidates, whatever loads, weights and policy; bounded where promised."""
    among = [Server(f"r{n}", weight, load, load * 10.0) for n, (load, weight) in enumerate(state)]
    some = data.draw(st.lists(st.sampled_from(range(len(among))), min_size=1, unique=True))
    candidates = [among[n] for n in sorted(some)]
    chosen = Router(RoutingSettings(policy=policy)).pick(candidates, among, key, Random(1))
    assert chosen in candidates
    if policy is RoutingPolicy.CONSISTENT_HASH and len(candidates) > 1:
        weights = sum(each.weight for each in candidates)
        total = sum(each.in_flight for each in candidates) + 1
        assert chosen.in_flight < 1.25 * total * chosen.weight / weights + 1


def test_round_robin_pays_nobody_for_having_been_away() -> None:
    """A replica that comes back takes its turn, not all the turns it missed."""
    among, rng = servers(3), Random(1)
    router = Router(RoutingSettings(policy=RoutingPolicy.ROUND_ROBIN))
    for _ in range(100):
        router.pick(among[:2], among, None, rng)
    got = Counter(router.pick(among, among, None, rng).name for _ in range(30))
    assert got == {"r0": approx(10, abs=1), "r1": approx(10, abs=1), "r2": approx(10, abs=1)}
