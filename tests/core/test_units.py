"""Durations are read as people write them, and written so that they read back."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import ConfigurationError
from tidegate.core.units import format_duration, parse_duration


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("30s", 30.0),
        ("200ms", 0.2),
        ("1.5m", 90.0),
        ("8h", 28_800.0),
        ("2d", 172_800.0),
        ("50us", 50e-6),
        (".5s", 0.5),
        ("5.s", 5.0),
        (" 10 s ", 10.0),
        ("0s", 0.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    """A number and a unit."""
    assert parse_duration(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    "text, said",
    [
        ("30", "'30' is not a duration: write a number and a unit, as in 30s or 30ms"),
        ("", "'' is not a duration"),
        ("s", "'s' is not a duration"),
        ("-1s", "'-1s' is not a duration"),
        ("1e3s", "'1e3s' is not a duration"),
        ("1s30", "'1s30' is not a duration"),
        ("5 fortnights", "'5 fortnights' is not a duration: write a number and a unit, as in 30s or 200ms"),
        ("5S", "'5S' is not a duration"),
        ("nan s", "'nan s' is not a duration"),
        ("٣s", "'٣s' is not a duration"),
        ("9" * 400 + "d", "longer than any duration can be"),
    ],
)
def test_what_is_no_duration(text: str, said: str) -> None:
    """The error repeats what was written and shows what could have been."""
    with pytest.raises(ConfigurationError) as error:
        parse_duration(text)

    assert said in error.value.problems[0]


@pytest.mark.parametrize(
    "seconds, digits, text",
    [
        (0, 6, "0s"),
        (0.2, 6, "200ms"),
        (1.5, 6, "1.5s"),
        (90, 6, "90s"),
        (120, 6, "2m"),
        (28_800, 6, "8h"),
        (0.0123456, 3, "12.3ms"),
        (0.9999999, 3, "1s"),
        (0.00005, 6, "50us"),
        (12_345.6, 6, "12345.6s"),
        (nan, 6, "-"),
        (inf, 6, "infs"),
    ],
)
def test_durations_as_text(seconds: float, digits: int, text: str) -> None:
    """The unit in which the number is short."""
    assert format_duration(seconds, digits) == text


@given(st.floats(0, 1e9))
def test_what_is_written_reads_back(seconds: float) -> None:
    """To six significant digits, and to a millionth of a microsecond."""
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=1e-5, abs=1e-12)
