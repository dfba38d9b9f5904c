"""A rate that changes is integrated and inverted exactly."""

from __future__ import annotations

from itertools import pairwise
from math import inf, nan

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from tidegate.core.errors import ConfigurationError
from tidegate.workload.laws.rates import Diurnal, Piecewise, Rate, Steady


@st.composite
def piecewise(draw: st.DrawFn) -> Piecewise:
    """Rates of all kinds: with steps and ramps, with stretches of 0, once or again and again."""
    steps_s = draw(st.lists(st.floats(0.1, 100), min_size=1, max_size=6))
    rates = draw(
        st.lists(
            st.one_of(st.just(0.0), st.floats(0.01, 100)), min_size=len(steps_s), max_size=len(steps_s)
        ).filter(any)
    )
    starts = [sum(steps_s[:index]) for index in range(len(steps_s))]
    period_s = draw(st.none() | st.just(sum(steps_s)))
    return Piecewise(tuple(zip(starts, rates, strict=True)), draw(st.booleans()), period_s)


RATES = st.one_of(
    st.builds(Steady, st.floats(0.01, 1_000)),
    piecewise(),
    st.builds(Diurnal, st.floats(0.01, 100), st.floats(0, 1), st.floats(0, 100_000), st.floats(10, 100_000)),
)


@example(Piecewise(((0, 0), (5, 1)), linear=True), [0.0, 5e-324])  # its square root is no number any more
@example(Diurnal(50, 1.0, 50_000, 100_000), [1e-9, 3_000.0])  # from where the rate is 0
@given(RATES, st.lists(st.floats(0, 10_000), min_size=2, max_size=20))
def test_an_instant_is_when_its_arrivals_are_expected(rate: Rate, expected: list[float]) -> None:
    """By the instant that the inverse names, as many are expected as it was asked for; and in order."""
    instant_of = rate.inverse()
    expected.sort()

    instants = [instant_of(each) for each in expected]

    for each, at_s in zip(expected, instants, strict=True):
        if at_s == inf:
            event("never so many")
            assert isinstance(rate, Piecewise)
            assert rate.expected(1e6) <= each * (1 + 1e-9)
        else:
            assert rate.expected(at_s) == pytest.approx(each, rel=1e-9, abs=1e-6)
    for earlier, later in pairwise(instants):
        assert later >= earlier - 1e-9 * max(1.0, abs(earlier) if earlier < inf else 1.0)


@pytest.mark.parametrize(
    "rate, timeline",
    [
        (Steady(2), [(0, 0), (10, 20)]),
        (Piecewise(((0, 1), (10, 3), (20, 0))), [(5, 5), (10, 10), (15, 25), (20, 40), (99, 40)]),
        (Piecewise(((0, 1), (10, 3)), period_s=20), [(10, 10), (20, 40), (25, 45), (40, 80), (415, 830 - 5)]),
        (Piecewise(((0, 0), (10, 2)), linear=True), [(5, 2.5), (10, 10), (15, 20)]),
        # Back to the first rate at the end of the period: a triangle of 20 a lap.
        (Piecewise(((0, 0), (10, 2)), linear=True, period_s=20), [(10, 10), (20, 20), (30, 30), (40, 40)]),
        (Diurnal(2, 0.5, 0, 100), [(0, 0), (25, 50 + 50 / 3.141592653589793), (50, 100), (100, 200)]),
    ],
)
def test_arrivals_expected(rate: Rate, timeline: list[tuple[float, float]]) -> None:
    """The integral, by hand."""
    for at_s, expected in timeline:
        assert rate.expected(at_s) == pytest.approx(expected), at_s


def test_what_never_comes() -> None:
    """A rate that falls to 0 for good has an end of its arrivals."""
    instant_of = Piecewise(((0, 1), (10, 0))).inverse()

    assert instant_of(9.5) == 9.5
    assert instant_of(10.5) == inf


def test_nothing_comes_while_the_rate_is_0() -> None:
    """What would fall into the stretch comes when it is over."""
    instant_of = Piecewise(((0, 1), (10, 0), (20, 1))).inverse()

    assert [instant_of(expected) for expected in (9.0, 10.5, 11.0)] == [9.0, 20.5, 21.0]


@pytest.mark.parametrize(
    "points, period_s, said",
    [
        ((), None, "begin at 0 s"),
        (((1.0, 1.0),), None, "begin at 0 s"),
        (((0.0, 1.0), (0.0, 2.0)), None, "ascending order of time; 0 s comes after 0 s"),
        (((0.0, 1.0), (nan, 2.0)), None, "ascending order of time"),
        (((0.0, -1.0),), None, "points: a rate is at least 0 requests per second, not -1"),
        (((0.0, inf),), None, "points: a rate is at least 0 requests per second, not inf"),
        (((0.0, 0.0),), None, "points: a rate that is 0 for ever"),
        (((0.0, 1.0), (10.0, 1.0)), 10.0, "period_s of a rate is above the last point's 10 s, not 10"),
    ],
)
def test_points_that_cannot_be(
    points: tuple[tuple[float, float], ...], period_s: float | None, said: str
) -> None:
    """Points begin at 0, ascend, and have a rate somewhere."""
    with pytest.raises(ConfigurationError, match=said):
        Piecewise(points, period_s=period_s)


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"mean_per_s": 0.0}, "mean_per_s: a rate that is 0"),
        ({"swing": 1.1}, "swing of a diurnal rate is 0 to 1"),
        ({"swing": nan}, "swing of a diurnal rate is 0 to 1"),
        ({"peak_s": inf}, "peak_s of a diurnal rate"),
        ({"period_s": 0.0}, "period_s of a diurnal rate is above 0"),
    ],
)
def test_days_that_cannot_be(changed: dict[str, float], said: str) -> None:
    """Each field is named with its range."""
    with pytest.raises(ConfigurationError, match=said):
        Diurnal(**{"mean_per_s": 1.0, **changed})
