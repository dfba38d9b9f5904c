"""Do replicas that share the work hand it on, when, and without losing any of it?"""

from __future__ import annotations

from math import inf, nan
from random import Random
from typing import Any

import msgspec
import pytest

from tests.sim import build
from tests.sim.engines import SECOND, replica, short
from tidegate.core.curve import Linear
from tidegate.core.errors import CallerError, ConfigurationError
from tidegate.sim.disaggregated import Disaggregated, Engine, engine_of
from tidegate.sim.faults import Crash
from tidegate.sim.happening import FINISHED, FIRST_TOKEN, Happening
from tidegate.sim.profiles import Profile
from tidegate.sim.replica import Replica
from tidegate.sim.sequence import Sequence
from tidegate.sim.settings import Disaggregation, Link, ReplicaSettings, Speculation

LINK = Link(bandwidth_bytes_per_s=100.0, kv_bytes_per_token=1.0, latency_s=0.5)


def engines(link: Link = LINK, prefills: int = 1, decodes: int = 1, **changes: Any) -> Disaggregated:
    """Replicas of a step a second, roomy unless `changes` say otherwise."""
    parts = Disaggregation(link=link, prefill_replicas=prefills, decode_replicas=decodes)
    profile = Profile(curve=SECOND, replica=replica(**changes).settings, disaggregation=parts)
    engine = engine_of(profile)
    assert isinstance(engine, Disaggregated)
    return engine


def told(engine: Engine, until: float = inf) -> list[Happening]:
    """Everything up to and including `until`."""
    news = []
    while (at := engine.next_at()) <= until and at < inf:
        news += engine.advance(at)
        engine.check()
    return news


def test_transfers_queue_on_the_link() -> None:
    """Two prompts end together; the second waits for the bytes of the first, not for its latency."""
    engine = engines()
    engine.submit(0.0, Sequence(0, 100, 3))
    engine.submit(0.0, Sequence(1, 50, 3))

    assert short(told(engine)) == [
        (1.0, "first", 0, 1),
        (1.0, "first", 1, 1),
        # The first is through at 1.0 + 1.0 + 0.5 and makes two steps; the second at 2.0 + 0.5 + 0.5, in one.
        (4.5, "finished", 0, 3),
        (5.5, "finished", 1, 3),
    ]
    # The token that the prefill replica has produced is computed by the other.
    assert engine.counters.prefill_tokens == 150 + 2


def test_one_token_needs_no_other_replica() -> None:
    """Nor does an embedding."""
    for output, last in [(0, (1.0, "finished", 0, 0)), (1, (1.0, "finished", 0, 1))]:
        engine = engines()
        engine.submit(0.0, Sequence(0, 100, output))
        assert short(told(engine))[-1] == last
        assert engine.counters.steps == 1


def test_work_goes_where_least_is() -> None:
    """Prompts by tokens, at arrival; sequences by their number, when their keys and values have come."""
    engine = engines(
        Link(bandwidth_bytes_per_s=inf, kv_bytes_per_token=1.0), prefills=2, decodes=2, max_num_seqs=1
    )
    for number, prompt in enumerate((600, 300, 200, 1000)):
        engine.submit(0.0, Sequence(number, prompt, 3))

    news = told(engine)
    firsts = {one.sequence.id: one.at for one in news if one.kind == FIRST_TOKEN}
    assert firsts == {0: 1.0, 1: 1.0, 2: 2.0, 3: 3.0}  # the last three on the second: 600 are more than 500
    finished = {one.sequence.id: one.at for one in news if one.kind == FINISHED}
    assert finished == {0: 3.0, 1: 3.0, 2: 5.0, 3: 5.0}


def test_who_leaves_wherever_it_is() -> None:
    """From a prompt, from the link, from the decode replica: nothing stays behind, what was said is told."""
    for at, produced in [(0.5, 0), (1.0, 1), (1.75, 1), (2.75, 1), (3.75, 2)]:
        engine = engines()
        engine.submit(0.0, leaver := Sequence(0, 100, 9))
        engine.submit(0.0, Sequence(1, 50, 3))
        told(engine, until=at)
        assert engine.tokens_at(leaver, at) == produced, at
        assert engine.cancel(at, leaver) == produced, at
        assert engine.cancel(at, leaver) == produced, at
        engine.check()
        assert {one.sequence.id for one in told(engine)} <= {1}
        assert (engine.running, engine.waiting, engine.kv_used_ratio) == (0, 0, 0.0)


def test_its_gauges_are_the_decode_replicas() -> None:
    """Blocks of those alone, as they are at that instant; who is on the link waits."""
    engine = engines(kv_tokens=160, decodes=2)
    engine.submit(0.0, Sequence(0, 60, 90))

    for at, gauges in [
        (0.5, (1, 0, 20)),
        (1.5, (0, 1, 20)),  # through at 1.0 + 0.6 + 0.5
        (2.5, (1, 0, 16)),
        (5.0, (1, 0, 16)),
        (5.5, (1, 0, 16)),
        (6.5, (1, 0, 15)),  # the step from 6.1 on computes token 65
    ]:
        engine.let_pass(at)
        assert (engine.running, engine.waiting, engine.free_blocks) == gauges, at
    assert engine.kv_used_ratio == 0.25


def test_a_crash_loses_what_is_on_the_link_too() -> None:
    """All of it, and the link is free again."""
    engine = engines()
    sequences = [Sequence(number, 100, 9) for number in range(3)]
    for sequence in sequences:
        engine.submit(0.0, sequence)

    assert engine.clear(3.0) == sequences
    assert [sequence.produced for sequence in sequences] == [1, 1, 1]
    assert engine.next_at() == inf
    engine.submit(3.0, Sequence(9, 100, 2))
    assert short(told(engine)) == [(4.0, "first", 9, 1), (6.5, "finished", 9, 2)]


def test_what_can_never_be_served_is_said_at_once() -> None:
    """By either kind of replica."""
    engine = engines(kv_tokens=64)

    assert engine.submit(0.0, Sequence(0, 60, 5)) == "60 + 5 tokens never fit in 64"
    assert engine.next_at() == inf


def test_preempted_by_a_decode_replica_it_is_computed_there() -> None:
    """What came over the link is lost with the blocks; every output is whole all the same."""
    engine = engines(kv_tokens=96, block_tokens=4, prefix_cache=True)
    sequences = [Sequence(number, 20, 50) for number in range(6)]
    for sequence in sequences:
        engine.submit(0.0, sequence)
    news = told(engine)

    assert [one.output_tokens for one in news if one.kind == FINISHED] == [50] * 6
    assert sum(sequence.preemptions for sequence in sequences) == engine.counters.preemptions > 0
    assert engine.counters.decode_tokens + engine.counters.preemptions + 6 + 6 == 6 * 50


def test_it_is_driven_as_a_replica_is() -> None:
    """Asked at any instants, it tells the same as when it is asked only at those that it names."""
    rng = Random(7)
    arrivals = [
        (at, rng.randint(1, 400), rng.randint(0, 60)) for at in sorted(rng.uniform(0, 60) for _ in range(60))
    ]
    news: list[list[tuple[float, str, int, int]]] = []
    for often in (False, True):
        engine = engines(prefills=2, decodes=3, max_num_seqs=4, kv_tokens=1600)
        heard = []
        for number, (at, prompt, output) in enumerate(arrivals):
            heard += told(engine, at)
            if often:
                heard += engine.advance(at)
            engine.submit(at, Sequence(number, prompt, output))
        news.append(short(heard + told(engine)))
    assert news[0] == news[1]
    assert sorted(who for _, kind, who, _ in news[0] if kind == "finished") == list(range(60))


def test_a_slow_pair() -> None:
    """Both kinds are slowed from then on; the link is not."""
    engine = engines()
    engine.submit(0.0, Sequence(0, 100, 3))
    engine.slow(0.0, 2.0)

    assert short(told(engine)) == [(2.0, "first", 0, 1), (7.5, "finished", 0, 3)]


def test_speculation_on_the_decode_side() -> None:
    """Every guess right: after the first token and the one that its own prompt step yields, three a step."""
    settings = ReplicaSettings(
        max_num_seqs=4,
        max_batched_tokens=64,
        kv_tokens=1600,
        context_tokens=1600,
        speculation=Speculation(draft_tokens=2, acceptance_ratio=1.0),
    )
    parts = Disaggregation(link=Link(bandwidth_bytes_per_s=inf, kv_bytes_per_token=1.0))
    engine = engine_of(Profile(curve=SECOND, replica=settings, disaggregation=parts), Random(1))
    engine.submit(0.0, Sequence(0, 10, 8))

    assert short(told(engine)) == [(1.0, "first", 0, 1), (4.0, "finished", 0, 8)]


def test_prompts_on_other_engines() -> None:
    """The replicas that compute prompts have a profile of their own."""
    parts = Disaggregation(link=LINK, prefill_profile="demo")
    engine = engine_of(Profile(curve=SECOND, replica=replica().settings, disaggregation=parts))
    engine.submit(0.0, Sequence(0, 100, 2))

    first, last = (one.at for one in told(engine))
    assert first == pytest.approx(15e-3 + 0.1e-3 + 100 * 50e-6)
    assert last == pytest.approx(first + 1.0 + 0.5 + 1.0)


def test_prompts_on_engines_of_a_profile_of_their_own() -> None:
    """What the profile itself says of them stands, whatever else is named."""
    parts = Disaggregation(link=LINK, prefill_profile="demo")
    quick = Profile(curve=Linear(a_s=0.25), replica=replica().settings)
    engine = engine_of(Profile(curve=SECOND, replica=replica().settings, disaggregation=parts, prefill=quick))
    engine.submit(0.0, Sequence(0, 100, 2))

    assert [one.at for one in told(engine)] == pytest.approx([0.25, 0.25 + 1.0 + 0.5 + 1.0])


@pytest.mark.parametrize(
    "shared, prefills, decodes, ends",
    [
        (True, 2, 2, [3.5, 4.5]),  # one cache after the other, 1 s each
        (False, 2, 2, [3.5, 3.5]),  # side by side
        (False, 2, 1, [3.5, 4.5]),  # whoever receives has one link too
        (False, 1, 2, [3.5, 4.5]),
    ],
)
def test_links_of_their_own(shared: bool, prefills: int, decodes: int, ends: list[float]) -> None:
    """Two prompts whose steps end at the same time."""
    link = msgspec.structs.replace(LINK, shared=shared)
    engine = engines(link=link, prefills=prefills, decodes=decodes)
    for number in range(2):
        engine.submit(0.0, Sequence(number, 100, 2))

    assert [one.at for one in told(engine) if one.kind == FINISHED] == ends


def test_one_replica_is_no_pair() -> None:
    """A profile that says nothing of it makes a replica, and nothing else can be made of it."""
    profile = Profile(curve=SECOND, replica=replica().settings)

    assert isinstance(engine_of(profile), Replica)
    with pytest.raises(CallerError):
        Disaggregated(profile)


def test_a_fleet_of_pairs() -> None:
    """The gateway takes prefill and decode for one replica, which crashes as one."""
    parts = Disaggregation(link=LINK, decode_replicas=2)
    pair = build.replica("r0", Profile(curve=SECOND, replica=replica().settings, disaggregation=parts))
    crash = Crash(replica="r0", at_s=20.0, restart_after_s=5.0)
    ran = build.run(build.fleet(pair, faults=(crash,)), [build.ask(5.0, 3, 100), build.ask(17.0, 3, 100)])

    served, lost = ran.records
    assert (served.first_token_at, served.ended_at) == (6.25, 9.75)  # a step, the link's 1.5 s, two steps
    assert (served.status, served.output_tokens) == (200, 3)
    assert lost.first_token_at == 18.25
    assert lost.output_tokens == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"bandwidth_bytes_per_s": 0.0},
        {"bandwidth_bytes_per_s": nan},
        {"kv_bytes_per_token": -1.0},
        {"latency_s": inf},
    ],
)
def test_a_link_that_cannot_be(fields: dict[str, float]) -> None:
    """A transfer takes a finite time that is not below zero."""
    with pytest.raises(ConfigurationError):
        msgspec.structs.replace(Link(bandwidth_bytes_per_s=1.0, kv_bytes_per_token=1.0), **fields)


def test_there_is_one_of_each_kind() -> None:
    """Work that nobody could take is a mistake of the configuration."""
    for prefills, decodes in [(0, 1), (1, 0)]:
        with pytest.raises(ConfigurationError):
            engines(prefills=prefills, decodes=decodes)
