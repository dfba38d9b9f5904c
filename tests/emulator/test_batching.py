"""Does the replica model schedule as vLLM does, and keep its promises under any load?"""

from __future__ import annotations

from math import ceil

import msgspec
import pytest
from hypothesis import event, given, note
from hypothesis import strategies as st

from tidegate.core.errors import CallerError
from tidegate.emulator.batching import BLOCK_TOKENS, Replica, Sequence, StepResult
from tidegate.emulator.profile import Profile

PLAIN = Profile(
    a_s=10e-3,
    b_s_per_sequence=1e-3,
    c_s_per_context_token=0,
    d_s_per_prefill_token=0.1e-3,
    max_num_seqs=8,
    max_batched_tokens=100,
    kv_tokens=10_000,
    context_tokens=10_000,
)


def replica_of(**changes: float) -> Replica:
    """A replica of the plain profile, changed."""
    return Replica(msgspec.structs.replace(PLAIN, **changes))


def steps(replica: Replica) -> list[StepResult]:
    """All steps until nothing is left to compute."""
    done = []
    while (step := replica.step()) is not None:
        replica.check()
        done.append(step)
        assert len(done) < 100_000
    return done


def table(results: list[StepResult]) -> list[tuple[float, int, int, int]]:
    """Duration in ms, prefill tokens, tokens produced, sequences finished."""
    return [
        (round(1e3 * step.duration_s, 6), step.prefill_tokens, len(step.produced), len(step.finished))
        for step in results
    ]


def test_a_prompt_above_the_budget_is_computed_in_chunks() -> None:
    """Its last chunk yields the first token, and every further step one more."""
    replica = replica_of()
    replica.submit(Sequence(250, 3))

    assert table(steps(replica)) == [
        (21.0, 100, 0, 0),  # 10 + 1 + 100 x 0.1
        (21.0, 100, 0, 0),
        (16.0, 50, 1, 0),
        (11.0, 0, 1, 0),
        (11.0, 0, 1, 1),
    ]


def test_running_sequences_go_first() -> None:
    """A decode takes its one token of the budget; a new prompt's chunks get what is left."""
    replica = replica_of()
    replica.submit(Sequence(10, 4))
    first = replica.step()
    replica.submit(Sequence(150, 1))

    assert first is not None
    assert table([first, *steps(replica)]) == [
        (12.0, 10, 1, 0),
        (21.9, 99, 1, 0),  # two sequences, 1 + 99 tokens
        (17.1, 51, 2, 1),
        (11.0, 0, 1, 1),
    ]


def test_context_costs_what_the_step_reads() -> None:
    """The context term counts every token in the cache of the batch, new ones included."""
    replica = replica_of(a_s=0, b_s_per_sequence=0, d_s_per_prefill_token=0, c_s_per_context_token=1)
    replica.submit(Sequence(30, 2))
    replica.submit(Sequence(20, 3))

    assert [step.duration_s for step in steps(replica)] == pytest.approx([50, 52, 22])


def test_seats_are_bounded() -> None:
    """With two seats the third sequence waits until one has left."""
    replica = replica_of(max_num_seqs=2)
    for output_tokens in (1, 2, 1):
        replica.submit(Sequence(10, output_tokens))

    for running, waiting in [(2, 1), (2, 0), (0, 0)]:
        replica.step()
        assert (replica.running, replica.waiting) == (running, waiting)


def test_admission_needs_the_blocks_of_the_whole_prompt() -> None:
    """A long prompt that does not fit yet is not overtaken by a short one that would."""
    replica = replica_of(kv_tokens=6 * BLOCK_TOKENS)
    for prompt_tokens in (40, 60, 1):  # 3, 4 and 1 blocks
        replica.submit(Sequence(prompt_tokens, 1))

    for running, waiting, free_blocks in [(1, 2, 3), (2, 0, 1), (0, 0, 6)]:
        replica.step()
        assert (replica.running, replica.waiting, replica.free_blocks) == (running, waiting, free_blocks)


def test_preemption_takes_the_last_and_computes_it_again() -> None:
    """When the cache is full the newest gives way, and later prefills what it had, its own output too."""
    replica = replica_of(kv_tokens=4 * BLOCK_TOKENS)
    first, second = Sequence(30, 6), Sequence(30, 5)
    replica.submit(first)
    replica.submit(second)

    for produced, running, waiting, prefill_tokens, preempted in [
        ((1, 1), 2, 0, 60, 0),
        ((2, 2), 2, 0, 0, 0),
        ((3, 3), 2, 0, 0, 0),  # 32 tokens in the cache: both own two full blocks, and none is left
        ((4, 3), 1, 1, 0, 1),
        ((5, 3), 1, 1, 0, 0),  # its 33 tokens need three blocks, one is free
        ((6, 3), 1, 1, 0, 0),
        ((6, 4), 1, 0, 33, 0),
        ((6, 5), 1, 0, 0, 0),
    ]:
        step = replica.step()
        replica.check()
        assert step is not None
        assert (first.produced, second.produced) == produced
        assert (replica.running, replica.waiting) == (running, waiting), produced
        assert (step.prefill_tokens, step.preempted) == (prefill_tokens, preempted), produced
    assert replica.step() is None
    assert (replica.preemptions, first.preemptions, second.preemptions) == (1, 0, 1)
    assert replica.free_blocks == replica.blocks


def test_a_sequence_without_output_ends_with_its_prompt() -> None:
    """Embeddings occupy a seat while they are computed, and yield nothing."""
    replica = replica_of()
    replica.submit(Sequence(120, 0))

    assert table(steps(replica)) == [(21.0, 100, 0, 0), (13.0, 20, 0, 1)]


def test_a_last_chunk_of_one_token_is_prefill() -> None:
    """It is told from a decode by what it has produced, not by its size."""
    replica = replica_of()
    replica.submit(Sequence(101, 2))

    assert table(steps(replica)) == [(21.0, 100, 0, 0), (11.1, 1, 1, 0), (11.0, 0, 1, 1)]


def test_cancelling_gives_back_at_once_what_was_held() -> None:
    """Running, waiting or gone: a cancelled sequence leaves no trace, and cancelling twice is nothing."""
    replica = replica_of(max_num_seqs=1)
    running, waiting = Sequence(40, 1), Sequence(40, 9)
    replica.submit(running)
    replica.submit(waiting)
    replica.step()

    for sequence in (waiting, running, running, Sequence(1, 1)):
        replica.cancel(sequence)
        replica.check()
    assert (replica.running, replica.waiting, replica.kv_used_ratio) == (0, 0, 0)
    assert replica.step() is None


@pytest.mark.parametrize(("prompt_tokens", "output_tokens"), [(0, 5), (49, 0), (40, 9), (10, -1)])
def test_what_never_fits_is_a_broken_contract(prompt_tokens: int, output_tokens: int) -> None:
    """Such a sequence would block the queue for ever."""
    with pytest.raises(CallerError):
        replica_of(kv_tokens=50).submit(Sequence(prompt_tokens, output_tokens))  # three whole blocks


# -- laws -------------------------------------------------------------------------------------------------

TIGHT = st.builds(
    lambda seats, budget, blocks: msgspec.structs.replace(
        PLAIN,
        max_num_seqs=seats,
        max_batched_tokens=budget,
        kv_tokens=blocks * BLOCK_TOKENS + 5,
        c_s_per_context_token=1e-6,
    ),
    st.integers(1, 6),
    st.integers(1, 90),
    st.integers(3, 12),
)
SIZES = st.tuples(st.integers(1, 47), st.integers(0, 40))  # prompts and outputs; the tightest cache has 48
WORK = st.lists(
    st.one_of(
        SIZES,
        SIZES,
        SIZES,
        st.integers(1, 6),  # so many steps
        st.integers(1, 6),
        st.floats(0, 1, exclude_max=True),  # cancel the one at this share of those submitted
    ),
    min_size=15,
    max_size=60,
)


class Watched:
    """A replica whose every step is checked against the laws."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.replica = Replica(profile)
        self.submitted: list[Sequence] = []
        self.live: list[Sequence] = []
        self.received: dict[Sequence, int] = {}
        self.begun: list[Sequence] = []  # in the order of their first tokens

    def submit(self, prompt_tokens: int, output_tokens: int) -> None:
        room = self.replica.sequence_tokens - prompt_tokens
        sequence = Sequence(prompt_tokens, min(output_tokens, room))
        self.replica.submit(sequence)
        self.submitted.append(sequence)
        self.live.append(sequence)
        self.received[sequence] = 0

    def cancel(self, sequence: Sequence) -> None:
        self.replica.cancel(sequence)
        self.replica.check()
        if sequence in self.live:
            self.live.remove(sequence)

    def step(self) -> bool:
        """One step; False when the replica is idle."""
        oldest = self.live[0] if self.live else None
        before = (oldest.computed, oldest.preemptions) if oldest is not None else None
        computed = {sequence: sequence.computed for sequence in self.live}
        step = self.replica.step()
        self.replica.check()
        if step is None:
            assert not self.live
            return False
        assert oldest is not None
        assert before is not None
        assert oldest.computed > before[0], "the oldest must make progress"
        assert oldest.preemptions == before[1], "and is never preempted"
        spent = sum(max(0, sequence.computed - computed[sequence]) for sequence in self.live)
        assert 1 <= spent <= self.profile.max_batched_tokens
        assert step.prefill_tokens <= spent
        assert step.duration_s >= self.profile.step_s(1, 1, 0)
        self._receive(step)
        return True

    def _receive(self, step: StepResult) -> None:
        for sequence, tokens in step.produced:
            assert sequence in self.live, "only who is served produces"
            if not self.received[sequence]:
                self.begun.append(sequence)
            self.received[sequence] += tokens
        for sequence in step.finished:
            self.live.remove(sequence)
            assert self.received[sequence] == sequence.output_tokens


@given(TIGHT, WORK)
def test_laws(profile: Profile, work: list[tuple[int, int] | int | float]) -> None:
    """Whatever comes: bounds hold in each step, the oldest progresses, and each gets exactly its tokens."""
    watched = Watched(profile)

    for item in work:
        if isinstance(item, tuple):
            watched.submit(*item)
        elif isinstance(item, int):
            for _ in range(item):
                watched.step()
        elif watched.submitted:
            watched.cancel(watched.submitted[int(item * len(watched.submitted))])
    left = len(watched.live)
    longest = ceil(47 / profile.max_batched_tokens) + 41
    taken = 0
    while watched.step():
        taken += 1

    note(f"{left} left, {taken} steps, {watched.replica.preemptions} preemptions")
    event("preempted" if watched.replica.preemptions else "in peace")
    assert taken <= left * longest, "at worst one after the other"
    assert watched.replica.free_blocks == watched.replica.blocks
    order = {sequence: place for place, sequence in enumerate(watched.submitted)}
    places = [order[sequence] for sequence in watched.begun]
    assert places == sorted(places), "first come, first served"


@given(st.lists(SIZES, min_size=1, max_size=12), st.integers(3, 12))
def test_preemption_costs_work_and_never_tokens(sizes: list[tuple[int, int]], blocks: int) -> None:
    """Each prompt is prefilled exactly once, and more than that only where something was preempted."""
    replica = replica_of(kv_tokens=blocks * BLOCK_TOKENS)
    fitting = [(prompt, min(output, replica.sequence_tokens - prompt)) for prompt, output in sizes]
    for size in fitting:
        replica.submit(Sequence(*size))

    done = steps(replica)

    prompt_tokens = sum(prompt for prompt, _ in fitting)
    again = sum(step.prefill_tokens for step in done) - prompt_tokens
    event("preempted" if replica.preemptions else "in peace")
    assert sum(len(step.produced) for step in done) == sum(output for _, output in fitting)
    assert (again > 0) == (replica.preemptions > 0)


@given(TIGHT, WORK)
def test_the_same_work_takes_the_same_steps(
    profile: Profile, work: list[tuple[int, int] | int | float]
) -> None:
    """Nothing is left to chance."""
    runs = []
    for _ in range(2):
        replica = Replica(profile)
        run: list[tuple[float, int, int, int]] = []
        for item in work:
            if isinstance(item, tuple):
                replica.submit(Sequence(item[0], min(item[1], replica.sequence_tokens - item[0])))
            elif isinstance(item, int) and (step := replica.step()) is not None:
                run += table([step])
        runs.append(run + table(steps(replica)))

    assert runs[0] == runs[1]
