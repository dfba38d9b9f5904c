"""Which sequences decode, and after which step is there something to tell of them?

Decode steps are numbered as they are begun. As long as none joins or leaves, a sequence's output follows from
the number of the step alone, so nothing is touched per token. Each member has one entry in a heap: the step
after which it has a mark of progress or its last token.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace

from tidegate.core.curve import UNBOUNDED
from tidegate.sim.growth import Even, Growth
from tidegate.sim.sequence import Sequence
from tidegate.sim.settings import ReplicaSettings
from tidegate.sim.speculation import Drawn


class Decoding:
    """The members, and the number of the next step."""

    __slots__ = ("_block_tokens", "_dues", "_paged", "draft_tokens", "growth", "step")

    def __init__(self, settings: ReplicaSettings) -> None:
        self._block_tokens = settings.block_tokens
        self._paged = settings.kv == "paged"
        self._dues: list[tuple[int, int, Sequence]] = []  # step, rank; some are of members that left
        self.draft_tokens = settings.draft_tokens
        self.growth: Growth = Even(settings.block_tokens)
        if self.draft_tokens:
            self.growth = Drawn(settings.block_tokens, self.draft_tokens)
        self.step = 0

    def add(self, sequence: Sequence) -> None:
        """All that is known of it is computed; from the next step on it makes each with the others."""
        sequence.offset = -self.step
        sequence.base = sequence.produced
        self.growth.add(sequence, self.step)
        self._expect(sequence)

    def remove(self, sequence: Sequence) -> None:
        """It makes no further step."""
        self.growth.remove(sequence, self.step)
        sequence.decode_steps -= sequence.offset + self.step
        sequence.due = -1

    def begin(self, steps: int) -> None:
        """All members make so many steps."""
        self.growth.make(steps)
        self.step += steps

    def suspend(self, sequence: Sequence) -> None:
        """It does not make the next step with the others, for the budget is spent before its turn."""
        self.growth.remove(sequence, self.step)

    def resume(self, sequence: Sequence) -> None:
        """That step is begun; from the next one on it makes each again."""
        sequence.offset -= 1
        self.growth.add(sequence, self.step)
        self._expect(sequence)

    def _expect(self, sequence: Sequence) -> None:
        """Note after which step there is something to tell of it."""
        sequence.due = sequence.steps_until(min(sequence.mark, sequence.output_tokens)) - sequence.offset
        heappush(self._dues, (sequence.due, sequence.rank, sequence))

    def next_due(self) -> int:
        """The next step after which there is something to tell; UNBOUNDED: of nobody."""
        dues = self._dues
        while dues:
            step, rank, sequence = dues[0]
            if sequence.due == step and sequence.rank == rank:
                return step
            heappop(dues)
        return UNBOUNDED

    def take_dues(self, step: int) -> list[Sequence]:
        """Of whom there is something to tell after `step`, in the order of admission; sets `produced`."""
        dues, taken = self._dues, []
        while dues and dues[0][0] == step:
            _, rank, sequence = dues[0]
            if sequence.due != step or sequence.rank != rank:
                heappop(dues)
                continue
            taken.append(sequence)
            # As `tokens_after` and `steps_until` have it; this is where a simulation spends most.
            rest, steps = sequence.output_tokens - sequence.base, sequence.decode_steps
            sequence.produced = produced = sequence.base + rest * (sequence.offset + step) // steps
            if produced == sequence.output_tokens:
                heappop(dues)
                continue
            while sequence.mark <= produced:
                sequence.mark *= 2
            tokens = sequence.mark if sequence.mark < sequence.output_tokens else sequence.output_tokens
            sequence.due = -(-(tokens - sequence.base) * steps // rest) - sequence.offset
            heapreplace(dues, (sequence.due, rank, sequence))
        return taken

    # -- what a member has when all steps before `self.step` are begun ----------------------------------

    def produced_of(self, sequence: Sequence, whole: int) -> int:
        """Output tokens when `whole` steps are over, by the replica's count."""
        return sequence.tokens_after(sequence.offset + whole)

    def computed_of(self, sequence: Sequence) -> int:
        """Tokens in the cache."""
        tokens = sequence.tokens_after(sequence.offset + self.step)
        return sequence.computed + tokens - sequence.base

    def verified_of(self, sequence: Sequence) -> int:
        """Tokens known when its last step was begun: of full blocks of these, others may find the content."""
        made = sequence.offset + self.step
        if not made:
            return sequence.computed
        return sequence.computed + sequence.tokens_after(made - 1) - sequence.base + 1

    def step_of(self, sequence: Sequence, tokens: int) -> int:
        """The step with which so many are verified."""
        return sequence.steps_until(tokens - 1 - sequence.computed + sequence.base) + 1 - sequence.offset

    def blocks_of(self, sequence: Sequence) -> int:
        """Blocks of the cache."""
        return self.growth.blocks_of(sequence, self.step) if self._paged else sequence.blocks

    # -- what the next steps need -----------------------------------------------------------------------

    def context_tokens(self) -> float:
        """Tokens that all members attend to in the next step."""
        return self.growth.tokens_before(self.step) + self.growth.count * (1 + self.draft_tokens)

    def lacking(self, sequence: Sequence) -> int:
        """New blocks that a member takes in the next step."""
        if not self._paged:
            return 0
        return self.growth.blocks_of(sequence, self.step + 1) - self.growth.blocks_of(sequence, self.step)

    def blocks_for(self, steps: int) -> int:
        """New blocks that the next `steps` take."""
        return self.growth.blocks_for(self.step, steps) if self._paged else 0

    def steps_within(self, blocks: int) -> int:
        """Steps for which so many new blocks last."""
        return self.growth.steps_within(self.step, blocks) if self._paged else UNBOUNDED
