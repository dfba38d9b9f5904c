"""A trace is cut, sped up, made heavier or lighter, and keeps what it should."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import inf, nan, sqrt
from random import Random
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.traces import load_trace
from tidegate.core.errors import ConfigurationError
from tidegate.workload.statistics.logs import statistics_of
from tidegate.workload.traces.rows import TraceRow
from tidegate.workload.traces.scaling import SHIFT_S, at_rate, part_of, sped_up, spread, windowed

ROWS = st.lists(
    st.builds(
        TraceRow,
        st.floats(0, 10_000),
        st.integers(0, 9_999),
        st.integers(0, 9_999),
        session=st.none() | st.integers(0, 5),
        prefix=st.lists(st.integers(0, 99), max_size=3).map(tuple),
        prefix_block_tokens=st.just(16),
    ),
    max_size=40,
).map(lambda rows: sorted(rows, key=lambda row: row.arrived_s))
SEEDS = st.integers(0, 2**32)


def told(row: TraceRow) -> tuple[object, ...]:
    """All of a row but when it came."""
    return (row.prompt_tokens, row.output_tokens, row.model, row.session, row.turn, row.prefix)


@given(ROWS, st.floats(0, 10_000), st.floats(0, 10_000))
def test_a_window_keeps_order_rows_and_gaps(rows: list[TraceRow], from_s: float, for_s: float) -> None:
    """A window is the rows that arrive in it, moved by its start and otherwise untouched."""
    inside = [row for row in rows if from_s <= row.arrived_s < from_s + for_s]

    found = list(windowed(rows, from_s, for_s))

    assert list(map(told, found)) == list(map(told, inside))
    assert [row.arrived_s for row in found] == [row.arrived_s - from_s for row in inside]


@given(ROWS, st.floats(0.01, 100))
def test_speed_divides_time_and_leaves_the_rest(rows: list[TraceRow], time_scale: float) -> None:
    """Twice as fast is half the time, for the same requests in the same order."""
    found = list(sped_up(rows, time_scale))

    assert [row.arrived_s for row in found] == [row.arrived_s / time_scale for row in rows]
    assert list(map(told, found)) == list(map(told, rows))


@given(ROWS, st.floats(0, 5_000), st.floats(1, 5_000), st.floats(0.1, 10), SEEDS)
def test_a_part_fills_the_time_of_its_replay(
    rows: list[TraceRow], from_s: float, for_s: float, time_scale: float, seed: int
) -> None:
    """`for_s` seconds of the replay are `time_scale` times as long in the trace; order stays."""
    inside = [row for row in rows if from_s <= row.arrived_s < from_s + for_s * time_scale]

    found = part_of(rows, from_s, for_s, time_scale)
    moved = part_of(rows, from_s, for_s, time_scale, Random(seed))

    assert list(map(told, found)) == list(map(told, moved)) == list(map(told, inside))
    assert [row.arrived_s for row in found] == [(row.arrived_s - from_s) / time_scale for row in inside]
    # A last step, as long as the one before it, may reach beyond the window.
    assert all(earlier.arrived_s <= later.arrived_s for earlier, later in pairwise(moved))


@given(ROWS, SEEDS)
def test_a_factor_of_1_changes_nothing(rows: list[TraceRow], seed: int) -> None:
    """Not even the order of equal instants."""
    assert at_rate(rows, 1.0, seed) == rows


@given(ROWS, st.integers(2, 4), SEEDS)
def test_copies_are_whole_and_their_own(rows: list[TraceRow], factor: int, seed: int) -> None:
    """Each row comes as often as the factor says, in order of time; copies share no session and no block."""
    found = at_rate(rows, float(factor), seed)

    assert [row.arrived_s for row in found] == sorted(row.arrived_s for row in found)
    lengths = Counter((row.prompt_tokens, row.output_tokens) for row in rows)
    assert Counter((row.prompt_tokens, row.output_tokens) for row in found) == Counter(
        {each: count * factor for each, count in lengths.items()}
    )
    for numbers in (lambda row: [row.session] if row.session is not None else [], lambda row: row.prefix):
        assert len({n for row in found for n in numbers(row)}) == factor * len(
            {n for row in rows for n in numbers(row)}
        )


@given(st.floats(0.05, 0.95), SEEDS)
def test_conversations_are_kept_or_left_whole(factor: float, seed: int) -> None:
    """A part of the clients is a part of the sessions, with all of their turns."""
    rows = [TraceRow(float(at_s), 1, 1, session=at_s % 20) for at_s in range(100)]

    found = Counter(row.session for row in at_rate(rows, factor, seed))

    assert set(found.values()) <= {5}


def test_a_part_is_as_large_as_it_should_be() -> None:
    """Of 50,000 rows 30 % are kept, and of 2.3 times as many 130 % more come, within five standard errors."""
    rows = [TraceRow(float(at_s), 1, 1) for at_s in range(50_000)]
    error = 5 * sqrt(50_000 * 0.3 * 0.7)

    assert len(at_rate(rows, 0.3, 1)) == pytest.approx(15_000, abs=error)
    assert len(at_rate(rows, 2.3, 1)) == pytest.approx(115_000, abs=error)


def test_more_clients_are_as_bursty_as_they_were_in_counts() -> None:
    """Of code, the burstiest trace: variance/mean stays with more clients; with fewer its excess shrinks.

    Each over ten seeds, in the mean, with a margin for one trace's chance.
    """
    rows = load_trace("azure-code")

    def excess(factor: float) -> float:
        scaled = [statistics_of(at_rate(rows, factor, seed)).arrivals for seed in range(10)]
        return mean(each.counts[1].dispersion - 1 for each in scaled if each is not None)

    as_it_was = excess(1.0)

    assert excess(3.0) == pytest.approx(as_it_was, rel=0.15)
    assert excess(0.25) == pytest.approx(as_it_was / 4, rel=0.15)


def test_copies_are_moved_by_minutes() -> None:
    """No copy stands where the first one does, nor further than its lap: hours of the day stay."""
    rows = [TraceRow(float(at_s), at_s, 1) for at_s in range(0, 86_400, 60)]
    lap_s = 86_400.0

    found = at_rate(rows, 4.0, 5)

    moved = [(row.arrived_s - row.prompt_tokens) % lap_s for row in found]
    assert max(row.arrived_s for row in found) < lap_s
    assert sum(shift_s == 0 for shift_s in moved) == len(rows)
    assert max(moved) < SHIFT_S
    assert len(set(map(round, moved))) == 4


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), SEEDS)
def test_what_shares_an_instant_is_spread_over_its_step(steps: list[int], seed: int) -> None:
    """Rows keep their order, and each stays between its instant and the next that the trace has."""
    rows = [TraceRow(3.0 * step, index, 1) for index, step in enumerate(sorted(steps))]

    found = list(spread(rows, Random(seed)))

    instants = sorted({row.arrived_s for row in rows})
    assert [row.prompt_tokens for row in found] == [row.prompt_tokens for row in rows]
    assert [row.arrived_s for row in found] == sorted(row.arrived_s for row in found)
    for before, after in zip(rows, found, strict=True):
        place = instants.index(before.arrived_s)
        step_s = 0.0
        if len(instants) > 1:
            last = min(place, len(instants) - 2)
            step_s = instants[last + 1] - instants[last]
        assert before.arrived_s <= after.arrived_s <= before.arrived_s + step_s


@pytest.mark.parametrize("factor", [0.0, -1.0, inf, nan])
def test_factors_that_cannot_be(factor: float) -> None:
    """Time can neither stand still nor run backwards, and a rate is above 0."""
    with pytest.raises(ConfigurationError, match="a time scale is above 0"):
        list(sped_up([], factor))
    with pytest.raises(ConfigurationError, match="a rate's factor is above 0"):
        at_rate([], factor, 0)
