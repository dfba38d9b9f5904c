"""How much KV cache do the sequences that decode hold, and for how many steps does it last?

Of sequences that make every step together; steps are numbered as the replica begins them. One token a step is
`Even`: each sequence takes a block in one of every `block_tokens` steps, so it is enough to count how many do
so in which, and a run of steps has its answer in closed form. (`speculation.Drawn` is for uneven steps.)
"""

from __future__ import annotations

from typing import Protocol

from tidegate.core.curve import UNBOUNDED
from tidegate.sim.sequence import Sequence


class Growth(Protocol):
    """What a decoding batch asks of either."""

    @property
    def count(self) -> int:
        """Sequences."""

    @property
    def tokens_per_step(self) -> float:
        """By which the cache grows."""

    def add(self, sequence: Sequence, step: int) -> None:
        """It joins before `step`."""

    def remove(self, sequence: Sequence, step: int) -> None:
        """It leaves before `step`."""

    def make(self, steps: int) -> None:
        """So many steps are begun."""

    def tokens_before(self, step: int) -> float:
        """In the cache before `step`, the next one, in sum."""

    def blocks_for(self, step: int, steps: int) -> int:
        """New blocks that the `steps` from `step` on take."""

    def steps_within(self, step: int, blocks: int) -> int:
        """Steps from `step` on for which so many new blocks last; perhaps not all of them, but one if so."""

    def blocks_of(self, sequence: Sequence, step: int) -> int:
        """Blocks that a member holds when all steps before `step` are begun."""


class Even:
    """One token per sequence and step, blocks as they fill."""

    __slots__ = ("_block_tokens", "_takers", "_tokens", "count")

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._takers = [0] * block_tokens  # sequences that take a block in step s: [s % block_tokens]
        self.count = 0
        self._tokens = 0  # in the cache before the next step, in sum

    def add(self, sequence: Sequence, step: int) -> None:
        """It joins before `step`."""
        self.count += 1
        self._tokens += sequence.computed + sequence.offset + step
        self._takers[-(sequence.computed + sequence.offset) % self._block_tokens] += 1

    def remove(self, sequence: Sequence, step: int) -> None:
        """It leaves before `step`."""
        self.count -= 1
        self._tokens -= sequence.computed + sequence.offset + step
        self._takers[-(sequence.computed + sequence.offset) % self._block_tokens] -= 1

    def make(self, steps: int) -> None:
        """So many steps are begun."""
        self._tokens += self.count * steps

    def tokens_before(self, step: int) -> float:
        """In the cache before `step`, the next one, in sum."""
        return self._tokens

    @property
    def tokens_per_step(self) -> float:
        """By which the cache grows."""
        return self.count

    def blocks_for(self, step: int, steps: int) -> int:
        """New blocks that the `steps` from `step` on take."""
        takers, first = self._takers, step % self._block_tokens
        if steps == 1:
            return takers[first]
        cycles, rest = divmod(steps, self._block_tokens)
        last = first + rest
        partial = sum(takers[first:last])
        if last > self._block_tokens:
            partial += sum(takers[: last - self._block_tokens])
        return cycles * self.count + partial

    def steps_within(self, step: int, blocks: int) -> int:
        """Steps from `step` on for which so many new blocks last: of the whole cycles no more than those."""
        if not self.count:
            return UNBOUNDED
        if blocks >= self.count:
            return blocks // self.count * self._block_tokens
        steps, takers, at = 0, self._takers, step % self._block_tokens
        while takers[at] <= blocks:
            blocks -= takers[at]
            steps += 1
            at = at + 1 if at + 1 < self._block_tokens else 0
        return steps

    def blocks_of(self, sequence: Sequence, step: int) -> int:
        """Blocks that a member holds when all steps before `step` are begun."""
        return -(-(sequence.computed + sequence.offset + step) // self._block_tokens)
