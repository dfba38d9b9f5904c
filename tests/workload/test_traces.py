"""A trace is read as it is, or refused by line and reason."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import ConfigurationError
from tidegate.workload.scaling import sped_up, windowed
from tidegate.workload.traces.azure import read_azure as read_trace
from tidegate.workload.traces.rows import TraceRow

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
ROWS = st.lists(
    st.builds(TraceRow, st.floats(0, 10_000), st.integers(0, 9_999), st.integers(0, 9_999)), max_size=40
).map(lambda rows: sorted(rows, key=lambda row: row.arrived_s))


def test_rows_of_a_trace() -> None:
    """Times count from the first row; line ends, blank lines, zones and more columns do not matter."""
    plain = [HEADER, "2023-11-16 18:15:46.6805900,374,44", "2023-11-16 18:15:50.9951700,396,109"]
    zoned = [HEADER, "2024-05-10 00:00:00.000000+00:00,374,44", "2024-05-10 00:00:04.314580+00:00,396,109"]
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
        ("with a zone", zoned),
        ("columns moved, over midnight", moved),
    ]
    for name, lines in forms:
        found = list(read_trace(lines))
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
        list(read_trace(lines, "mine"))

    (problem,) = error.value.problems
    assert problem.startswith("mine")
    assert said in problem


def test_rows_before_a_faulty_line_are_given() -> None:
    """Reading is lazy: a fault shows when its line is reached."""
    reader = read_trace([HEADER, "2023-11-16 18:15:46,1,2", "2023-11-16 18:15:47,1,two"])

    assert next(reader) == TraceRow(0.0, 1, 2)
    with pytest.raises(ConfigurationError, match="line 3"):
        next(reader)


@given(ROWS, st.floats(0, 10_000), st.floats(0, 10_000))
def test_a_window_keeps_order_pairs_and_gaps(rows: list[TraceRow], from_s: float, for_s: float) -> None:
    """A window is the rows that arrive in it, moved by its start and otherwise untouched."""
    inside = [row for row in rows if from_s <= row.arrived_s < from_s + for_s]

    found = list(windowed(rows, from_s, for_s))

    assert [(row.prompt_tokens, row.output_tokens) for row in found] == [
        (row.prompt_tokens, row.output_tokens) for row in inside
    ]
    assert [row.arrived_s for row in found] == [row.arrived_s - from_s for row in inside]


@given(ROWS, st.floats(0.01, 100))
def test_speed_divides_time_and_leaves_tokens(rows: list[TraceRow], time_scale: float) -> None:
    """Twice as fast is half the time, for the same requests in the same order."""
    found = list(sped_up(rows, time_scale))

    assert [row.arrived_s for row in found] == [row.arrived_s / time_scale for row in rows]
    assert [(row.prompt_tokens, row.output_tokens) for row in found] == [
        (row.prompt_tokens, row.output_tokens) for row in rows
    ]


@pytest.mark.parametrize("time_scale", [0.0, -1.0, inf, nan])
def test_a_speed_that_cannot_be(time_scale: float) -> None:
    """Time can neither stand still nor run backwards."""
    with pytest.raises(ConfigurationError, match="a time scale is above 0"):
        list(sped_up([], time_scale))
