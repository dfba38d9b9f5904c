"""How much of the prompts would a prefix cache without bounds have found?

The most that any real cache can reach on this traffic, whatever its size, its eviction or the routing
before it. A block is found if the block and all before it were in an earlier prompt.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import msgspec


class Reuse(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    block_tokens: int
    blocks: int
    """In all prompts."""
    distinct_blocks: int
    found_blocks: int
    found_blocks_ratio: float
    """Of all blocks, 0..1."""
    found_tokens_ratio: float
    """Of all prompt tokens, those beyond the last block included, 0..1."""
    requests: int
    requests_found_ratio: float
    """Requests that found at least one block, 0..1."""
    requests_found_more_ratio: float
    """Requests that found more than one: where all begin with the same block, one says nothing."""


class UnlimitedCache:
    """Every block that was ever in a prompt."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._seen: set[int] = set()
        self._requests = self._blocks = self._found = self._forgotten = 0
        self._tokens = self._found_tokens = self._some = self._more = 0

    def add(self, prompt_tokens: int, parts: Iterable[Sequence[int]]) -> int:
        """Blocks of this prompt that were there before it, given its chain ids in parts, in order."""
        found = self._take(parts)
        self._requests += 1
        self._found += found
        self._tokens += prompt_tokens
        # The last block of a trace need not be full.
        self._found_tokens += min(prompt_tokens, found * self._block_tokens)
        self._some += found > 0
        self._more += found > 1
        return found

    def forget(self) -> None:
        """What comes now has no block in common with what was; the counts go on."""
        self._forgotten += len(self._seen)
        self._seen.clear()

    def reuse(self) -> Reuse:
        """All prompts so far."""
        return Reuse(
            block_tokens=self._block_tokens,
            blocks=self._blocks,
            distinct_blocks=self._forgotten + len(self._seen),
            found_blocks=self._found,
            found_blocks_ratio=self._found / max(1, self._blocks),
            found_tokens_ratio=self._found_tokens / max(1, self._tokens),
            requests=self._requests,
            requests_found_ratio=self._some / max(1, self._requests),
            requests_found_more_ratio=self._more / max(1, self._requests),
        )

    def _take(self, parts: Iterable[Sequence[int]]) -> int:
        # An id stands for all before it too: what was seen comes first, and after what was not nothing was.
        seen, found = self._seen, 0
        for part in parts:
            self._blocks += len(part)
            there = bisect_left(part, True, key=lambda block: block not in seen)
            found += there
            seen.update(part[there:])
        return found
