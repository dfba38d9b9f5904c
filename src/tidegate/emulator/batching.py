"""Which sequences does a replica compute next, and how long does that take?

Continuous batching as vLLM's v1 scheduler does it: each step spends a token budget on the running sequences
first, in the order of their admission, then on the waiting ones, first come first served. A prompt that
exceeds what is left of the budget is computed in chunks. The KV cache is handed out in blocks of 16 tokens:
a sequence is admitted when the blocks of its prompt are free, and takes further ones as it grows. When there
is none, the sequence admitted last gives up its blocks, goes back to the head of the queue, and is computed
again from its start (source: vLLM docs, "Optimization and Tuning", preemption).

Nothing here reads a clock or does I/O. Promises, which `check` asserts: blocks held never exceed the cache,
and every block is held once or free; the oldest sequence always makes progress, so that none starves; a
sequence yields exactly its `output_tokens`, preempted or not. Preemption costs time, never tokens.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import msgspec

from tidegate.core.errors import CallerError
from tidegate.emulator.profile import Profile

BLOCK_TOKENS = 16  # vLLM's default block size on GPUs


@dataclass(slots=True, eq=False)
class Sequence:
    """One prompt and the output that it will get. `output_tokens` 0: the prompt is only computed."""

    prompt_tokens: int
    output_tokens: int

    produced: int = 0
    preemptions: int = 0
    computed: int = 0  # tokens whose keys and values are in the cache
    blocks: int = 0

    @property
    def known(self) -> int:
        """Tokens that exist so far, each of which must be in the cache before the next can be produced."""
        return self.prompt_tokens + self.produced


class StepResult(msgspec.Struct, frozen=True):
    """What one step does. All of it is there when the step ends, `duration_s` after it began."""

    duration_s: float
    produced: list[tuple[Sequence, int]]
    """Output tokens by sequence."""
    finished: list[Sequence]
    prefill_tokens: int
    """Prompt tokens computed, those computed again after a preemption included."""
    preempted: int


@dataclass(slots=True)
class Batch:
    """What a step has been given so far."""

    budget: int
    entries: list[tuple[Sequence, int]]
    preempted: int = 0


class Replica:
    """The scheduler and KV cache of one engine."""

    __slots__ = ("_finished", "_running", "_waiting", "blocks", "free_blocks", "preemptions", "profile")

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.blocks = profile.kv_tokens // BLOCK_TOKENS
        self.free_blocks = self.blocks
        self.preemptions = 0
        self._running: list[Sequence] = []
        self._waiting: deque[Sequence] = deque()
        self._finished: list[Sequence] = []  # they keep their seats until the step that ended them is over

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences in the queue, preempted ones included."""
        return len(self._waiting)

    @property
    def kv_used_ratio(self) -> float:
        """Share of the KV cache in use, 0..1."""
        return 1 - self.free_blocks / self.blocks

    @property
    def sequence_tokens(self) -> int:
        """The longest sequence, prompt and output, that can be served."""
        return min(self.profile.context_tokens, self.blocks * BLOCK_TOKENS)

    def submit(self, sequence: Sequence) -> None:
        """Queue it. CallerError if it could never be served."""
        tokens = sequence.prompt_tokens + sequence.output_tokens
        if not 1 <= sequence.prompt_tokens <= tokens <= self.sequence_tokens:
            raise CallerError(
                f"{sequence.prompt_tokens} + {sequence.output_tokens} tokens never fit in "
                f"{self.sequence_tokens}"
            )
        self._waiting.append(sequence)

    def cancel(self, sequence: Sequence) -> None:
        """Forget it and free its blocks at once, wherever it is; nothing if it is not here any more."""
        if sequence in self._running:
            self._running.remove(sequence)
            self._free(sequence)
        elif sequence in self._waiting:
            self._waiting.remove(sequence)
        if sequence in self._finished:
            self._finished.remove(sequence)

    def step(self) -> StepResult | None:
        """End the last step and plan the next one; None when there is nothing to compute."""
        self._retire()
        batch = Batch(self.profile.max_batched_tokens, [])
        self._continue_running(batch)
        self._admit_waiting(batch)
        self.preemptions += batch.preempted
        return self._computed(batch) if batch.entries else None

    def check(self) -> None:
        """Assert what this module promises."""
        held = sum(sequence.blocks for sequence in self._running)
        assert held + self.free_blocks == self.blocks
        assert self.free_blocks >= 0
        assert len(self._running) <= self.profile.max_num_seqs
        assert len(set(self._running) | set(self._waiting)) == self.running + self.waiting
        for sequence in self._running:
            assert sequence.computed <= sequence.known
            assert blocks_of(sequence.computed) <= sequence.blocks
            assert sequence.produced <= sequence.output_tokens
        for sequence in self._waiting:
            assert sequence.blocks == sequence.computed == 0

    # -- scheduling -----------------------------------------------------------------------------------

    def _retire(self) -> None:
        for sequence in self._finished:
            self._running.remove(sequence)
            self._free(sequence)
        self._finished.clear()

    def _continue_running(self, batch: Batch) -> None:
        at = 0
        while at < len(self._running) and batch.budget:
            sequence = self._running[at]
            missing = sequence.known - sequence.computed
            tokens = missing if missing <= batch.budget else batch.budget
            if not self._room_for(sequence, tokens, batch):
                break  # it was itself the last one, and is back in the queue
            batch.entries.append((sequence, tokens))
            batch.budget -= tokens
            at += 1

    def _room_for(self, sequence: Sequence, tokens: int, batch: Batch) -> bool:
        """Give it the blocks for `tokens` more, if need be at the cost of those admitted after it."""
        lacking = blocks_of(sequence.computed + tokens) - sequence.blocks
        while lacking > self.free_blocks:
            victim = self._running.pop()
            self._free(victim)
            victim.computed = 0
            victim.preemptions += 1
            batch.preempted += 1
            self._waiting.appendleft(victim)
            if victim is sequence:
                return False
        if lacking > 0:
            sequence.blocks += lacking
            self.free_blocks -= lacking
        return True

    def _admit_waiting(self, batch: Batch) -> None:
        while self._waiting and batch.budget and len(self._running) < self.profile.max_num_seqs:
            sequence = self._waiting[0]
            blocks = blocks_of(sequence.known)
            if blocks > self.free_blocks:
                break  # who comes later does not overtake
            self._waiting.popleft()
            self._running.append(sequence)
            sequence.blocks = blocks
            self.free_blocks -= blocks
            tokens = min(sequence.known, batch.budget)
            batch.entries.append((sequence, tokens))
            batch.budget -= tokens

    def _free(self, sequence: Sequence) -> None:
        self.free_blocks += sequence.blocks
        sequence.blocks = 0

    def _computed(self, batch: Batch) -> StepResult:
        produced: list[tuple[Sequence, int]] = []
        context_tokens = prefill_tokens = 0
        for sequence, tokens in batch.entries:
            if tokens > 1 or not sequence.produced:
                prefill_tokens += tokens
            sequence.computed += tokens
            context_tokens += sequence.computed
            if sequence.computed == sequence.known:
                self._advance(sequence, produced)
        return StepResult(
            self.profile.step_s(len(batch.entries), context_tokens, prefill_tokens),
            produced,
            self._finished.copy(),
            prefill_tokens,
            batch.preempted,
        )

    def _advance(self, sequence: Sequence, produced: list[tuple[Sequence, int]]) -> None:
        """All that is known is in the cache: the next token is there, or there is none to come."""
        if sequence.output_tokens:
            sequence.produced += 1
            produced.append((sequence, 1))
        if sequence.produced == sequence.output_tokens:
            self._finished.append(sequence)


def blocks_of(tokens: int) -> int:
    """Blocks that hold so many tokens."""
    return -(-tokens // BLOCK_TOKENS)
