"""Dice and numbers depend on names, on nothing else, and keep out of each other's way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import CallerError
from tidegate.workload.dice import (
    MOST_BLOCKS,
    MOST_SESSIONS,
    block_number,
    dice,
    index_of,
    recorded_number,
    session_number,
    source_number,
    source_of,
)

SOURCES = st.text(max_size=9).map(source_number)


def test_dice_are_the_same_on_every_machine() -> None:
    """What is drawn from named dice is pinned: it is part of what a seed promises."""
    assert [dice(1, "chat", "starts").getrandbits(32), source_number("chat")] == [4043134127, 1023789]


@pytest.mark.parametrize(
    "one, other", [(("a", "bc"), ("ab", "c")), ((1,), ("1",)), (("a",), ("a", "")), (("a",), ("b",))]
)
def test_names_are_kept_apart(one: tuple[str | int, ...], other: tuple[str | int, ...]) -> None:
    """However they are cut, and whatever they are."""
    assert dice(0, *one).getrandbits(64) != dice(0, *other).getrandbits(64)


@given(SOURCES, st.integers(0, MOST_SESSIONS - 1), st.integers(0, MOST_BLOCKS - 1))
def test_a_number_tells_whose_it_is(source: int, index: int, block: int) -> None:
    """Sessions are told apart by source and index, blocks by session and index, all in 63 bits."""
    session = session_number(source, index)

    assert (source_of(session), index_of(session)) == (source, index)
    assert block_number(session, block) - block_number(session, 0) == block
    assert block_number(session, MOST_BLOCKS - 1) < block_number(session + 1, 0) <= 2**63


@given(SOURCES, SOURCES, st.integers(0, 2**30), st.integers(0, 2**30))
def test_recorded_numbers_stay_apart(source: int, other: int, one: int, two: int) -> None:
    """Two numbers of a trace, or of two traces, are equal only if they were."""
    same = (source, one) == (other, two)

    assert (recorded_number(source, one) == recorded_number(other, two)) is same


@pytest.mark.parametrize("index", [-1, MOST_SESSIONS])
def test_a_session_beyond_all_numbers(index: int) -> None:
    """It would be taken for another source's."""
    with pytest.raises(CallerError, match="a source has sessions 0 to"):
        session_number(1, index)


@pytest.mark.parametrize("index", [-1, MOST_BLOCKS])
def test_a_block_beyond_all_numbers(index: int) -> None:
    """It would be taken for another session's."""
    with pytest.raises(CallerError, match="a session has blocks 0 to"):
        block_number(1, index)
