"""What does a replica compute, and what does it tell of it?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.core.messages import FIRST_PROGRESS_TOKENS

if TYPE_CHECKING:
    from tidegate.sim.prefixes import Extent

FIRST_TOKEN: Final = 0
"""The first output token is there."""
PROGRESS: Final = 1
"""The output has reached FIRST_PROGRESS_TOKENS or a doubling of it, and goes on."""
FINISHED: Final = 2
"""The last output token is there; of an output of none, the prompt is computed."""


@dataclass(slots=True, eq=False)
class Sequence:
    """One prompt and the output that it will get."""

    id: int
    prompt_tokens: int
    output_tokens: int
    """0: the prompt is only computed, as for an embedding."""
    max_tokens: int = 0
    """What a contiguous reservation holds for the output; never less than `output_tokens`."""
    priority: int = 0
    """The smaller, the more urgent, as vLLM has it."""
    prefix: tuple[int, ...] = ()
    """Ids of the leading blocks of `prefix_block_tokens`; an id stands for all tokens up to its block's end.
    They may go on into the output, for what a later turn will send in its prompt."""
    prefix_block_tokens: int = 16
    delivered_tokens: int = 0
    """Keys and values that come with it, computed elsewhere; a preemption loses them."""

    arrived_at: float = 0.0
    produced: int = 0
    """Output tokens as of the last event of this sequence; `Replica.tokens_at` knows those of an instant."""
    cached_tokens: int = 0
    """Tokens of the prompt found in the prefix cache when it was first admitted."""
    preemptions: int = 0

    # Kept by the replica, while the sequence is with it.
    rank: int = -1  # the how-manieth admission it was; below 0: not in the batch
    computed: int = 0  # tokens in the cache, those of the step under way too; while it decodes: as it joined
    blocks: int = 0  # of KV cache, likewise
    offset: int = 0  # decode steps made since it joined, less the replica's number of steps
    base: int = 0  # output tokens as it joined
    decode_steps: int = 0  # that the rest of its output takes
    due: int = -1  # the decode step after which something is to be told; below 0: it does not decode
    mark: int = FIRST_PROGRESS_TOKENS  # output tokens at which PROGRESS is told next
    kept: int = 0  # leading blocks that the prefix cache knows, in `extents`
    extents: list[tuple[Extent, int]] = field(default_factory=list)

    @property
    def known(self) -> int:
        """Tokens that exist as of the last event, each to be computed before the next is produced."""
        return self.prompt_tokens + self.produced

    def tokens_after(self, made: int) -> int:
        """Output tokens when it has made so many decode steps: the rest is spread evenly over them."""
        return self.base + (self.output_tokens - self.base) * made // self.decode_steps

    def steps_until(self, tokens: int) -> int:
        """Decode steps after which there are at least so many output tokens."""
        return -(-(tokens - self.base) * self.decode_steps // (self.output_tokens - self.base))


class Happening(msgspec.Struct, frozen=True, gc=False):
    """Something about a sequence that whoever sent it wants to know."""

    at: float
    kind: int
    """FIRST_TOKEN, PROGRESS or FINISHED."""
    sequence: Sequence
    output_tokens: int
    """Produced so far."""
