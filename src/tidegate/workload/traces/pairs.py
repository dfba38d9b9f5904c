"""Prompt and output lengths without times: CSV with the columns `prompt_tokens` and `output_tokens`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidegate.workload.traces.lines import Lines, csv_cells, in_order, tokens
from tidegate.workload.traces.rows import TraceRow

PROMPT, OUTPUT = COLUMNS = ("prompt_tokens", "output_tokens")


def read_pairs(lines: Lines, name: str = "lengths") -> Iterator[TraceRow]:
    """Rows in the file's order, all at instant 0. Raises ConfigurationError as `csv_cells` does."""

    def row_of(cells: Sequence[str]) -> TraceRow:
        prompt, output = cells
        return TraceRow(0.0, tokens(PROMPT, prompt), tokens(OUTPUT, output))

    return in_order(csv_cells(lines, name, COLUMNS), name, row_of)
