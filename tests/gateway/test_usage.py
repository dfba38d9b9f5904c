"""What engines say they processed, in every form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.request import Usage
from tidegate.gateway.apis import APIS, CHAT, EMBEDDINGS, MESSAGES, RERANK, RESPONSES, Api
from tidegate.gateway.usage import read_usage, usage_of

CASES: list[tuple[Api, dict[str, Any], Usage | None]] = [
    (CHAT, {"prompt_tokens": 5, "completion_tokens": 7}, Usage(prompt_tokens=5, output_tokens=7)),
    (
        CHAT,
        {"prompt_tokens": 10, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 8}},
        Usage(prompt_tokens=10, output_tokens=7, cached_tokens=8),
    ),
    (
        CHAT,
        {"prompt_tokens": 10, "completion_tokens": 7, "prompt_tokens_details": None},
        Usage(prompt_tokens=10, output_tokens=7),
    ),
    (
        RESPONSES,
        {"input_tokens": 10, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 8}},
        Usage(prompt_tokens=10, output_tokens=7, cached_tokens=8),
    ),
    # Anthropic's input_tokens are those that met no cache.
    (
        MESSAGES,
        {
            "input_tokens": 10,
            "output_tokens": 7,
            "cache_read_input_tokens": 80,
            "cache_creation_input_tokens": 20,
        },
        Usage(prompt_tokens=110, output_tokens=7, cached_tokens=80),
    ),
    (MESSAGES, {"input_tokens": 10, "output_tokens": 7}, Usage(prompt_tokens=10, output_tokens=7)),
    (EMBEDDINGS, {"prompt_tokens": 12, "total_tokens": 12}, Usage(prompt_tokens=12, output_tokens=0)),
    (RERANK, {"total_tokens": 12}, Usage(prompt_tokens=12, output_tokens=0)),
    (CHAT, {"prompt_tokens": 15.0, "completion_tokens": 2}, Usage(prompt_tokens=15, output_tokens=2)),
    # What cannot be is not believed.
    (CHAT, {"prompt_tokens": -5, "completion_tokens": True, "total_tokens": "9"}, None),
    (CHAT, {"prompt_tokens": 10**30, "completion_tokens": 1}, Usage(prompt_tokens=0, output_tokens=1)),
    (
        CHAT,
        {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9}},
        Usage(prompt_tokens=5, output_tokens=1, cached_tokens=5),
    ),
    (CHAT, {}, None),
]


@pytest.mark.parametrize("api,counts,usage", CASES)
def test_usage_of_a_whole_answer(api: Api, counts: dict[str, Any], usage: Usage | None) -> None:
    """Prompt, output and cached tokens, whatever the API calls them."""
    body = json.dumps({"id": "x", "choices": [{"usage": {"prompt_tokens": 99}}], "usage": counts}).encode()

    assert usage_of(api, body) == usage


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"not json",
        b'{"usage": null}',
        b'{"usage": 5}',
        b'{"error": {}}',
        b'{"usage":' + b"[" * 10**5,
    ],
)
def test_an_answer_that_tells_nothing(body: bytes) -> None:
    """Anything else is no usage, and never an exception."""
    assert usage_of(CHAT, body) is None


def test_totals_that_come_in_parts_are_kept() -> None:
    """Anthropic tells the prompt at the start and the output at the end, as running totals."""
    usage = None
    for counts in (
        {"input_tokens": 5, "cache_read_input_tokens": 16, "output_tokens": 1},
        {"output_tokens": 10},
        {"output_tokens": 15},
    ):
        usage = read_usage(MESSAGES.form, counts, usage)

    assert usage == Usage(prompt_tokens=21, output_tokens=15, cached_tokens=16)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from([*CASES[4][1], *CASES[1][1], "total_tokens", "input_tokens_details", "cached_tokens"])


@given(api=st.sampled_from(list(APIS.values())), counts=st.dictionaries(NAMES, JSON))
def test_whatever_an_engine_says_is_usage_or_none(api: Api, counts: dict[str, Any]) -> None:
    """Counts are never negative, and the cached are some of the prompt's."""
    usage = read_usage(api.form, counts)

    assert usage is None or 0 <= usage.cached_tokens <= usage.prompt_tokens
    assert usage is None or usage.output_tokens >= 0
