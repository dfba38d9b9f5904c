"""The step-by-step scheduler follows vLLM's rules, each by a day that can be worked out by hand.

Steps take one second, blocks hold four tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import msgspec

from tests.sim.reference import Job, Reference
from tidegate.sim.settings import ReplicaSettings


class OneSecond:
    """Each step."""

    def step_s(
        self, decodes: int, context_tokens: float, chunks: Sequence[tuple[int, int]], draft_tokens: int
    ) -> float:
        """Whatever is computed."""
        return 1.0


PLENTY = ReplicaSettings(
    max_num_seqs=8, max_batched_tokens=64, kv_tokens=400, context_tokens=400, block_tokens=4
)


def job(number: int, prompt: int, output: int, priority: int = 0, prefix: tuple[int, ...] = ()) -> Job:
    """One that reserves what it needs."""
    return Job(number, prompt, output, output, priority, prefix, 4)


def played(settings: ReplicaSettings, *arrivals: tuple[float, Job]) -> Reference:
    """All of them come, and all end."""
    reference = Reference(settings, OneSecond())
    for at, one in arrivals:
        reference.submit(at, one)
    reference.advance(1000.0)
    assert not reference.running
    assert not reference.waiting
    return reference


def chunks(reference: Reference) -> list[list[tuple[int, int]]]:
    """Of each step."""
    return [step.chunks for step in reference.steps]


def test_a_long_prompt_is_computed_in_chunks_of_what_is_left_of_the_budget() -> None:
    """What decodes takes its token first."""
    settings = msgspec.structs.replace(PLENTY, max_batched_tokens=8)
    first, second = job(0, 8, 9), job(1, 20, 1)

    reference = played(settings, (0.0, first), (0.5, second))

    assert chunks(reference)[:5] == [[(8, 0)], [(7, 0)], [(7, 7)], [(6, 14)], []]
    assert second.first_token_at == 4.0
    assert first.finished_at == 9.0


def test_without_chunks_a_prompt_waits_for_a_step_with_room_and_others_behind_it() -> None:
    """First come, first served: a short one does not overtake."""
    settings = msgspec.structs.replace(PLENTY, max_batched_tokens=10, chunked_prefill=False)
    jobs = [job(0, 8, 2), job(1, 8, 1), job(2, 1, 1)]

    played(settings, *((0.0, one) for one in jobs))

    assert [one.first_token_at for one in jobs] == [1.0, 2.0, 2.0]


def test_who_comes_at_a_boundary_is_in_the_step_that_starts_there() -> None:
    """And who comes a little later is in the next one."""
    jobs = [job(0, 4, 9), job(1, 4, 1), job(2, 4, 1)]

    played(PLENTY, (0.0, jobs[0]), (1.0, jobs[1]), (1.001, jobs[2]))

    assert [one.first_token_at for one in jobs] == [1.0, 2.0, 3.0]


def test_the_last_admitted_is_preempted_and_nobody_admitted_in_that_step() -> None:
    """It is computed again, outputs too, as soon as all of it fits; before that, nobody behind it."""
    settings = msgspec.structs.replace(PLENTY, kv_tokens=24, context_tokens=24)
    jobs = [job(0, 8, 8), job(1, 8, 8), job(2, 1, 1)]

    reference = played(settings, (0.0, jobs[0]), (0.0, jobs[1]), (4.5, jobs[2]))

    # Both hold 3 blocks of 6 from step 1 on; in step 5 each would take its 13th token to a fourth.
    assert reference.preemptions == [(5.0, 1)]
    assert [(at, number) for at, number, _ in reference.admissions] == [(0, 0), (0, 1), (8.0, 1), (8.0, 2)]
    assert chunks(reference)[8] == [(13, 0), (1, 0)]
    assert [one.finished_at for one in jobs] == [8.0, 11.0, 9.0]


def test_a_prompt_is_admitted_when_all_of_it_fits_or_if_told_so_when_its_first_chunk_does() -> None:
    """`scheduler_reserve_full_isl`."""
    for whole, admitted_at in [(True, 4.0), (False, 2.0)]:  # the first holds 5 of 10 blocks from 2 to 4
        settings = msgspec.structs.replace(
            PLENTY, kv_tokens=40, context_tokens=40, max_batched_tokens=8, whole_prompt_must_fit=whole
        )

        reference = played(settings, (0.0, job(0, 16, 3)), (0.0, job(1, 28, 1)))

        assert reference.admissions == [(0.0, 0, 0), (admitted_at, 1, 0)]


def test_of_a_prompt_that_is_known_whole_the_last_block_is_computed_again() -> None:
    """Its last token is needed for the first output; blocks are found whole."""
    settings = msgspec.structs.replace(PLENTY, prefix_cache=True)
    jobs = [job(0, 8, 1, prefix=(7, 8)), job(1, 8, 1, prefix=(7, 8)), job(2, 9, 1, prefix=(7, 8))]

    reference = played(settings, (0.0, jobs[0]), (1.0, jobs[1]), (1.0, jobs[2]))

    assert [one.cached_tokens for one in jobs] == [0, 4, 8]
    assert chunks(reference) == [[(8, 0)], [(4, 4), (1, 8)]]


def test_blocks_of_a_prompt_are_known_to_the_next_in_the_same_step() -> None:
    """vLLM caches a block when it is scheduled, not when it is computed."""
    settings = msgspec.structs.replace(PLENTY, prefix_cache=True)
    jobs = [job(0, 9, 1, prefix=(7, 8)), job(1, 9, 1, prefix=(7, 8))]

    reference = played(settings, (0.0, jobs[0]), (0.0, jobs[1]))

    assert chunks(reference) == [[(9, 0), (1, 8)]]


def test_the_tail_of_what_was_freed_is_forgotten_first() -> None:
    """Blocks that never held anything go before it."""
    settings = msgspec.structs.replace(PLENTY, prefix_cache=True, kv_tokens=20, context_tokens=20)
    jobs = [job(0, 16, 1, prefix=(1, 2, 3, 4)), job(1, 12, 1), job(2, 16, 1, prefix=(1, 2, 3, 4))]

    played(settings, (0.0, jobs[0]), (2.0, jobs[1]), (4.0, jobs[2]))

    # Five blocks: the second takes the empty one and those of ids 4 and 3.
    assert jobs[2].cached_tokens == 8


def test_a_preempted_one_finds_its_own_blocks_again() -> None:
    """What nobody needed in between is not computed twice."""
    settings = msgspec.structs.replace(PLENTY, prefix_cache=True, kv_tokens=24, context_tokens=24)
    jobs = [job(0, 8, 6), job(1, 8, 8)]

    reference = played(settings, (0.0, jobs[0]), (0.0, jobs[1]))

    assert reference.preemptions == [(5.0, 1)]
    assert reference.admissions[-1] == (6.0, 1, 8)  # of its 13 tokens; its third block went to the other
    assert jobs[1].cached_tokens == 0  # as it was when it was first admitted


def test_with_priorities_the_smallest_is_admitted_first() -> None:
    """Whoever came first, and also where one was preempted."""
    settings = msgspec.structs.replace(PLENTY, priority=True, kv_tokens=24, context_tokens=24, max_num_seqs=2)
    jobs = [job(0, 8, 8, priority=2), job(1, 8, 8, priority=1), job(2, 8, 1, priority=3), job(3, 8, 1)]

    reference = played(settings, *((at, one) for at, one in zip((0.0, 0.0, 0.5, 0.5), jobs, strict=True)))

    assert [number for _, number, _ in reference.admissions] == [1, 0, 3, 0, 2]
    assert reference.preemptions == [(5.0, 0)]


def test_with_priorities_the_largest_is_preempted_even_if_the_step_has_it_already() -> None:
    """It comes first in the batch and had its share before the other one lacked a block."""
    settings = msgspec.structs.replace(PLENTY, priority=True, kv_tokens=16, context_tokens=16)
    jobs = [job(0, 5, 4, priority=2), job(1, 8, 6, priority=1)]

    reference = played(settings, (0.0, jobs[0]), (0.5, jobs[1]))

    assert reference.preemptions == [(2.0, 0)]
    assert [one.id for one in reference.steps[2].scheduled] == [1]


def test_a_contiguous_reservation_holds_all_that_it_may_need() -> None:
    """So nobody is preempted, and the second waits for the end of the first."""
    settings = msgspec.structs.replace(PLENTY, kv="reserved", kv_tokens=24, context_tokens=24)
    jobs = [job(0, 8, 8), job(1, 8, 8)]

    reference = played(settings, (0.0, jobs[0]), (0.0, jobs[1]))

    assert reference.preemptions == []
    assert [one.first_token_at for one in jobs] == [1.0, 9.0]


def test_with_asynchronous_scheduling_a_newcomer_waits_for_the_step_that_is_planned() -> None:
    """vLLM's default: a step is planned while the one before it runs."""
    jobs = [job(0, 4, 9), job(1, 4, 1)]
    reference = Reference(PLENTY, OneSecond(), async_scheduling=True)

    for at, one in [(0.0, jobs[0]), (0.5, jobs[1])]:
        reference.submit(at, one)
    reference.advance(100.0)

    assert [one.first_token_at for one in jobs] == [1.0, 3.0]
    assert jobs[0].finished_at == 9.0


def test_who_leaves_frees_its_blocks_at_once_and_the_step_goes_on() -> None:
    """The step under way keeps its length; the next one starts at its end."""
    settings = msgspec.structs.replace(PLENTY, kv_tokens=24, context_tokens=24)
    jobs = [job(0, 16, 8), job(1, 16, 1)]
    reference = Reference(settings, OneSecond())
    reference.submit(0.0, jobs[0])
    reference.submit(0.0, jobs[1])

    assert reference.cancel(2.5, jobs[0]) == 2
    assert len(reference.pool.free) == 6
    reference.advance(100.0)

    assert jobs[0].finished_at == inf
    assert jobs[1].finished_at == 4.0
