"""Do many requests come to the load that they are?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import ConfigurationError
from tidegate.plan.arrivals import Arrival, Stream, hours_of, load_of_streams, stream_of

ARRIVALS = st.lists(
    st.builds(
        Arrival,
        at_s=st.floats(0, 7200),
        prompt_tokens=st.integers(1, 10_000),
        output_tokens=st.integers(1, 2000),
        tenant=st.sampled_from(["a", "b"]),
    ),
    min_size=1,
    max_size=200,
).map(lambda found: sorted(found, key=lambda each: each.at_s))


def test_the_busiest_minute_is_planned_for() -> None:
    """120 in one minute and 60 in each of two others: 2 a second, 1.5 times the mean."""
    arrivals = [Arrival(60.0 * minute + 0.5 * n, 10, 10) for minute, n in _each({0: 60, 1: 120, 2: 60})]
    load = load_of_streams([stream_of(arrivals)])

    assert load.requests_per_s == 2
    assert load.peak_ratio == pytest.approx(1.5)


def _each(counts: dict[int, int]) -> list[tuple[int, int]]:
    return [(minute, n) for minute, count in counts.items() for n in range(count)]


@given(arrivals=ARRIVALS)
def test_means_stay_exact(arrivals: list[Arrival]) -> None:
    """However requests are told apart, their mean lengths and shares are those of all."""
    load = load_of_streams([stream_of(arrivals)])

    assert load.prompt_tokens == pytest.approx(sum(each.prompt_tokens for each in arrivals) / len(arrivals))
    assert load.output_tokens == pytest.approx(sum(each.output_tokens for each in arrivals) / len(arrivals))
    assert sum(kind.share for kind in load.kinds) == pytest.approx(len(arrivals))
    own = sum(kind.share for kind in load.kinds if kind.tenant == "a")
    assert own == pytest.approx(sum(each.tenant == "a" for each in arrivals))


def test_streams_peak_together() -> None:
    """What counts is the minute in which the sum is highest, and each stream's share of all requests."""
    day, night = (
        Stream(per_minute=counts, sample=(Arrival(0.0, tokens, tokens),))
        for counts, tokens in (((60.0, 120.0), 100), ((90.0, 0.0), 400))
    )
    load = load_of_streams([day, night])

    assert load.requests_per_s == pytest.approx(2.5)
    assert load.peak_ratio == pytest.approx(150 / 135)
    assert load.prompt_tokens == pytest.approx((180 * 100 + 90 * 400) / 270)


def test_hours_of_several_days() -> None:
    """Each hour is as busy as in the busiest of the days."""
    first, second = [60.0] * 24 * 60, [30.0] * 24 * 60
    second[9 * 60 + 30] = 300.0
    sample = (Arrival(0.0, 1, 1),)
    hours = hours_of([Stream(per_minute=(*first, *second), sample=sample)])

    assert [each.hour for each in hours] == list(range(24))
    assert {each.hour: each.requests_per_s for each in hours if each.requests_per_s != 1} == {9: 5}


def test_times_that_are_rounded_tell_nothing_of_burstiness() -> None:
    """Where many share an instant, gaps are taken for Poisson's."""
    rounded = [Arrival(float(n // 10), 1, 1) for n in range(1000)]
    even = [Arrival(n / 10, 1, 1) for n in range(1000)]

    assert stream_of(rounded).gap_cv == 1
    assert stream_of(even).gap_cv == pytest.approx(0, abs=1e-9)


def test_nothing_arrives() -> None:
    """That is no load."""
    with pytest.raises(ConfigurationError, match="nothing arrives"):
        stream_of([])
