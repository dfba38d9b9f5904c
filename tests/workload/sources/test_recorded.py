"""Recorded sessions are played again by clients who wait."""

from __future__ import annotations

import pytest

from tidegate.workload.laws.arrivals import Constant, Replay
from tidegate.workload.requests import PlannedRequest, Sender
from tidegate.workload.sources.recorded import SessionReplay
from tidegate.workload.traces.agentic import RecordedSession, read_sessions
from tidegate.workload.traces.rows import TraceRow

LINES = [
    """{"id": "a", "models": ["big"], "block_size": 64, "tool_tokens": 100, "system_tokens": 30, "requests": [
    {"t": 0.0, "type": "s", "m": 0, "in": 200, "out": 10, "hash_ids": "1-3", "api_time": 2.0},
    {"t": 4.0, "type": "subagent", "models": ["small"], "requests": [
      {"t": 0.0, "type": "n", "m": 0, "in": 70, "out": 0, "hash_ids": "4"},
      {"t": 9.0, "type": "n", "m": 0, "in": 130, "out": 5, "hash_ids": "1-2", "think_time": 8.0}]},
    {"t": 5.0, "type": "n", "m": 0, "in": 300, "out": 20, "hash_ids": "1-3,6"},
    {"t": 9.0, "type": "n", "m": 0, "in": 320, "out": 20, "hash_ids": "1-3,6-7", "think_time": 1.5}]}""",
    """{"id": "b", "block_size": 64, "tool_tokens": 100, "system_tokens": 30, "requests": [
    {"t": 0.0, "type": "n", "in": 140, "out": 3, "hash_ids": "1-2", "think_time": 0.0}]}""",
]


def recorded() -> list[RecordedSession]:
    """Two sessions: the first with a sub-agent."""
    return list(read_sessions([line.replace("\n", " ") for line in LINES]))


def played(replay: SessionReplay, took_s: float) -> list[PlannedRequest]:
    """All requests, in order of time, if each answer takes so long."""
    found: list[PlannedRequest] = []
    for first in replay.starts():
        found.append(first)
        while (following := replay.after(found[-1], found[-1].at_s + took_s, True)) is not None:
            found.append(following)
    return sorted(found, key=lambda planned: planned.at_s)


@pytest.mark.parametrize(
    "took_s, instants",
    [(2.0, [0.0, 4.0, 5.0, 8.5, 10.0, 14.0]), (7.0, [0.0, 4.0, 10.0, 10.0, 18.5, 19.0])],
)
def test_turns_come_a_recorded_thought_after_answers_of_today(took_s: float, instants: list[float]) -> None:
    """Where no thought was recorded it is the gap less the recorded answer: 3 s before the second turn.

    Sub-agents start at their recorded time after their session, and wait for their own answers only.
    """
    replay = SessionReplay(recorded(), Constant(0.1), 0)
    starts = [planned.at_s for planned in SessionReplay(recorded(), Constant(0.1), 0).starts()]

    assert starts == [0.0, 4.0, 10.0]
    assert [planned.at_s for planned in played(replay, took_s)] == instants


def test_what_turns_ask_for() -> None:
    """Tokens, streaming and blocks are as recorded, a length of 0 becomes 1; who asks is for us to say."""
    everything = played(
        SessionReplay(recorded(), Constant(0.1), 0, sender=Sender(tenant="agents", model="m")), 1.0
    )

    assert {(planned.tenant, planned.model) for planned in everything} == {("agents", "m")}
    assert sorted((planned.prompt_tokens, planned.output_tokens) for planned in everything) == [
        (70, 1),
        (130, 5),
        (140, 3),
        (200, 10),
        (300, 20),
        (320, 20),
    ]
    assert [planned.streams for planned in everything] == [True] + [False] * 5
    for planned in everything:
        assert len(planned.prefix) == planned.prompt_tokens // planned.prefix_block_tokens


def test_blocks_are_a_sessions_own_unless_heads_are_shared() -> None:
    """Agents share their session's; equal heads of tools and system prompt are joined only if so set."""
    for share_heads, common in ((False, 0), (True, 130 // 64)):
        requests = played(SessionReplay(recorded(), Constant(0.1), 0, share_heads=share_heads), 1.0)
        by_prompt = {planned.prompt_tokens: planned.prefix for planned in requests}
        assert by_prompt[320][:4] == by_prompt[300]
        assert by_prompt[130] == by_prompt[320][:2]
        assert len(set(by_prompt[140]) & set(by_prompt[320])) == common, share_heads
        assert by_prompt[140][:common] == by_prompt[320][:common]
        assert not set(by_prompt[70]) & set(by_prompt[320])


def test_a_failed_turn_ends_a_session_unless_it_outlives_it() -> None:
    """The user has given up; or goes on after the recorded thought."""
    for outlives, turn in ((False, None), (True, 1)):
        replay = SessionReplay(recorded(), Constant(0.1), 0, outlives_refusals=outlives)
        following = replay.after(next(replay.starts()), 1.0, False)
        assert (following.turn if following else None) == turn, outlives


def test_as_many_sessions_as_start() -> None:
    """Starts that end leave the rest of the recording out; a request that is nobody's has no next turn."""
    replay = SessionReplay(recorded(), Replay([TraceRow(3.0, 0, 0)]), 0)

    assert [planned.at_s for planned in replay.starts()] == [3.0, 7.0]
    assert replay.after(PlannedRequest(at_s=0, prompt_tokens=1, output_tokens=1), 1.0, True) is None
