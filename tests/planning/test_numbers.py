"""Which numbers are read on the command line, and what is said of those that are not?"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidegate.core.errors import ConfigurationError
from tidegate.planning.numbers import count_of, duration_of, number_of, percentile_of, rate_of, ratio_of


def tokens(option: str, text: str) -> float:
    return number_of(option, text, "tokens")


def pieces(option: str, text: str) -> int:
    return count_of(option, text, "replicas")


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (tokens, ".8", 0.8),
        (tokens, "0.8", 0.8),
        (tokens, "8.", 8.0),
        (tokens, "+.5", 0.5),
        (tokens, " 12 ", 12.0),
        (tokens, "1e3", 1000.0),
        (tokens, "1.5E3", 1500.0),
        (tokens, ".5e-2", 0.005),
        (tokens, "1_000", 1000.0),
        (tokens, "1,000,000.5", 1_000_000.5),
        (pieces, "1e3", 1000),
        (pieces, "2_000", 2000),
        (ratio_of, ".8", 0.8),
        (ratio_of, "80%", 0.8),
        (ratio_of, "80 %", 0.8),
        (ratio_of, ".5%", 0.005),
        (ratio_of, "0", 0.0),
        (percentile_of, "p99", 0.99),
        (duration_of, ".5s", 0.5),
        (rate_of, "50GB/s", 50e9),
        (rate_of, ".4Tb", 50e9),
        (rate_of, "5e10B/s", 50e9),
        (rate_of, "50_000 MB/s", 50e9),
    ],
)
def test_what_is_read(read: Callable[[str, str], float], text: str, value: float) -> None:
    """A number with its point anywhere, with powers of ten, and with thousands told apart."""
    assert read("--x", text) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("read", "text", "problem"),
    [
        (tokens, "2k", "--x: '2k' is not tokens; write 2000 or 2048"),
        (tokens, ".5M", "write 500000 or 524288"),
        (tokens, "0,8", "a comma stands between thousands; write 0.8"),
        (tokens, "1_0000", "thousands have three digits; write 10000"),
        (tokens, "1,0000,000", "thousands have three digits; write 10000000"),
        (tokens, "many", "--x: 'many' is not tokens; write a number, as in 0.5, 1000, 1_000 or 1e3"),
        (tokens, ".", "write a number, as in 0.5"),
        (tokens, "e3", "write a number, as in 0.5"),
        (tokens, "10/min", "write it without its unit, per second: 0.166667"),
        (tokens, "80%", "write it without '%': 80"),
        (pieces, ".5", "--x: '.5' cannot be; give replicas at least 1"),
        (pieces, "1.5", "--x: '1.5' is no whole number of replicas"),
        (ratio_of, "40", "--x: '40' is no share from 0 to 1; 40 % is 0.4"),
        (ratio_of, "0,8", "a comma stands between thousands; write 0.8"),
        (duration_of, "30", "--x: '30' is not a duration: write a number and a unit, as in 30s or 30ms"),
        (rate_of, "400", "--x: '400' is no rate of a link above 0; write 50GB/s, or 400Gb for bits"),
        (rate_of, "1e-300GB/s", "--x: '1e-300GB/s' is too slow to plan with; write a rate as 50GB/s"),
        (rate_of, "1e400GB/s", "--x: '1e400GB/s' is too fast to plan with"),
    ],
)
def test_what_is_not_read(read: Callable[[str, str], float], text: str, problem: str) -> None:
    """A sentence names the option and a form that is read; what may mean two numbers is told as both."""
    with pytest.raises(ConfigurationError) as caught:
        read("--x", text)

    assert problem in str(caught.value)
