"""What does a replica compute, and what does it tell of it?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

FIRST_TOKEN: Final = 0
"""The first output token is there."""
PROGRESS: Final = 1
"""The output has reached FIRST_PROGRESS_TOKENS or a doubling of it, and goes on."""
FINISHED: Final = 2
"""The last output token is there."""


@dataclass(slots=True, eq=False)
class Sequence:
    """One prompt and the output that it will get. `output_tokens` 0: the prompt is only computed."""

    id: int
    prompt_tokens: int
    output_tokens: int
    max_tokens: int = 0
    """What the caller reserved for the output; at least `output_tokens` is taken."""
    priority: int = 0
    """The smaller, the more urgent, as vLLM has it."""
    prefix: tuple[int, ...] = ()
    """Ids of the leading blocks of `prefix_block_tokens`; each id stands for all tokens up to its end.
    They may go on into the output, for what a later turn will send as its prompt."""
    prefix_block_tokens: int = 16

    arrived_at: float = 0.0
    """When it was submitted."""
    produced: int = 0
    """Output tokens as of the last event of this sequence; `Replica.tokens_at` says what there is now."""
    cached_tokens: int = 0
    """Tokens of the prompt found in the prefix cache when it was first admitted."""
    preemptions: int = 0

    # Kept by the replica while the sequence is with it.
    rank: int = -1  # the how-manieth admission; below 0: not in the batch
    computed: int = (
        0  # tokens in the cache, those of the step under way included; a decoding one: as it joined
    )
    blocks: int = 0  # of KV cache, likewise
    offset: int = 0  # decode steps it has made, less the replica's
    steps: int = 0  # decode steps that its whole output takes after the first token


class Happening(msgspec.Struct, frozen=True, gc=False):
    """Something about a sequence that whoever sent it wants to know."""

    at: float
    kind: int
    """FIRST_TOKEN, PROGRESS or FINISHED."""
    sequence: Sequence
    output_tokens: int
    """Produced so far."""
