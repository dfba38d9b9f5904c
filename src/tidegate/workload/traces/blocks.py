"""Workloads of measured runs: CSV with arrivals in nanoseconds and the ids of the prompt's full blocks of
16 tokens.

The form of ShareGPT requests that were given to real vLLM engines (converted from
github.com/casys-kaist/LLMServingSim, workloads/). `block_ids` are ranges, `0-146 150`; an id stands for its
block and all before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from tidegate.workload.traces.lines import (
    Lines,
    block_ranges,
    check_blocks,
    csv_cells,
    ids_in,
    in_order,
    tokens,
)
from tidegate.workload.traces.rows import TraceRow

BLOCK_TOKENS = 16
TIME, PROMPT, OUTPUT, BLOCKS = COLUMNS = ("arrival_time_ns", "prompt_tokens", "output_tokens", "block_ids")


def read_blocks(lines: Lines, name: str = "trace") -> Iterator[TraceRow]:
    """Rows of a trace, in order of arrival. Raises ConfigurationError as `csv_cells` and `in_order` do."""
    started_ns: int | None = None

    def row_of(cells: Sequence[str]) -> TraceRow:
        nonlocal started_ns
        at, prompt, output, blocks = cells
        at_ns = tokens(TIME, at)
        started_ns = at_ns if started_ns is None else started_ns
        prompt_tokens = tokens(PROMPT, prompt)
        ranges = block_ranges(blocks.strip(), " ")
        check_blocks(ids_in(ranges), prompt_tokens, BLOCK_TOKENS)
        return TraceRow(
            (at_ns - started_ns) / 1e9,
            prompt_tokens,
            tokens(OUTPUT, output),
            prefix=tuple(chain.from_iterable(ranges)),
            prefix_block_tokens=BLOCK_TOKENS,
        )

    return in_order(csv_cells(lines, name, COLUMNS), name, row_of)
