"""The Azure LLM inference traces of 2023, 2024 and 2025: CSV with a time and two token counts.

Source: github.com/Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md,
AzureLLMInferenceDataset2024.md (times with a zone, and microseconds only where they are not 0) and
AzureLMMInferenceDataset2025.md (one more column, NumImages; ContextTokens includes the images').
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from tidegate.workload.traces.lines import Lines, csv_cells, in_order, tokens
from tidegate.workload.traces.rows import TraceRow

TIME, PROMPT, OUTPUT = COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

_SEVENTH_DIGIT = len("2023-11-16 18:15:46.680590")


def read_azure(lines: Lines, name: str = "trace") -> Iterator[TraceRow]:
    """Rows of a trace, in order of arrival.

    Two equal lines in a row are refused where times have 100 ns digits: no two requests are that equal.
    Raises ConfigurationError, which says `name`, the line and what is wrong with it, once the faulty line
    is reached.
    """
    started: datetime | None = None
    above: Sequence[str] = ()

    def row_of(cells: Sequence[str]) -> TraceRow:
        nonlocal started, above
        at, prompt, output = cells
        if cells == above and at[_SEVENTH_DIGIT:].isdecimal():
            raise ValueError("is the line above it once more; remove one of them")
        above = cells
        arrived = datetime.fromisoformat(at.strip())
        started = started or arrived
        return TraceRow((arrived - started).total_seconds(), tokens(PROMPT, prompt), tokens(OUTPUT, output))

    return in_order(csv_cells(lines, name, COLUMNS), name, row_of)
