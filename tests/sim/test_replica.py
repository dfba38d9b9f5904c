"""Does a replica do what vLLM's scheduler would, and when? Timelines; `test_equality.py` has the rest.

Unless a test says otherwise every step takes one second, so that instants are counts of steps.
"""

from __future__ import annotations

from math import inf, nextafter
from typing import Any

import pytest

from tests.sim.engines import replica, short, told
from tidegate.core.curve import Linear
from tidegate.core.errors import CallerError
from tidegate.sim.sequence import Sequence

GROWING = Linear(a_s=1.0, c_s_per_context_token=0.01)


def test_a_sequence_alone() -> None:
    """Its prompt takes a step, which yields the first token; every further token takes one."""
    for prompt, output, news in [
        (10, 1, [(1.5, "first", 7, 1), (1.5, "finished", 7, 1)]),
        (10, 3, [(1.5, "first", 7, 1), (3.5, "finished", 7, 3)]),
        (10, 0, [(1.5, "finished", 7, 0)]),  # an embedding
        (10, 32, [(1.5, "first", 7, 1), (32.5, "finished", 7, 32)]),  # the end is told, not a mark too
        (
            10,
            70,
            [
                (1.5, "first", 7, 1),
                (32.5, "progress", 7, 32),
                (64.5, "progress", 7, 64),
                (70.5, "finished", 7, 70),
            ],
        ),
    ]:
        engine = replica()
        assert engine.submit(0.5, Sequence(7, prompt, output)) is None
        assert short(told(engine)) == news, (prompt, output)
        assert engine.next_at() == inf
        assert engine.free_blocks == engine.settings.blocks


def test_who_comes_at_a_boundary_is_in_time() -> None:
    """The step that starts at the very instant of an arrival has it; one under way does not."""
    for arrived_at, first_at in [(0.0, 1.0), (0.5, 2.0), (1.0, 2.0), (5.5, 7.0), (6.0, 7.0)]:
        for asked in (False, True):
            engine = replica()
            engine.submit(0.0, Sequence(0, 10, 40))
            told(engine, until=arrived_at)
            if asked:  # nor does asking make a difference, right before or at that instant
                engine.boundary_after(arrived_at)
                engine.next_at()
            engine.submit(arrived_at, Sequence(1, 10, 5))
            assert (first_at, "first", 1, 1) in short(told(engine)), (arrived_at, asked)


def test_boundaries_of_a_run_have_a_closed_form() -> None:
    """Each step reads one token more than the one before, and takes that much longer."""
    engine, sequence = replica(GROWING), Sequence(0, 99, 30)
    engine.submit(0.0, sequence)

    at = 1.0  # a prompt's own attention is not in this term
    for token in range(2, 31):
        end = engine.boundary_after(at)
        assert end == pytest.approx(at + 1.0 + 0.01 * (99 + token - 1), rel=1e-12)
        assert engine.tokens_at(sequence, nextafter(end, 0.0)) == token - 1
        assert engine.tokens_at(sequence, end) == token
        at = end


def test_prompts_are_cut_to_the_budget() -> None:
    """A step computes the tokens of who decodes first, then as much of the prompt as is left of eight."""
    engine = replica(max_batched_tokens=8)
    engine.submit(0.0, Sequence(0, 20, 6))  # 8 + 8 + 4
    engine.submit(0.0, Sequence(1, 18, 2))  # 4, then 7 beside the first one's tokens, 7

    assert short(told(engine)) == [
        (3.0, "first", 0, 1),
        (5.0, "first", 1, 1),
        (6.0, "finished", 1, 2),
        (8.0, "finished", 0, 6),
    ]
    assert engine.counters.prefill_tokens == 38
    assert engine.counters.decode_tokens == 5 + 1


def test_prompts_that_may_not_be_cut_wait_for_a_whole_budget() -> None:
    """Beside one that decodes seven of eight tokens are left: a prompt of seven goes, one of eight waits."""
    for prompt, first_at in [(7, 3.0), (8, 7.0)]:
        engine = replica(max_batched_tokens=8, chunked_prefill=False)
        engine.submit(0.0, Sequence(0, 2, 6))
        engine.submit(1.5, Sequence(1, prompt, 0))
        assert [one.at for one in told(engine) if one.sequence.id == 1] == [first_at], prompt


def test_a_long_prompt_leaves_room_in_each_step() -> None:
    """No more than eight tokens of one prompt in a step, so that a short one need not wait for its end."""
    engine = replica(max_batched_tokens=32, long_prefill_tokens=8)
    engine.submit(0.0, Sequence(0, 24, 1))
    engine.submit(0.0, Sequence(1, 8, 2))

    assert short(told(engine)) == [
        (1.0, "first", 1, 1),
        (2.0, "finished", 1, 2),
        (3.0, "first", 0, 1),
        (3.0, "finished", 0, 1),
    ]


def test_the_order_decides_when_a_long_prompt_leaves_too_little() -> None:
    """A prompt admitted first has its share before those that decode; who gets nothing makes no step."""
    engine = replica(max_num_seqs=4, max_batched_tokens=4, long_prefill_tokens=3)
    sequences = [Sequence(0, 12, 1), Sequence(1, 1, 9), Sequence(2, 1, 9)]
    for sequence in sequences:
        engine.submit(0.0, sequence)

    for at, tokens in [
        (1.0, [0, 1, 0]),  # 3 tokens of the first, 1 of the second: the third found no budget
        (2.0, [0, 2, 0]),
        (4.0, [1, 4, 0]),  # its last 3 tokens
        (5.0, [1, 5, 1]),
        (6.0, [1, 6, 2]),
    ]:
        assert [engine.tokens_at(sequence, at) for sequence in sequences] == tokens, at
        engine.check()


def test_seats_are_handed_on_at_the_boundary_at_which_they_come_free() -> None:
    """With two seats the third request starts in the step after the first one's last token."""
    engine = replica(max_num_seqs=2)
    for number, output in enumerate((3, 6, 2)):
        engine.submit(0.0, Sequence(number, 10, output))

    assert short(told(engine)) == [
        (1.0, "first", 0, 1),
        (1.0, "first", 1, 1),
        (3.0, "finished", 0, 3),
        (4.0, "first", 2, 1),
        (5.0, "finished", 2, 2),
        (6.0, "finished", 1, 6),
    ]


def test_nobody_overtakes_the_head_of_the_queue() -> None:
    """A small request waits behind a large one that does not fit yet, though it would fit itself."""
    engine = replica(kv_tokens=64)
    engine.submit(0.0, Sequence(0, 30, 3))  # two blocks of four, three at its end
    engine.submit(0.5, Sequence(1, 40, 1))  # three: it waits for the first one's end
    engine.submit(0.5, Sequence(2, 4, 1))

    assert [(one.at, one.sequence.id) for one in told(engine) if one.kind == 2] == [
        (3.0, 0),
        (4.0, 1),
        (4.0, 2),
    ]


def test_a_whole_prompt_must_fit_or_only_its_first_chunk() -> None:
    """vLLM's `scheduler_reserve_full_isl`: without it a prompt starts that has to give way half-way."""
    for whole in (True, False):
        engine = replica(kv_tokens=80, max_batched_tokens=32, whole_prompt_must_fit=whole)
        engine.submit(0.0, Sequence(0, 30, 30))
        engine.submit(0.5, Sequence(1, 64, 2))
        told(engine)
        assert (engine.counters.preemptions == 0) is whole


def test_a_reservation_is_for_all_that_may_come() -> None:
    """A contiguous cache holds prompt and `max_tokens` from the start; nothing is preempted later."""
    engine = replica(kv="reserved", kv_tokens=64)
    engine.submit(0.0, Sequence(0, 10, 3, max_tokens=22))
    assert engine.tokens_at(Sequence(9, 1, 1), 0.5) == 0
    assert engine.free_blocks == 2
    engine.submit(0.5, Sequence(1, 10, 2, max_tokens=30))  # three blocks: it waits

    assert short(told(engine)) == [
        (1.0, "first", 0, 1),
        (3.0, "finished", 0, 3),
        (4.0, "first", 1, 1),
        (5.0, "finished", 1, 2),
    ]


def test_priorities() -> None:
    """The smallest number is admitted first, among equals the earliest."""
    engine = replica(priority=True, max_num_seqs=1)
    for at, number, priority in [(0.0, 0, 5), (0.1, 1, 2), (0.2, 2, 1), (0.3, 3, 1)]:
        engine.submit(at, Sequence(number, 10, 1, priority=priority))

    assert [one.sequence.id for one in told(engine) if one.kind == 2] == [0, 2, 3, 1]


def test_who_leaves() -> None:
    """Blocks are free at once; a step under way keeps its length; what was produced by then is told."""
    for at, produced, finished_at in [
        (0.5, 0, 1.2 + 1.1 + 1.1),
        (1.2, 1, 1.2 + 1.1 + 1.1),  # at a boundary: the step that starts there is without it
        (1.5, 1, 1.2 + 1.2 + 1.1),
        (2.4, 2, 1.2 + 1.2 + 1.1),
        (3.0, 2, 1.2 + 1.2 + 1.2),
    ]:
        engine = replica(Linear(a_s=1.0, b_s_per_sequence=0.1), kv_tokens=64)
        leaver, stays = Sequence(0, 16, 9), Sequence(1, 10, 3)
        engine.submit(0.0, leaver)
        engine.submit(0.0, stays)
        news = told(engine, until=at)
        assert engine.tokens_at(leaver, at) == produced, at
        assert engine.cancel(at, leaver) == produced, at
        assert engine.free_blocks == 3, at
        engine.check()
        news += told(engine)
        assert news[-1].at == pytest.approx(finished_at, rel=1e-12), at
        assert not any(one.at > at and one.sequence is leaver for one in news)


def test_who_leaves_the_queue() -> None:
    """Behind a head that does not fit nothing changes; the head itself makes way for the next."""
    engine = replica(kv_tokens=64)
    waiting = [Sequence(1, 40, 1), Sequence(2, 60, 1), Sequence(3, 4, 1)]
    for sequence in (Sequence(0, 30, 9), *waiting):
        engine.submit(0.0, sequence)

    assert engine.advance(2.5)[0].sequence.id == 0
    assert engine.cancel(2.5, waiting[1]) == 0
    assert engine.waiting == 2
    assert engine.cancel(3.5, waiting[0]) == 0
    assert short(told(engine)) == [(5.0, "first", 3, 1), (5.0, "finished", 3, 1), (9.0, "finished", 0, 9)]
    assert engine.cancel(9.5, waiting[2]) == 1  # it is complete


def test_a_slow_replica() -> None:
    """Steps that start from then on take longer; the one under way does not."""
    for at, finished_at in [(2.0, 2.0 + 2 * 3), (2.5, 3.0 + 3)]:
        engine = replica()
        engine.submit(0.0, Sequence(0, 10, 4))
        told(engine, until=at)
        engine.slow(at, 3.0)
        assert told(engine)[-1].at == finished_at, at
        engine.slow(20.0, 1.0)
        engine.submit(20.0, Sequence(1, 10, 2))
        assert told(engine)[-1].at == 22.0


def test_a_crash() -> None:
    """All is lost, in the batch and in the queue, with what each had produced; and it starts anew."""
    engine = replica(max_num_seqs=2, prefix_cache=True)
    sequences = [Sequence(number, 32, 9, prefix=(1, 2)) for number in range(3)]
    for at, sequence in zip((0.0, 1.5, 1.5), sequences, strict=True):
        engine.submit(at, sequence)

    assert engine.clear(3.5) == sequences
    assert [sequence.produced for sequence in sequences] == [3, 1, 0]
    assert (engine.running, engine.waiting, engine.next_at()) == (0, 0, inf)
    assert engine.kv_used_ratio == 0
    engine.check()
    engine.submit(3.75, again := Sequence(3, 32, 2, prefix=(1, 2)))
    assert short(told(engine)) == [(4.75, "first", 3, 1), (5.75, "finished", 3, 2)]
    assert again.cached_tokens == 0


def test_what_can_never_be_served() -> None:
    """The reason is said at once, and nothing else changes."""
    cases: list[tuple[dict[str, Any], Sequence, str]] = [
        ({"kv_tokens": 2050}, Sequence(0, 3000, 200), "3000 + 200 tokens never fit in 2048"),
        ({"context_tokens": 100}, Sequence(0, 99, 2), "99 + 2 tokens never fit in 100"),
        ({"chunked_prefill": False}, Sequence(0, 1000, 25), "1000 + 25 tokens never fit in 1024"),
        (
            {"kv": "reserved", "kv_tokens": 64},
            Sequence(0, 4, 4, max_tokens=61),
            "4 + 61 tokens never fit in 64",
        ),
        ({}, Sequence(0, 0, 5), "0 + 5 tokens are no sequence"),
        ({}, Sequence(0, 5, -1), "5 + -1 tokens are no sequence"),
    ]
    for changes, sequence, why in cases:
        engine = replica(**changes)
        assert engine.submit(1.0, sequence) == why
        assert engine.next_at() == inf


def test_what_is_in_use_within_a_run() -> None:
    """The cache grows by a block every sixteen tokens, in the step that needs it; no event marks that."""
    engine = replica(kv_tokens=160)
    engine.submit(0.0, Sequence(0, 30, 60))

    for at, blocks in [(0.5, 2), (1.5, 2), (3.0, 2), (3.5, 3), (19.0, 3), (19.5, 4), (35.5, 5)]:
        engine.let_pass(at)
        assert engine.free_blocks == 10 - blocks, at
        assert engine.kv_used_ratio == pytest.approx(blocks / 10)


def test_the_emulator_wakes_at_each_boundary() -> None:
    """The end of the step under way, whatever its kind; where none is, right after now; never if idle."""
    engine = replica()
    assert engine.boundary_after(0.0) == inf
    engine.submit(0.25, Sequence(0, 10, 2))

    assert engine.boundary_after(0.25) == nextafter(0.25, inf)
    for at, before, after in [(0.5, 0.25, 1.25), (1.25, 1.25, 2.25), (2.0, 1.25, 2.25), (2.25, 2.25, inf)]:
        assert engine.boundary_after(at) == after, at
        assert engine.boundary_before(at) == before, at


def test_news_waits_to_be_fetched() -> None:
    """Whatever lets time pass keeps what it learns; it is told once, in order."""
    engine = replica()
    engine.submit(0.0, Sequence(0, 10, 1))
    engine.submit(3.0, Sequence(1, 10, 1))

    assert engine.next_at() == 3.0
    assert [one.at for one in engine.advance(5.0)] == [1.0, 1.0, 4.0, 4.0]
    assert engine.advance(5.0) == []
    with pytest.raises(CallerError, match="time went back"):
        engine.advance(4.0)


def test_batches_are_shown_to_who_asks() -> None:
    """Runs and single steps, back to back, with what they computed."""
    shown: list[tuple[float, float, int, int, int, int, float]] = []
    engine = replica(kv_tokens=160)
    engine.on_batch = lambda *batch: shown.append(batch)
    engine.submit(0.0, Sequence(0, 10, 20))
    engine.submit(4.5, Sequence(1, 40, 2))
    told(engine)

    assert shown == [
        (0.0, 1.0, 1, 0, 10, 0, 0.1),
        (1.0, 5.0, 4, 1, 0, 1, 0.1),
        (5.0, 6.0, 1, 1, 40, 0, 0.4),
        (6.0, 7.0, 1, 2, 0, 0, 0.4),
        (7.0, 20.0, 13, 1, 0, 0, 0.2),
    ]
    assert engine.counters.steps == 20
    assert engine.counters.busy_s == 20.0
