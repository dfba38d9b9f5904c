"""Data-parallel ranks schedule as vLLM does, each for itself, and step together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accuracy.ranks import DUMMY, Batch, Ranks
from accuracy.runs import Request
from tests.sim.reference import Job, Reference
from tidegate.core.curve import Linear
from tidegate.sim.settings import ReplicaSettings

CURVE = Linear(a_s=2**-6, b_s_per_sequence=2**-12, c_s_per_context_token=2**-18, d_s_per_prefill_token=2**-14)


def engine(seats: int = 4, budget: int = 64) -> ReplicaSettings:
    """With memory for everything."""
    return ReplicaSettings(
        max_num_seqs=seats,
        max_batched_tokens=budget,
        kv_tokens=8_000,
        context_tokens=8_000,
        prefix_cache=True,
    )


def request(
    number: int, at: float, prompt: int = 10, output: int = 2, blocks: tuple[int, ...] = ()
) -> Request:
    """Queued as it arrives."""
    return Request(
        id=number,
        prompt_tokens=prompt,
        output_tokens=output,
        blocks=blocks,
        arrival_s=at,
        queued_s=at,
        first_token_s=0.0,
        last_token_s=0.0,
    )


def test_a_step_is_planned_while_the_one_before_it_runs() -> None:
    """With steps of one second: who comes during a step is in the next but one, and takes a seat as late."""
    ranks = Ranks(engine(seats=2), 1, lambda batches: 1.0)
    requests = [
        request(0, 0.0, output=2),
        request(1, 0.5, output=2),  # steps 0 and 1 are planned; in step 2, from 2 to 3
        request(2, 0.6, output=1),  # the seat of 0 is free at 2, for the step from 3 to 4
    ]

    assert ranks.replay(requests) == {0: (1.0, 2.0), 1: (3.0, 4.0), 2: (4.0, 4.0)}


def test_requests_go_where_fewest_are_and_all_ranks_wait_for_the_slowest() -> None:
    """Two at once go to two ranks; while one of them computes alone, the other computes a dummy token."""
    steps: list[Sequence[Batch]] = []

    def step_s(batches: Sequence[Batch]) -> float:
        steps.append(batches)
        return max(1.0 if not chunks else 0.1 * sum(new for new, _ in chunks) for _, _, chunks in batches)

    times = Ranks(engine(), 2, step_s).replay([request(0, 0.0, prompt=40), request(1, 0.0, output=1)])

    assert times == {0: (4.0, 5.0), 1: (4.0, 4.0)}
    assert steps == [[(0, 0, ((40, 0),)), (0, 0, ((10, 0),))], [(1, 41, ()), DUMMY]]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 12), st.integers(1, 90), st.integers(1, 30), st.integers(0, 2), st.integers(0, 5)
        ),
        min_size=1,
        max_size=25,
    ),
    st.integers(1, 5),
    st.integers(8, 80),
)
def test_one_rank_is_vllm_with_asynchronous_scheduling(
    asked: list[tuple[int, int, int, int, int]], seats: int, budget: int
) -> None:
    """Its times are those of the step-by-step scheduler, which shares no code with it."""
    requests = [
        request(
            number,
            at / 128,
            prompt,
            output,
            tuple(family * 100 + n for n in range(min(shared, prompt // 16)))
            + tuple(1000 * (number + 1) + n for n in range(min(shared, prompt // 16), prompt // 16)),
        )
        for number, (at, prompt, output, family, shared) in enumerate(sorted(asked))
    ]
    reference = Reference(engine(seats, budget), CURVE, async_scheduling=True)
    jobs = {
        one.id: Job(one.id, one.prompt_tokens, one.output_tokens, one.output_tokens, prefix=one.blocks)
        for one in requests
    }

    times = Ranks(engine(seats, budget), 1, lambda batches: CURVE.step_s(*batches[0])).replay(requests)

    for one in requests:
        reference.submit(one.queued_s, jobs[one.id])
    reference.advance(1e6)
    for number, (first_s, last_s) in times.items():
        assert first_s == pytest.approx(jobs[number].first_token_at, rel=1e-9), number
        assert last_s == pytest.approx(jobs[number].finished_at, rel=1e-9), number
