"""What becomes of a replica whose cache is full, and of what it has in it?

The reports named in the docstrings are of simulators that got this wrong (inference-sim's issue tracker).
"""

from __future__ import annotations

from random import Random

import pytest

from tests.sim.engines import replica, short, told
from tidegate.sim.happening import FINISHED, PROGRESS
from tidegate.sim.replica import Replica
from tidegate.sim.sequence import Sequence


def test_the_last_one_admitted_gives_way() -> None:
    """Four blocks of four. Both grow until none is left; the second is computed again, its tokens too."""
    engine = replica(kv_tokens=16, block_tokens=4)
    first, second = Sequence(0, 4, 8), Sequence(1, 4, 8)
    engine.submit(0.0, first)
    engine.submit(0.0, second)

    assert [(one.at, one.sequence.id) for one in told(engine) if one.kind == FINISHED] == [
        (8.0, 0),
        (11.0, 1),
    ]
    assert (first.preemptions, second.preemptions) == (0, 1)
    assert engine.counters.preemptions == 1
    # Each needs two blocks from its second token on, three from its sixth: at 5.0 the second gives way, with
    # five output tokens. At 8.0, when the first one's blocks are free, they and its prompt are computed anew.
    assert engine.counters.prefill_tokens == 4 + 4 + 9
    assert engine.counters.decode_tokens == 7 + 4 + 2


def test_nobody_is_admitted_in_a_step_that_preempted() -> None:
    """Who matters most comes while the cache is full: what a victim gives up at 1.0 it gets a step later."""
    engine = replica(kv_tokens=20, block_tokens=4, priority=True)
    engine.submit(0.0, Sequence(0, 4, 4, priority=1))
    engine.submit(0.0, victim := Sequence(1, 12, 4, priority=2))
    engine.submit(0.5, Sequence(2, 1, 1, priority=0))

    assert (3.0, "first", 2, 1) in short(told(engine))
    assert victim.preemptions == 1


def test_with_priorities_the_last_in_rank_gives_way() -> None:
    """Not who was admitted last but who matters least, and of those who came last."""
    engine = replica(kv_tokens=24, block_tokens=4, priority=True)
    sequences = [Sequence(0, 4, 9, priority=2), Sequence(1, 4, 9, priority=2), Sequence(2, 4, 9, priority=0)]
    for at, sequence in zip((0.0, 0.25, 0.5), sequences, strict=True):
        engine.submit(at, sequence)
    told(engine)

    assert [sequence.preemptions > 0 for sequence in sequences] == [False, True, False]


def test_a_first_in_line_that_matters_least_gives_way_itself() -> None:
    """The step in which it does computes nothing, takes no time, and the next one follows at once."""
    engine = replica(kv_tokens=12, block_tokens=4, priority=True)
    engine.submit(0.0, Sequence(0, 4, 5, priority=9))
    engine.submit(0.5, Sequence(1, 4, 5, priority=1))

    finished = [(one.at, one.sequence.id) for one in told(engine) if one.kind == FINISHED]
    assert [number for _, number in finished] == [1, 0]
    assert engine.counters.steps == engine.counters.busy_s == finished[-1][0]


def test_preemption_does_not_lock_up() -> None:
    """inference-sim#297, #529, #963, #1057: a full cache let simulators preempt for ever, or stop.

    Many sequences each of which may fill the whole cache: all end, and the first in line never loses ground.
    """
    for seed in range(20):
        rng = Random(seed)
        priority, cached = rng.random() < 0.5, rng.random() < 0.5
        engine = replica(kv_tokens=96, block_tokens=4, priority=priority, prefix_cache=cached)
        sequences = []
        for number in range(30):
            prompt = rng.randint(1, 60)
            output = rng.randint(1, 96 - prompt)
            sequences.append(Sequence(number, prompt, output, priority=rng.randint(0, 3)))
            assert engine.submit(0.0, sequences[-1]) is None
        news = told(engine)

        assert {one.sequence.id for one in news if one.kind == FINISHED} == set(range(30))
        assert engine.counters.preemptions > 0
        assert engine.free_blocks == engine.settings.blocks
        first = min(sequences, key=lambda one: one.priority if priority else one.id)
        assert first.preemptions == 0


def test_a_preempted_sequence_is_counted_once() -> None:
    """What it had produced is not produced again: its first token and each mark are told once."""
    engine = replica(kv_tokens=160, block_tokens=4)
    for number in range(4):
        engine.submit(0.0, Sequence(number, 8, 80))
    news = short(told(engine))

    assert engine.counters.preemptions > 0
    assert sorted(news, key=lambda one: (one[2], one[0])) == sorted(
        news, key=lambda one: (one[2], one[3], one[0])
    )
    for number in range(4):
        told_of = [(kind, tokens) for _, kind, who, tokens in news if who == number]
        assert told_of == [("first", 1), ("progress", 32), ("progress", 64), ("finished", 80)]


def shared(number: int, prompt: int, output: int, *prefix: int) -> Sequence:
    """A sequence whose leading blocks of four tokens have these ids."""
    return Sequence(number, prompt, output, prefix=prefix, prefix_block_tokens=4)


def one_after_the_other(engine: Replica, *sequences: Sequence) -> list[int]:
    """What each found in the cache when the one before it was gone."""
    for number, sequence in enumerate(sequences):
        assert engine.submit(100.0 * number, sequence) is None
        told(engine)
    return [sequence.cached_tokens for sequence in sequences]


def test_prefixes_are_found_in_whole_blocks() -> None:
    """As far as ids agree, and never the last token of the prompt, whose logits are needed."""
    engine = replica(block_tokens=4, prefix_cache=True)

    assert one_after_the_other(
        engine,
        shared(0, 14, 2, 1, 2, 3),
        shared(1, 14, 2, 1, 2, 3),  # all three
        shared(2, 13, 2, 1, 2, 4),  # two, then it differs
        shared(3, 12, 2, 1, 2, 3),  # the last block holds its last token
        shared(4, 9, 2, 1, 2),
        shared(5, 14, 2, 7, 2, 3),  # an id stands for all tokens before it, too: these are others
        shared(6, 14, 2),
    ) == [0, 12, 8, 8, 8, 0, 0]
    assert engine.counters.prefix_queried_tokens == 14 + 14 + 13 + 12 + 9 + 14 + 14
    assert engine.counters.prefix_hit_tokens == 36


def test_an_output_is_found_by_the_next_turn() -> None:
    """Blocks that an output fills are known in the step that fills them, though no event marks it."""
    for at, found in [
        (0.5, 4),  # the prompt of six tokens has filled one
        (1.0, 4),
        (1.5, 8),  # the step from 2.0 on computes the eighth token
        (2.0, 8),
        (5.5, 12),
        (30.0, 12),  # the last token was produced, never computed: the fourth block is not full
    ]:
        engine = replica(block_tokens=4, prefix_cache=True)
        engine.submit(0.0, shared(0, 6, 10, 1, 2, 3, 4))
        told(engine, until=at)
        engine.submit(at, later := shared(1, 17, 1, 1, 2, 3, 4))
        told(engine)
        assert later.cached_tokens == found, at


def test_who_comes_in_the_same_step_finds_what_is_being_computed() -> None:
    """A block counts as known once it is planned, as vLLM has it."""
    engine = replica(block_tokens=4, prefix_cache=True)
    engine.submit(0.0, shared(0, 14, 1, 1, 2, 3))
    engine.submit(0.0, second := shared(1, 14, 1, 1, 2, 3))
    told(engine)

    assert second.cached_tokens == 12
    assert engine.counters.prefill_tokens == 14 + 2


def test_the_tail_is_forgotten_first_and_the_oldest_before_it() -> None:
    """A stranger takes the blocks of who went first, the last of them first; those without content too."""
    for blocks, first, second in [
        (0, 12, 12),
        (1, 12, 12),  # the one that held no whole block
        (2, 8, 12),
        (4, 0, 12),
        (5, 0, 12),
        (6, 0, 8),
        (8, 0, 0),
    ]:
        for ids, tokens in (((1, 2, 3), first), ((4, 5, 6), second)):
            engine = replica(block_tokens=4, kv_tokens=32, prefix_cache=True)
            stranger = [shared(2, 4 * blocks, 0)] if blocks else []
            before = [shared(0, 13, 1, 1, 2, 3), shared(1, 13, 1, 4, 5, 6), *stranger]
            assert one_after_the_other(engine, *before, shared(3, 13, 1, *ids))[-1] == tokens, (blocks, ids)


@pytest.mark.parametrize("each", [8, 32])
def test_an_id_for_many_blocks_is_as_good_as_an_id_for_each(each: int) -> None:
    """Ids of 8 or 32 tokens with blocks of 4: the same hits, evictions and instants as one id per block."""
    rng = Random(each)
    coarse = replica(block_tokens=4, kv_tokens=20 * each, prefix_cache=True)
    fine = replica(block_tokens=4, kv_tokens=20 * each, prefix_cache=True)
    at, submitted = 0.0, []
    chains = [tuple(rng.randrange(3) + 10 * depth for depth in range(8)) for _ in range(6)]
    for number in range(200):
        at += rng.choice((0, 1, 4, 30))
        ids = rng.choice(chains)[: rng.randint(0, 8)]
        chain = tuple(hash_of(ids[: depth + 1]) for depth in range(len(ids)))
        prompt = max(1, len(chain) * each - rng.choice((0, 0, 3, 20)))
        output = rng.randint(1, 30)
        one = Sequence(number, prompt, output, prefix=chain, prefix_block_tokens=each)
        blocks = tuple(100 * key + part for key in chain for part in range(each // 4))
        other = Sequence(number, prompt, output, prefix=blocks, prefix_block_tokens=4)
        assert short(told(coarse, at)) == short(told(fine, at))
        submitted.append(one)
        assert coarse.submit(at, one) == fine.submit(at, other)
    assert short(told(coarse)) == short(told(fine))
    assert coarse.counters == fine.counters
    assert any(one.cached_tokens % each for one in submitted)
    assert any(one.cached_tokens and not one.cached_tokens % each for one in submitted)
    assert any(one.preemptions for one in submitted)


def hash_of(ids: tuple[int, ...]) -> int:
    """One number for a chain of ids below 100."""
    return sum((1 + key) * 100**depth for depth, key in enumerate(ids))


def test_a_prefix_cache_creates_no_throughput() -> None:
    """inference-sim#1121: hits under preemption multiplied throughput by 45.

    For each admission: tokens found and tokens computed are the tokens that were there, and each output token
    after the first is computed once, except by who was preempted.
    """
    engine = replica(block_tokens=4, kv_tokens=160, prefix_cache=True)
    sequences = [shared(number, 24, 40, 1, 2, 3, 4, 5) for number in range(12)]
    for sequence in sequences:
        engine.submit(0.0, sequence)
    news = told(engine)

    counters = engine.counters
    assert counters.preemptions > 0
    assert counters.prefix_hit_tokens > 0
    assert counters.prefill_tokens == counters.prefix_queried_tokens - counters.prefix_hit_tokens
    # A token of the output comes from a decode step or from the end of an admission's prompt, one of each.
    admissions = len(sequences) + counters.preemptions
    assert counters.decode_tokens + admissions == sum(sequence.produced for sequence in sequences)
    assert sum(one.output_tokens for one in news if one.kind == FINISHED) == 12 * 40
    assert sum(one.kind == PROGRESS for one in news) == 12
