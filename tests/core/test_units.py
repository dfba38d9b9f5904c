"""Units: durations are read with their unit or not at all, and what is shown reads back."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import ConfigurationError
from tidegate.core.units import (
    format_duration,
    format_latency,
    format_number,
    format_ratio,
    format_span,
    parse_duration,
    seconds_of,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0.0),
        ("200ms", 0.2),
        ("1.5m", 90.0),
        ("8h", 28_800.0),
        ("2d", 172_800.0),
        (".5s", 0.5),
        ("5.s", 5.0),
        ("10 us", 1e-5),
        (" 3s ", 3.0),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    """A number and one of six units, with or without a space."""
    assert parse_duration(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["30", "", "s", "-1s", "1e3s", "1 year", "1m30s", "1,5s", "٣s", "1.2.3s", "NaNs", "infs", "1S"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    """A bare number could be seconds or milliseconds; the refusal says what to write."""
    with pytest.raises(ConfigurationError) as refused:
        parse_duration(text)
    (problem,) = refused.value.problems
    assert "write a number and a unit" in problem


def test_a_bare_number_is_answered_with_its_own_example() -> None:
    """Who wrote 30 is shown 30s."""
    with pytest.raises(ConfigurationError, match="as in 30s or 30ms"):
        parse_duration("30")


def test_durations_of_options_name_them() -> None:
    """So that the mistake is found."""
    assert seconds_of("--for", "30s") == 30.0
    with pytest.raises(ConfigurationError, match=r"^--for: '30' is not a duration"):
        seconds_of("--for", "30")


def test_no_duration_is_infinite() -> None:
    """A number too large for a float is a mistake, and is not repeated at its full length."""
    with pytest.raises(ConfigurationError, match="longer than any duration") as refused:
        parse_duration("9" * 400 + "s")
    assert len(refused.value.problems[0]) < 100


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (90.0, "90s"),
        (120.0, "2m"),
        (7_200.0, "2h"),
        (172_800.0, "2d"),
        (0.2, "200ms"),
        (1.5e-5, "15us"),
        (1e-9, "0.001us"),
        (1_234_567.0, "1234570s"),
        (float("inf"), "infs"),
        (float("nan"), "-"),
    ],
)
def test_durations_are_shown(seconds: float, text: str) -> None:
    """The largest unit in which it is whole, or the one that keeps the number short."""
    assert format_duration(seconds) == text


@given(st.floats(1e-9, 1e9))
def test_what_is_shown_reads_back(seconds: float) -> None:
    """Any duration survives being shown, to the digits that were asked for."""
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=1e-5)
    assert parse_duration(format_duration(seconds, digits=12)) == pytest.approx(seconds, rel=1e-11)


@pytest.mark.parametrize(
    "seconds, text",
    [(0.25, "250ms"), (119.0, "119s"), (3504.0, "58.4m"), (10_600.0, "2.94h"), (864_000.0, "10d")],
)
def test_spans(seconds: float, text: str) -> None:
    """In the unit that is read with least effort."""
    assert format_span(seconds) == text


@pytest.mark.parametrize(
    "seconds, text",
    [(0.0213, "21.3ms"), (59.94, "59.9s"), (120.0, "120s"), (3504.0, "3,504s"), (nan, "-"), (inf, "infs")],
)
def test_latencies(seconds: float, text: str) -> None:
    """In seconds at most: those of a column are compared at a glance."""
    assert format_latency(seconds) == text


@pytest.mark.parametrize(
    "value, text",
    [(1234.5, "1,234"), (12.345, "12.3"), (0.012345, "0.0123"), (-1234.5, "-1,234"), (0.0, "0"), (nan, "-")],
)
def test_numbers(value: float, text: str) -> None:
    """Three digits, and a dash for what does not exist."""
    assert format_number(value) == text


@pytest.mark.parametrize(
    "ratio, text",
    [
        (0.0, "0%"),
        (0.5, "50%"),
        (0.98765, "98.8%"),
        (0.9994, "99.9%"),
        (0.99963, "99.96%"),
        (0.999964, "99.996%"),
        (0.999996, "100%"),
        (1.0, "100%"),
        (nan, "-"),
    ],
)
def test_ratios(ratio: float, text: str) -> None:
    """What is nearly all is not shown as all, until three decimals do not tell it from all."""
    assert format_ratio(ratio) == text
