"""A pool's clients are read as summaries of windows, or refused by line and field."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import ConfigurationError
from tidegate.workload.traces.servegen import ClientWindow, read_lengths, read_rates

RATES = "client,t_s,rate_rps,cv,pattern,param1,param2"
LENGTHS = "client,t_s,field,mean,p5,p25,p50,p75,p90,p95,p99,max,distinct_values"


def test_windows_of_clients() -> None:
    """Each line is ten minutes of one client; without a law there is no CV."""
    assert list(
        read_rates([RATES, "0,600,0.5,1.2,Gamma,0.7,2", "0,1800,0.01,,,,", "3,0,2,0.9,Weibull,1,1"])
    ) == [
        ClientWindow(0, 600.0, 0.5, 1.2, "Gamma"),
        ClientWindow(0, 1800.0, 0.01, 0.0, ""),
        ClientWindow(3, 0.0, 2.0, 0.9, "Weibull"),
    ]


@given(
    st.lists(st.integers(0, 9_999), min_size=8, max_size=8).map(sorted),
    st.floats(0, 20_000).map(lambda m: round(m, 3)),
)
def test_a_table_passes_through_what_was_published(values: list[int], mean: float) -> None:
    """All quantiles are the published ones; the mean is too, as far as the tail can make it so."""
    line = f"1,0,input_tokens,{mean},{','.join(map(str, values))},7"

    (found,) = read_lengths([LENGTHS, line])

    table = dict(found.quantiles.points)
    assert [table[share] for share in (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)] == values
    assert all(earlier <= later for (_, earlier), (_, later) in pairwise(found.quantiles.points))
    if values[-2] < table[0.998] < values[-1]:
        assert found.quantiles.mean == pytest.approx(mean)


def test_the_tail_makes_the_mean() -> None:
    """Ten tokens but for the last hundredth, up to 1,010: a straight line would have a mean of 15."""
    line = f"1,0,output_tokens,11.5,{'10,' * 7}1010,7"

    (found,) = read_lengths([LENGTHS, line])

    assert found.quantiles.mean == pytest.approx(11.5)


@pytest.mark.parametrize(
    "lines, said",
    [
        ([], "mine: is empty; expected a header with client, t_s, rate_rps"),
        ([RATES], "mine: has a header, but no rows"),
        (["client,t_s"], "line 1: no column rate_rps, cv, pattern among"),
        ([RATES, "x,0,1,1,Gamma,,"], "line 2: client is 'x', not a whole number from 0"),
        ([RATES, "0,10,1,1,Gamma,,"], "line 2: t_s is 10, not a multiple of 600"),
        ([RATES, "0,0,-1,1,Gamma,,"], "line 2: rate_rps is '-1', not a number from 0"),
        ([RATES, "0,0,1,nan,Gamma,,"], "line 2: cv is 'nan', not a number from 0"),
        ([RATES, "0,0,1,1,Pareto,,"], "line 2: pattern is 'Pareto', not Gamma, Weibull or empty"),
        ([RATES, "0,0,1,1,Gamma,,", "0,0,1,1,Gamma,,"], "line 3: client and t_s are not above"),
    ],
)
def test_rates_that_are_not_sound(lines: list[str], said: str) -> None:
    """What is wrong is named, with its line and field."""
    with pytest.raises(ConfigurationError) as error:
        list(read_rates(lines, "mine"))

    assert said in str(error.value)


@pytest.mark.parametrize(
    "line, said",
    [
        ("1,0,input_tokens,5,1,2,3,4,5,6,7,-8,9", "line 2: max is '-8', not a number from 0"),
        ("1,0,input_tokens,x,1,2,3,4,5,6,7,8,9", "line 2: mean is 'x', not a number from 0"),
        ("1,0,input_tokens,5,1,2,3,4,5,4,7,8,9", "line 2: quantiles: points rise in share and value"),
    ],
)
def test_lengths_that_are_not_sound(line: str, said: str) -> None:
    """What is wrong is named, with its line and field."""
    with pytest.raises(ConfigurationError) as error:
        list(read_lengths([LENGTHS, line], "mine"))

    assert said in str(error.value)
