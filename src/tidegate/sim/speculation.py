"""How many steps does an output take when an engine guesses ahead?

Every decode step verifies `draft_tokens` guesses per sequence and yields those before the first wrong one,
plus one. How many steps a whole output takes is drawn once, when the sequence comes; its tokens are spread
evenly over them. Expected tokens per step: (1 - a^(k+1)) / (1 - a) for k guesses that are each right with
chance a (source: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023).

Between two whole tokens the cache counts as if it grew evenly, too, so that step times stay a straight line.
"""

from __future__ import annotations

from random import Random

from tidegate.core.curve import UNBOUNDED
from tidegate.sim.sequence import Sequence
from tidegate.sim.settings import Speculation


def drawn_steps(tokens: int, speculation: Speculation, rng: Random) -> int:
    """Decode steps that yield so many tokens."""
    steps = 0
    right, most, dice = speculation.acceptance_ratio, speculation.draft_tokens, rng.random
    while tokens > 0:
        steps += 1
        tokens -= 1
        guesses = most
        while guesses and dice() < right:
            guesses -= 1
            tokens -= 1
    return steps


class Drawn:
    """Growth of sequences whose steps yield different numbers of tokens: summed over them, once per run."""

    __slots__ = ("_block_tokens", "_draft_tokens", "_members")

    def __init__(self, block_tokens: int, draft_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._draft_tokens = draft_tokens
        self._members: dict[Sequence, None] = {}

    @property
    def count(self) -> int:
        """Sequences."""
        return len(self._members)

    @property
    def tokens_per_step(self) -> float:
        """By which the cache grows."""
        return sum((one.output_tokens - one.base) / one.decode_steps for one in self._members)

    def add(self, sequence: Sequence, step: int) -> None:
        """It joins before `step`."""
        self._members[sequence] = None

    def remove(self, sequence: Sequence, step: int) -> None:
        """It leaves before `step`."""
        del self._members[sequence]

    def make(self, steps: int) -> None:
        """So many steps are begun."""

    def tokens_before(self, step: int) -> float:
        """In the cache before `step`, the next one, in sum."""
        return sum(
            one.computed + (one.output_tokens - one.base) * (one.offset + step) / one.decode_steps
            for one in self._members
        )

    def blocks_for(self, step: int, steps: int) -> int:
        """New blocks that the `steps` from `step` on take."""
        return sum(self.blocks_of(one, step + steps) - self.blocks_of(one, step) for one in self._members)

    def steps_within(self, step: int, blocks: int) -> int:
        """Steps from `step` on for which so many new blocks last, by bisection up to the first end."""
        if not self._members:
            return UNBOUNDED
        least, most = 0, min(one.decode_steps - one.offset - step for one in self._members)
        while least < most:
            middle = (least + most + 1) // 2
            if self.blocks_for(step, middle) <= blocks:
                least = middle
            else:
                most = middle - 1
        return least

    def blocks_of(self, sequence: Sequence, step: int) -> int:
        """Blocks that a member holds when all steps before `step` are begun: guesses need room, too."""
        made, tokens = sequence.offset + step, sequence.computed
        if made:
            tokens += sequence.tokens_after(made - 1) - sequence.base + 1 + self._draft_tokens
        return -(-tokens // self._block_tokens)
