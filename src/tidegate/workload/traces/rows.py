"""What is one request of a trace?"""

from __future__ import annotations

import msgspec


class TraceRow(msgspec.Struct, frozen=True):
    """One request of a trace: seconds since the first row, and its tokens, each at least 0."""

    arrived_s: float
    prompt_tokens: int
    output_tokens: int
    model: str = ""
    session: int | None = None
    """Rows with the same number are turns of one conversation, where the trace tells."""
    turn: int = 0
    prefix: tuple[int, ...] = ()
    """Chain ids of the prompt's blocks as recorded, a last one that is not full included."""
    prefix_block_tokens: int = 0
    """Tokens of a full block; 0 where there are none."""
    took_s: float | None = None
    """How long the recorded service took for the whole answer, where the trace tells."""

    @property
    def full_prefix(self) -> tuple[int, ...]:
        """Chain ids of the full blocks: only those can be found in an engine's cache."""
        return self.prefix[: self.prompt_tokens // self.prefix_block_tokens] if self.prefix else ()
