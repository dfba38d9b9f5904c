"""Conversations grow, and wait for their answers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import ConfigurationError
from tidegate.workload.laws.arrivals import Constant, Poisson, Replay
from tidegate.workload.laws.numbers import Exponential, Fixed
from tidegate.workload.requests import PlannedRequest
from tidegate.workload.sources.sessions import Sessions, SessionSettings
from tidegate.workload.traces.rows import TraceRow

FIXED = SessionSettings(
    starts=Constant(0.1),
    turns=Fixed(3),
    new_tokens=Fixed(20),
    output_tokens=Fixed(12),
    think_s=Fixed(4.0),
    system_tokens=40,
)
DRAWN = SessionSettings(
    starts=Poisson(0.5),
    turns=Exponential(4),
    new_tokens=Exponential(100),
    output_tokens=Exponential(60),
    think_s=Exponential(5),
    system_tokens=100,
)


def life(sessions: Sessions, first: PlannedRequest, took_s: float = 1.0) -> list[PlannedRequest]:
    """All turns of a session whose answers take so long."""
    found = [first]
    while (following := sessions.after(found[-1], found[-1].at_s + took_s, True)) is not None:
        found.append(following)
    return found


def test_a_conversation_by_hand() -> None:
    """The prompt is the system's 40 tokens, all that was said, and 20 new ones; thoughts follow answers."""
    sessions = Sessions(FIXED, 0)
    turns = life(sessions, next(sessions.starts()))

    assert [(turn.at_s, turn.turn, turn.prompt_tokens, turn.output_tokens) for turn in turns] == [
        (0.0, 0, 60, 12),
        (5.0, 1, 92, 12),
        (10.0, 2, 124, 12),
    ]
    assert [len(turn.prefix) for turn in turns] == [3, 5, 7]


@given(st.integers(0, 2**32))
def test_each_prompt_begins_with_the_one_before(seed: int) -> None:
    """Chains of full blocks continue each other; between sessions only the system prompt is shared."""
    sessions = Sessions(DRAWN, seed)
    lives = [life(sessions, first) for first in islice(sessions.starts(), 4)]

    for turns in lives:
        for earlier, later in pairwise(turns):
            assert later.prompt_tokens > earlier.prompt_tokens + earlier.output_tokens
            assert later.prefix[: len(earlier.prefix)] == earlier.prefix
            assert len(later.prefix) == later.prompt_tokens // later.prefix_block_tokens
        assert len({turn.session for turn in turns}) == 1
    blocks = [set(turns[-1].prefix) for turns in lives]
    assert all(one & other == blocks[0] & blocks[1] for one in blocks for other in blocks if one != other)
    assert len(blocks[0] & blocks[1]) == 100 // 16


@given(st.integers(0, 2**32), st.permutations(range(5)))
def test_sessions_do_not_depend_on_each_other(seed: int, order: list[int]) -> None:
    """In whatever order their turns end, each says the same."""
    first, second = Sessions(DRAWN, seed), Sessions(DRAWN, seed)
    starts = list(islice(first.starts(), 5))
    assert starts == list(islice(second.starts(), 5))

    assert {index: life(first, starts[index]) for index in order} == {
        index: life(second, starts[index]) for index in range(5)
    }


def test_a_session_ends_with_a_refusal_unless_it_outlives_it() -> None:
    """Who is refused gives up; or goes on after a thought, if so set."""
    for outlives, following in ((False, None), (True, 1)):
        sessions = Sessions(_with(outlives_refusals=outlives), 0)
        after = sessions.after(next(sessions.starts()), 1.0, False)
        assert (after.turn if after else None) == following, outlives


def test_a_session_ends_before_its_prompt_is_too_long() -> None:
    """The turn that would exceed the limit is not asked; a first one that would makes no session."""
    sessions = Sessions(_with(most_prompt_tokens=100), 0)
    assert [turn.prompt_tokens for turn in life(sessions, next(sessions.starts()))] == [60, 92]

    assert (
        list(
            islice(
                Sessions(_with(most_prompt_tokens=59, starts=Replay([TraceRow(0.0, 1, 1)])), 0).starts(), 1
            )
        )
        == []
    )


def test_a_request_that_is_nobodys() -> None:
    """What has no session, or one that is over, has no next turn."""
    sessions = Sessions(FIXED, 0)
    turns = life(sessions, next(sessions.starts()))

    assert sessions.after(turns[-1], 99.0, True) is None
    assert sessions.after(PlannedRequest(at_s=0, prompt_tokens=1, output_tokens=1), 9.0, True) is None


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: _with(block_tokens=0), "block_tokens of sessions is at least 1, not 0"),
        (lambda: _with(system_tokens=-1), "system_tokens of sessions is at least 0, not -1"),
        (
            lambda: _with(most_prompt_tokens=40),
            r"most_prompt_tokens of sessions is above system_tokens \(40\)",
        ),
    ],
)
def test_sessions_that_cannot_be(make: Callable[[], SessionSettings], said: str) -> None:
    """Each field is named with its range."""
    with pytest.raises(ConfigurationError, match=said):
        make()


def _with(**changed: object) -> SessionSettings:
    fields = {name: getattr(FIXED, name) for name in FIXED.__struct_fields__}
    return SessionSettings(**{**fields, **changed})
