"""What does a replica compute?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.core.messages import FIRST_PROGRESS_TOKENS

if TYPE_CHECKING:
    from tidegate.sim.prefixes import Extent


class Sequence:
    """One prompt and the output that it will get."""

    __slots__ = (
        "arrived_at",
        "base",
        "blocks",
        "cached_tokens",
        "computed",
        "decode_steps",
        "delivered_tokens",
        "due",
        "extents",
        "id",
        "kept",
        "mark",
        "max_tokens",
        "offset",
        "output_tokens",
        "preemptions",
        "prefix",
        "prefix_block_tokens",
        "priority",
        "produced",
        "prompt_tokens",
        "rank",
    )

    def __init__(
        self,
        id: int,
        prompt_tokens: int,
        output_tokens: int,
        *,
        max_tokens: int = 0,
        priority: int = 0,
        mark: int = FIRST_PROGRESS_TOKENS,
        prefix: tuple[int, ...] = (),
        prefix_block_tokens: int = 16,
    ) -> None:
        """`output_tokens` 0: the prompt is only computed, as for an embedding.

        `max_tokens` is what a contiguous reservation holds for the output, never less than `output_tokens`;
        of `priority` the smaller is the more urgent, as vLLM has it. PROGRESS is told at `mark` output tokens
        and at each doubling of it. `prefix` are ids of the leading blocks of `prefix_block_tokens`: an id
        stands for all tokens up to its block's end, and they may go on into the output, for what a later
        turn will send in its prompt.
        """
        self.id = id
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.max_tokens = max_tokens
        self.priority = priority
        self.prefix = prefix
        self.prefix_block_tokens = prefix_block_tokens

        self.arrived_at: float = 0.0
        self.produced: int = 0  # output tokens as of its last event; `Replica.tokens_at` knows an instant's
        self.cached_tokens: int = 0  # of the prompt, found in the prefix cache when it was first admitted
        self.preemptions: int = 0
        self.delivered_tokens: int = 0  # computed elsewhere; a preemption loses them

        # Kept by the replica, while the sequence is with it.
        self.rank: int = -1  # the how-manieth admission it was; below 0: not in the batch
        self.computed: int = 0  # tokens in the cache, those of the step under way too; decoding: as it joined
        self.blocks: int = 0  # of KV cache, likewise
        self.offset: int = 0  # decode steps made since it joined, less the replica's number of steps
        self.base: int = 0  # output tokens as it joined
        self.decode_steps: int = 0  # that the rest of its output takes
        self.due: int = -1  # the decode step after which something is to be told; below 0: it does not decode
        self.mark: int = mark  # output tokens at which PROGRESS is told next
        self.kept: int = 0  # leading blocks that the prefix cache knows, in `extents`
        self.extents: list[tuple[Extent, int]] = []

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
