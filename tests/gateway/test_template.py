"""Events that are known by the bytes around their text."""

from __future__ import annotations

import pytest

from tests.gateway.engine_streams import DONE, USAGE, chat_chunk, chat_delta, event
from tidegate.gateway.dialects.template import Template

FIRST = event(chat_delta(content="first"))


def template() -> Template:
    made = Template()
    made.learn(FIRST, "content")
    return made


@pytest.mark.parametrize(
    "data,match",
    [
        (event(chat_delta(content="tide")), (1, 4)),
        (event(chat_delta(content="")), (1, 0)),
        (event(chat_delta(content="潮")), (1, 3)),
        (event(chat_delta(content='"\n')), (1, 4)),
        (event(chat_delta(content="tide")) * 3, (3, 12)),
        (event(chat_delta(content='data: {"content":"x"}')), (1, 25)),
        (b"", None),
        (DONE, None),
        (FIRST[:-1], None),
        (FIRST[1:], None),
        (FIRST + FIRST[:40], None),
        (FIRST + b": pi", None),
        (FIRST + DONE, None),
        (DONE + FIRST, None),
        (FIRST + DONE + FIRST, None),
        (FIRST + b": ping\n\n" + FIRST, None),
        (FIRST + b"\n\n", None),
        (FIRST.replace(b"\n", b"\r\n") + FIRST, None),
        (FIRST + FIRST.replace(b"\n", b"\r\n") + FIRST, None),
        (event(chat_delta(content="tide"), spaced=True), None),
        (event(chat_delta(content="潮") | {"usage": USAGE}), None),
        (event(chat_delta(content="x", finish="stop")), None),
        (event(chat_delta(1, content="x")), None),
        (event(chat_delta(reasoning="x")), None),
        (event(chat_delta(content="x", refusal="y")), (1, len('x","refusal":"y'))),
        (FIRST + event(chat_chunk([], usage=USAGE)) + FIRST, None),
        (event(chat_delta(content="x") | {"usage": USAGE}) + FIRST, None),
        (event(chat_delta(content="x", finish="stop")) + FIRST, None),
        (FIRST + event(chat_delta(content="x") | {"error": {"code": 500}}) + FIRST, None),
        (FIRST.replace(b"first", b"\\u6f6e"), None),
    ],
)
def test_only_events_like_a_known_one_match(data: bytes, match: tuple[int, int] | None) -> None:
    """The whole of the data must be known events; what their text holds does not matter."""
    assert template().match(data) == match


def test_choices_in_turn_are_all_known() -> None:
    """Interleaved choices have a template each, up to four; a fifth pushes out the oldest."""
    made = Template()
    events = [event(chat_delta(index, content="tide")) for index in range(5)]
    for one in events[:4]:
        made.learn(one, "content")
        made.learn(one, "content")
    assert made.match(b"".join(events[:4] * 2)) == (8, 32)

    made.learn(events[4], "content")
    assert made.match(events[4] + events[1]) == (2, 8)
    assert made.match(events[0]) is None


def test_a_prefix_within_another_counts_once() -> None:
    """A named event holds the whole of an unnamed one, but for where it starts."""
    made = template()
    named = b"event: x\n" + FIRST
    made.learn(named, "content")

    assert made.match(named + FIRST + named) == (3, 15)


def test_another_ending_replaces_what_was_known() -> None:
    """All known events end alike."""
    made = template()
    other = event(chat_delta(content="tide") | {"extra": 1})
    made.learn(other, "content")

    assert made.match(other) == (1, 4)
    assert made.match(FIRST) is None


@pytest.mark.parametrize(
    "odd",
    [
        event(chat_delta(content=None)),
        event(chat_delta(reasoning="x")),
        event(chat_delta(content="x") | {"content": "y"}),
        FIRST.replace(b"\n", b"\r\n"),
        b"event: x\r\n" + FIRST,
    ],
)
def test_what_is_not_clear_is_not_learned(odd: bytes) -> None:
    """No text of that name, two of them, or other line ends: such events go on being parsed."""
    made = Template()
    made.learn(odd, "content")

    assert made.match(odd) is None
