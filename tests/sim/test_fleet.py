"""The fleet: what befalls replicas, what the gateway hears of it and when, and that no request is lost."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.policy.build import approx
from tests.sim.build import NEAR, SLOW, ask, fleet, replica, run
from tidegate.core.messages import (
    DrainAsked,
    Failed,
    FailureKind,
    Probed,
    ReplicaAdded,
    ReplicaRemoved,
    ReplicaSeen,
)
from tidegate.core.reasons import Reason
from tidegate.policy.settings import (
    BreakerSettings,
    Deadlines,
    GateSettings,
    HealthSettings,
    QueueSettings,
    RetrySettings,
)
from tidegate.sim.clients import ClientSettings
from tidegate.sim.faults import Crash, Drain, Errors, Fault, Flap, Leave, Slow
from tidegate.sim.network import Network
from tidegate.sim.profiles import Profile
from tidegate.sim.settings import Disaggregation, Link, Speculation

ALONE: dict[str, Any] = {"clients": ClientSettings(max_retries=0)}
"""Clients that do not come back."""

PAIR = (replica("r0"), replica("r1", asked_at_s=0.25))
"""The first alone when a run begins, so that it is known who gets the first request."""

# -- faults ---------------------------------------------------------------------------------------


def test_a_crash_loses_all_work_and_answers_nothing_until_it_is_over() -> None:
    """A stream under way breaks; what comes while it is away finds no connection; then it serves again."""
    crash = Crash(replica="r0", at_s=2.0, restart_after_s=3.0)
    ran = run(fleet(faults=(crash,), **ALONE), [ask(0.0, 10), ask(4.0), ask(5.0)])

    assert [(record.reason, record.ended_at, record.output_tokens) for record in ran.records] == [
        (Reason.UPSTREAM_ERROR, 2.125, 1),
        (Reason.UPSTREAM_ERROR, 4.25, 0),
        (None, 8.25, 3),
    ]
    kinds = [(at, failed.kind) for at, failed in ran.heard(Failed) if isinstance(failed, Failed)]
    assert kinds == [(2.125, FailureKind.RESET), (4.25, FailureKind.CONNECT)]
    assert (ran.outcome.counts.broken, ran.outcome.counts.evicted, ran.outcome.counts.finished) == (1, 1, 1)


def test_what_has_said_nothing_yet_is_tried_elsewhere() -> None:
    """Before its first byte a request survives the crash of its replica."""
    crash = Crash(replica="r0", at_s=0.5)
    scenario = fleet(*PAIR, faults=(crash,), **ALONE)
    [record] = run(scenario, [ask(0.0)]).records

    assert (record.replica, record.attempts, record.status) == ("r1", 2, 200)
    assert (record.dispatched_at, record.ended_at) == (0.625, 3.875)


def test_a_flapping_replica_is_away_again_and_again() -> None:
    """Away from 1 to 2, and from 5 to 6."""
    flap = Flap(replica="r0", at_s=1.0, down_s=1.0, up_s=3.0, times=2)
    starts = [0.0, 1.5, 3.0, 5.5, 7.0]
    pool = {"breaker": BreakerSettings(consecutive_failures=99)}
    ran = run(fleet(faults=(flap,), pool=pool, **ALONE), [ask(start, 1) for start in starts])

    assert [record.status for record in ran.records] == [502, 502, 200, 502, 200]


def test_a_slow_replica_takes_longer_for_each_step() -> None:
    """From its next step on, and until it is over."""
    slow = Slow(replica="r0", at_s=1.5, factor=4.0, for_s=5.0)
    [record] = run(fleet(faults=(slow,)), [ask(0.0, 5)]).records

    # Steps end at 1.125, 2.125, 6.125, and 10.125, for that one began before 6.5; the last is swift.
    assert record.ended_at == 11.25


def test_faults_that_overlap_last_each_for_its_own_time() -> None:
    """The end of a short one is not the end of a long one of its kind."""
    slow = [Slow(replica="r0", at_s=1.5, factor=4.0), Slow(replica="r0", at_s=1.75, factor=2.0, for_s=5.0)]
    [record] = run(fleet(faults=tuple(slow)), [ask(0.0, 4)]).records
    dead = [Crash(replica="r0", at_s=1.0), Crash(replica="r0", at_s=2.0, restart_after_s=1.0)]
    [refused] = run(fleet(faults=tuple(dead), **ALONE), [ask(4.0)]).records

    # Steps end at 1.125, 2.125, 10.125 (both), and 14.125 (the first alone).
    assert record.ended_at == 14.25
    assert refused.reason == Reason.UPSTREAM_ERROR


def test_a_partial_failure_strikes_its_share() -> None:
    """One in three is answered with the status, at once; which ones the dice say."""
    errors = Errors(replica="r0", at_s=0.0, share=1 / 3, status=503, for_s=2_999.0)
    pool = {"retry": RetrySettings(max_attempts=1), "health": HealthSettings(interval_s=1e9)}
    ran = run(fleet(faults=(errors,), pool=pool, **ALONE), [ask(10.0 * index, 1) for index in range(600)])
    statuses = [record.status for record in ran.records]

    assert statuses[:300].count(503) == approx(100, abs=20)
    assert statuses[300:] == [200] * 300
    assert all(record.e2e_s == approx(0.25) for record in ran.records if record.status == 503)


# -- coming and going -----------------------------------------------------------------------------


def test_a_replica_joins_once_it_is_provisioned() -> None:
    """Asked for at 1 s, it is there 30 s later; until then nobody serves."""
    late = replica("r0", asked_at_s=1.0, provision_s=30.0)
    ran = run(fleet(late, **ALONE), [ask(5.0), ask(31.0)])

    assert [record.reason for record in ran.records] == [Reason.NO_REPLICA, None]
    assert [at for at, _ in ran.heard(ReplicaAdded)] == [31.0]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Leave(replica="r0", at_s=5.0), Reason.NO_REPLICA),
        (Crash(replica="r0", at_s=5.0), Reason.UPSTREAM_ERROR),  # the gateway is told of it all the same
    ],
)
def test_a_replica_may_be_lost_before_it_has_come(fault: Fault, reason: Reason) -> None:
    """What leaves, or crashes for good, while it is provisioned never serves."""
    scenario = fleet(replica("r0", provision_s=30.0), faults=(fault,), **ALONE)

    assert [record.reason for record in run(scenario, [ask(31.0)]).records] == [reason]


def test_a_drained_replica_ends_what_it_has_and_gets_nothing_new() -> None:
    """What comes while it is drained goes elsewhere; afterwards it is in the set again."""
    drain = Drain(replica="r0", at_s=1.0, for_s=4.0)
    records = run(fleet(*PAIR, faults=(drain,)), [ask(0.0), ask(2.0, 20), ask(6.0)]).records

    assert [record.replica for record in records] == ["r0", "r1", "r0"]
    assert records[0].ended_at == 3.25


@pytest.mark.parametrize(
    ("grace_s", "gone_at", "ends"),
    [
        (None, 10.25, [(None, 10.25), (None, 15.25)]),  # once it is idle
        (4.0, 6.0, [(Reason.UPSTREAM_ERROR, 6.125), (None, 15.25)]),  # with what still ran
    ],
)
def test_a_replica_leaves(grace_s: float | None, gone_at: float, ends: list[Any]) -> None:
    """It is drained first, and removed when it is idle or when its grace is over."""
    leave = Leave(replica="r0", at_s=2.0, grace_s=grace_s)
    ran = run(fleet(*PAIR, faults=(leave,), **ALONE), [ask(0.0, 10), ask(6.0, 9)])

    assert [(record.reason, record.ended_at) for record in ran.records] == ends
    assert [at for at, _ in ran.heard(DrainAsked, ReplicaRemoved)] == [2.0, gone_at]


def test_an_idle_replica_leaves_at_once_and_is_not_back_after_a_crash() -> None:
    """Gone is gone."""
    faults = (Leave(replica="r0", at_s=2.0), Crash(replica="r0", at_s=3.0, restart_after_s=1.0))
    ran = run(fleet(faults=faults, **ALONE), [ask(5.0)])

    assert [record.reason for record in ran.records] == [Reason.NO_REPLICA]
    assert [at for at, _ in ran.heard(ReplicaRemoved)] == [2.0]


# -- what the gateway knows -----------------------------------------------------------------------


def test_what_probes_find_is_heard_late() -> None:
    """A wire of 0.125 s and engines' figures half a second old: as the gateway's prober asks, one by one.

    Health is known after two delays, the size after two more, the load after another two and its own age.
    The next probe is due an interval after the answer.
    """
    scenario = fleet(
        pool={"health": HealthSettings(interval_s=2.0)},
        network=Network(delay_s=0.125, scrape_delay_s=0.5),
    )
    ran = run(scenario, [ask(0.25, 5)])

    size, load = [(at, seen) for at, seen in ran.heard(ReplicaSeen)][:2]
    assert size == (0.5, ReplicaSeen("r0", context_tokens=10_000))
    assert load == (
        1.25,
        ReplicaSeen(
            "r0",
            running=1,
            waiting=0,
            kv_used_ratio=approx(1 / 6250),
            kv_capacity_tokens=100_000,
            in_flight_before=1,
        ),
    )
    assert [at for at, _ in ran.heard(Probed)] == [1.25, 4.25]
    assert [at for at, _ in ran.heard(ReplicaSeen)] == [0.5, 1.25, 4.25]


def test_a_dead_replica_is_found_by_probes_and_comes_back_by_them() -> None:
    """Three bad probes put it out of the set, two good ones bring it back; it is asked for its size anew."""
    crash = Crash(replica="r0", at_s=1.0, restart_after_s=9.0)
    scenario = fleet(pool={"health": HealthSettings(interval_s=1.0)}, faults=(crash,), **ALONE)
    ran = run(scenario, [ask(6.0), ask(20.0)])

    assert [record.reason for record in ran.records] == [Reason.NO_REPLICA, None]
    found = [probed.ok for _, probed in ran.heard(Probed) if isinstance(probed, Probed)]
    assert found[:3] == [True, False, False]
    sizes = [
        at for at, seen in ran.heard(ReplicaSeen) if isinstance(seen, ReplicaSeen) and seen.context_tokens
    ]
    assert len(sizes) == 2
    assert sizes[1] > 10.0


def test_jitter_is_on_the_way_there() -> None:
    """Requests that were sent together arrive one by one, by the seed; all else takes what it took."""
    scenario = fleet(
        *(replica(f"r{number}") for number in range(4)), network=Network(delay_s=0.125, jitter_s=0.5)
    )
    runs = [run(scenario, [ask(0.5) for _ in range(4)], seed).records for seed in (1, 1, 2)]
    ttfts_s = [[record.ttft_s for record in records] for records in runs]

    assert ttfts_s[0] == ttfts_s[1] != ttfts_s[2]
    assert len(set(ttfts_s[0])) == 4
    assert all(ttft_s is not None and ttft_s > 1.25 for ttft_s in ttfts_s[0])
    assert all(record.tpot_s == approx(1.0) for record in runs[0])


def test_a_request_that_is_overtaken_by_its_end_is_never_computed() -> None:
    """Its client hangs up while it is on its way: the engine, which would take long, has nothing to do."""
    scenario = fleet(
        network=Network(delay_s=0.125, jitter_s=2.0), clients=ClientSettings(hang_up_after_s=1.0)
    )
    ran = run(scenario, [ask(at_s, output_tokens=1000) for at_s in (0.5, *[1.0] * 20, 50.0)])

    (engine,) = ran.outcome.replicas.values()
    assert ran.outcome.counts.cancelled == 22
    assert engine.running + engine.waiting <= 1  # the last, of whose end it has not heard


# -- laws -----------------------------------------------------------------------------------------

ENDS = ("finished", "broken", "rejected", "evicted", "cancelled")
KINDS = st.sampled_from(["crash", "flap", "slow", "errors", "drain", "leave"])


def some_fault(kind: str, rng: Random) -> Fault:
    """A fault of that kind on one of three replicas within the first minute."""
    name, at_s, some_s = f"r{rng.randrange(3)}", 60.0 * rng.random(), 1.0 + 20.0 * rng.random()
    match kind:
        case "crash":
            return Crash(replica=name, at_s=at_s, restart_after_s=rng.choice([None, some_s]))
        case "flap":
            return Flap(replica=name, at_s=at_s, down_s=some_s / 4, up_s=some_s / 4, times=5)
        case "slow":
            return Slow(replica=name, at_s=at_s, factor=3.0, for_s=rng.choice([None, some_s]))
        case "errors":
            status = rng.choice([500, 503, 429])
            return Errors(replica=name, at_s=at_s, share=rng.random(), status=status, for_s=some_s)
        case "drain":
            return Drain(replica=name, at_s=at_s, for_s=rng.choice([None, some_s]))
        case _:
            return Leave(replica=name, at_s=at_s, grace_s=rng.choice([None, some_s]))


def engine(**bounds: Any) -> Profile:
    """The slow engine with other settings."""
    return Profile(curve=SLOW.curve, replica=msgspec.structs.replace(SLOW.replica, **bounds))


ENGINES = [
    SLOW,
    engine(kv_tokens=320, prefix_cache=True),  # so little that sequences preempt each other
    engine(kv="reserved", kv_tokens=20_000),
    engine(speculation=Speculation(draft_tokens=2, acceptance_ratio=0.6)),
    engine(priority=True, max_num_seqs=2, chunked_prefill=False),
    msgspec.structs.replace(
        SLOW,
        disaggregation=Disaggregation(
            link=Link(bandwidth_bytes_per_s=1e6, latency_s=0.25, kv_bytes_per_token=1e3)
        ),
    ),
]


def ends_of(kinds: list[str], rng: Random) -> list[str]:
    """The kinds of ends that a run meets under faults of these kinds, all that was promised asserted."""
    scenario = fleet(
        *(replica(f"r{index}", rng.choice(ENGINES), weight=rng.choice([1.0, 0.5])) for index in range(3)),
        pool={
            "gate": GateSettings(max_concurrency=rng.choice([2, 6])),
            "queue": QueueSettings(max_requests=rng.choice([0, 4, 50])),
            "health": HealthSettings(interval_s=2.0),
            "deadlines": Deadlines(ttft_s=rng.choice([4.0, 100.0]), total_s=rng.choice([12.0, 100.0])),
            "breaker": BreakerSettings(consecutive_failures=3),
        },
        network=rng.choice([Network(delay_s=0.0), NEAR]),
        clients=ClientSettings(hang_up_after_s=rng.choice([None, 15.0]), max_retries=rng.choice([0, 2])),
        faults=tuple(some_fault(kind, rng) for kind in kinds),
    )
    work = [
        ask(
            0.6 * index + 0.3 * rng.random(),
            rng.randint(1, 20),
            prompt_tokens=rng.choice([1, 100, 11_000]),
            prefix=(7, 8)[: rng.randint(0, 2)],
            prefix_block_tokens=48,
            streams=rng.random() < 0.8,
        )
        for index in range(150)
    ]

    ran = run(scenario, work, seed=rng.getrandbits(32))

    counts = ran.outcome.counts
    assert counts.in_flight == 0
    assert counts.arrived == len(ran.records) == len({record.request_id for record in ran.records})
    assert counts.arrived == len(work) + ran.outcome.retries
    reasons = Counter(record.reason for record in ran.records)
    assert counts.cancelled == reasons[Reason.CLIENT_GONE]
    for node in ran.outcome.replicas.values():
        node.check()
    return [end for end in ENDS if getattr(counts, end)]


@settings(max_examples=40, deadline=None)
@given(st.lists(KINDS, max_size=6), st.randoms(use_true_random=False))
def test_no_request_is_lost_whatever_happens(kinds: list[str], rng: Random) -> None:
    """Each that arrives ends once, with one record; the governor's counts hold after every event."""
    for end in ends_of(kinds, rng):
        event(end)


def test_the_law_meets_every_end() -> None:
    """It would say nothing of an end that its weather never brings about."""
    met = Counter(end for seed in range(10) for end in ends_of(["crash", "flap", "errors"], Random(seed)))

    assert set(met) == set(ENDS)
