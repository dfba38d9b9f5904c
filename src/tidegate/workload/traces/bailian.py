"""Alibaba's Qwen-Bailian traces: JSON lines with conversations and the hashes of the prompt's blocks of 16
tokens.

Source: github.com/alibaba-edu/qwen-bailian-usagetraces-anon, README. A hash there is of its block alone, so
the reader chains them: two chain ids are equal if the blocks and all before them are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, islice

import msgspec

from tidegate.workload.traces.lines import Count, Lines, Seconds, check_blocks, in_order, json_objects
from tidegate.workload.traces.rows import TraceRow

BLOCK_TOKENS = 16
KEYS = ("chat_id", "parent_chat_id", "timestamp", "input_length", "output_length", "turn", "hash_ids")

_MODULUS = 2**61 - 1  # a Mersenne prime
_FACTOR = 0x1D2A_5C31_9E77_B6F3 % _MODULUS


class _Line(msgspec.Struct):
    chat_id: int
    parent_chat_id: int
    """-1 for the first turn of a conversation."""
    timestamp: Seconds
    """Seconds since the start of the trace."""
    input_length: Count
    output_length: Count
    turn: Count
    hash_ids: tuple[Count, ...]


def read_bailian(lines: Lines, name: str = "trace") -> Iterator[TraceRow]:
    """Rows of a trace, in order of arrival. Raises ConfigurationError as `json_objects` and `in_order` do."""
    started_s: float | None = None
    sessions: dict[int, int] = {}
    """Chat id -> number of its conversation."""

    def row_of(line: _Line) -> TraceRow:
        nonlocal started_s
        started_s = line.timestamp if started_s is None else started_s
        if line.chat_id in sessions:
            raise ValueError(f"chat_id {line.chat_id} was there before; remove one of the lines")
        # A parent from before the recording makes its child the first that is known of the conversation.
        session = sessions.setdefault(line.chat_id, sessions.get(line.parent_chat_id, len(sessions)))
        check_blocks(len(line.hash_ids), line.input_length, BLOCK_TOKENS)
        return TraceRow(
            line.timestamp - started_s,
            line.input_length,
            line.output_length,
            session=session,
            turn=max(0, line.turn - 1),
            prefix=chained(line.hash_ids),
            prefix_block_tokens=BLOCK_TOKENS,
        )

    return in_order(json_objects(lines, name, _Line), name, row_of)


def chained(blocks: Iterable[int]) -> tuple[int, ...]:
    """An id for each block that depends on all before it too: a polynomial hash of 61 bits.

    Among a million distinct chains some two collide with probability 2e-7 (n^2 / 2^62).
    """
    ids = accumulate(blocks, lambda before, block: (before * _FACTOR + block + 1) % _MODULUS, initial=1)
    return tuple(islice(ids, 1, None))
