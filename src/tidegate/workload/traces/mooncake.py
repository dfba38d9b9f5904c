"""Mooncake's traces of Kimi: JSON lines with the ids of the prompt's blocks of 512 tokens.

Source: github.com/kvcache-ai/Mooncake, FAST25-release/traces. An id stands for its block and all before it,
and the last block counts though it is not full. The conversation trace's times are rounded to steps of
about 3 s: see `scaling.spread`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from tidegate.workload.traces.lines import Count, Lines, check_blocks, in_order, json_objects
from tidegate.workload.traces.rows import TraceRow

BLOCK_TOKENS = 512
KEYS = ("timestamp", "input_length", "output_length", "hash_ids")


class _Line(msgspec.Struct):
    timestamp: Annotated[float, msgspec.Meta(ge=0)]
    """Milliseconds since the start of the trace."""
    input_length: Count
    output_length: Count
    hash_ids: tuple[Count, ...]


def read_mooncake(lines: Lines, name: str = "trace") -> Iterator[TraceRow]:
    """Rows of a trace, in order of arrival. Raises ConfigurationError as `json_objects` and `in_order` do."""
    started_ms: float | None = None

    def row_of(line: _Line) -> TraceRow:
        nonlocal started_ms
        started_ms = line.timestamp if started_ms is None else started_ms
        check_blocks(len(line.hash_ids), line.input_length, BLOCK_TOKENS)
        return TraceRow(
            (line.timestamp - started_ms) / 1000,
            line.input_length,
            line.output_length,
            prefix=line.hash_ids,
            prefix_block_tokens=BLOCK_TOKENS,
        )

    return in_order(json_objects(lines, name, _Line), name, row_of)
