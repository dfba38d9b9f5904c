"""Recorded sessions are read whole, or refused by line and request."""

from __future__ import annotations

import pytest

from tidegate.core.errors import ConfigurationError
from tidegate.workload.traces.agentic import read_sessions


@pytest.mark.parametrize(
    "line, said",
    [
        ("", "sessions: is empty"),
        ("[]", "line 1: Expected `object`, got `array`"),
        ('{"id": "a", "requests": []}', "line 1: Object missing required field `block_size`"),
        ('{"id": "a", "block_size": 0, "requests": []}', "Expected `int` >= 1 - at `$.block_size`"),
        ('{"id": "a", "block_size": 64, "requests": []}', "line 1: a session has at least one request"),
        (
            '{"id": "a", "block_size": 64, "requests": [{"t": 0, "type": "x"}]}',
            "line 1: Invalid enum value 'x'",
        ),
        (
            '{"id": "a", "block_size": 64, "requests": [{"t": 0, "type": "n", "in": 1}]}',
            "line 1: request 0: has no `in` or no `out`",
        ),
        (
            '{"id": "a", "block_size": 64, "requests": [{"t": 0, "type": "n", "in": -1, "out": 1}]}',
            "line 1: Expected `int` >= 0",
        ),
        (
            '{"id": "a", "block_size": 64, "requests": [{"t": 0, "type": "n", "in": 64, "out": 1}]}',
            "request 0: 0 block ids for a prompt of 64 tokens in blocks of 64",
        ),
        (
            '{"id": "a", "block_size": 64, "requests": [{"t": 0, "type": "n", "in": 64, "out": 1,'
            ' "hash_ids": "3-1"}]}',
            "request 0: '3-1' is a range that ends before it begins",
        ),
        (
            '{"id": "a", "block_size": 64, "requests": [{"t": 0, "type": "n", "in": 64, "out": 1,'
            ' "hash_ids": "x"}]}',
            "request 0: 'x' is no block id and no range of them",
        ),
        (
            '{"id": "a", "block_size": 64, "requests": [{"t": 0, "type": "n", "in": 64, "out": 1,'
            ' "hash_ids": "1-99999999999999999999"}]}',
            "request 0: 99999999999999999999 block ids for a prompt of 64 tokens in blocks of 64",
        ),
        (
            '{"id": "a", "block_size": 64, "requests": [{"t": 2, "type": "n", "in": 1, "out": 1},'
            ' {"t": 1, "type": "n", "in": 1, "out": 1}]}',
            "request 1: is 1 s before the one above it; sort them by `t`",
        ),
    ],
)
def test_sessions_that_are_not_sound(line: str, said: str) -> None:
    """What is wrong is named, with its line, its request and its field."""
    with pytest.raises(ConfigurationError) as error:
        list(read_sessions([line]))

    assert said in str(error.value)


def test_sessions_that_do_not_fit_together() -> None:
    """The same session twice, or blocks of another size, is refused by line."""
    session = '{"id": "%s", "block_size": %d, "requests": [{"t": 0, "type": "n", "in": 1, "out": 1}]}'

    for other, said in ((("a", 64), "line 2: session a is on line 1 too"), (("b", 16), "block_size is 16")):
        with pytest.raises(ConfigurationError) as error:
            list(read_sessions([session % ("a", 64), session % other]))
        assert said in str(error.value)
