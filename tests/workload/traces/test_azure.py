"""A trace is read as it is, or refused by line and reason."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tidegate.core.errors import ConfigurationError
from tidegate.workload.traces.azure import read_azure
from tidegate.workload.traces.rows import TraceRow

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def test_rows_of_a_trace() -> None:
    """Times count from the first row; line ends, blank lines, zones and more columns do not matter."""
    plain = [HEADER, "2023-11-16 18:15:46.6805900,374,44", "2023-11-16 18:15:50.9951700,396,109"]
    # As in 2024, where a fraction of 0 is left out.
    zoned = [HEADER, "2024-05-10 00:00:00+00:00,374,44", "2024-05-10 00:00:04.314580+00:00,396,109"]
    images = [
        "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens",
        "2024-10-15 00:00:00.100000,2,374,44",
        "2024-10-15 00:00:04.414580,0,396,109",
    ]
    moved = [
        "GeneratedTokens, TIMESTAMP ,Model,ContextTokens",
        "44,2023-11-16 23:59:58,a,374",
        "109,2023-11-17 00:00:02.31458,b,396",
    ]

    forms: list[tuple[str, Sequence[str | bytes]]] = [
        ("as published", plain),
        ("CRLF", [line + "\r\n" for line in plain]),
        ("bytes", [line.encode() + b"\n" for line in plain]),
        ("byte order mark", ["\ufeff" + plain[0], *plain[1:]]),
        ("blank lines", ["", plain[0], "  ", *plain[1:], ""]),
        ("of 2024, with a zone", zoned),
        ("of 2025, with images", images),
        ("columns moved, over midnight", moved),
    ]
    for name, lines in forms:
        found = list(read_azure(lines))
        assert [(row.prompt_tokens, row.output_tokens) for row in found] == [(374, 44), (396, 109)], name
        assert [row.arrived_s for row in found] == [0.0, pytest.approx(4.31458)], name


@pytest.mark.parametrize(
    "lines, said",
    [
        ([], "mine: is empty"),
        (["", "  "], "mine: is empty"),
        ([HEADER], "mine: has a header, but no rows"),
        (["TIMESTAMP,ContextTokens", "x"], "line 1: no column GeneratedTokens among"),
        (["2023-11-16 18:15:46.68,374,44"], "line 1: no column TIMESTAMP, ContextTokens, GeneratedTokens"),
        ([HEADER, "2023-11-16 18:15:46,1"], "line 2: 2 columns where the header has 3"),
        ([HEADER, "2023-11-16 18:15:46,1,2,3"], "line 2: 4 columns where the header has 3"),
        ([HEADER, "2023-11-16 18:15:46,-3,2"], "line 2: ContextTokens is '-3', not a whole number"),
        ([HEADER, "2023-11-16 18:15:46,3,nan"], "line 2: GeneratedTokens is 'nan', not a whole number"),
        ([HEADER, "2023-11-16 18:15:46,3.5,2"], "line 2: ContextTokens is '3.5', not a whole number"),
        ([HEADER, "2023-11-16 18:15:46,,2"], "line 2: ContextTokens is '', not a whole number"),
        ([HEADER, "2023-11-16 18:15:46,٣,2"], "line 2: ContextTokens is '٣', not a whole number"),
        ([HEADER, "yesterday,3,2"], "line 2: Invalid isoformat string: 'yesterday'"),
        (
            [HEADER, "2023-11-16 18:15:46,1,1", "", "2023-11-16 18:15:45.5,1,1"],
            "line 4: arrived 0.5 s before",
        ),
        ([HEADER, "2023-11-16 18:15:46,1,1", "2023-11-16 18:15:46+01:00,1,1"], "line 3: can't subtract"),
    ],
)
def test_a_trace_that_is_not_sound(lines: list[str], said: str) -> None:
    """What is wrong is named, with its line; nothing is skipped or repaired."""
    with pytest.raises(ConfigurationError) as error:
        list(read_azure(lines, "mine"))

    (problem,) = error.value.problems
    assert problem.startswith("mine")
    assert said in problem


def test_rows_before_a_faulty_line_are_given() -> None:
    """Reading is lazy: a fault shows when its line is reached."""
    reader = read_azure([HEADER, "2023-11-16 18:15:46,1,2", "2023-11-16 18:15:47,1,two"])

    assert next(reader) == TraceRow(0.0, 1, 2)
    with pytest.raises(ConfigurationError, match="line 3"):
        next(reader)


def test_the_same_line_twice() -> None:
    """With 100 ns digits it is a copy, and refused; with fewer digits two requests may well be equal."""
    exact, coarse = "2023-11-16 18:15:46.6805900,374,44", "2024-05-10 00:00:00.009930+00:00,374,44"

    with pytest.raises(
        ConfigurationError, match="line 3: is the line above it once more; remove one of them"
    ):
        list(read_azure([HEADER, exact, exact]))
    assert len(list(read_azure([HEADER, coarse, coarse]))) == 2
