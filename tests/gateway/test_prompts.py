"""Sizes of prompts, without a tokenizer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.gateway.apis import APIS, CHAT, COMPLETIONS, EMBEDDINGS, MESSAGES, RERANK, RESPONSES, Api
from tidegate.gateway.bodies import Body, open_body
from tidegate.gateway.prompts import MediaEstimate

MEDIA = MediaEstimate(image_tokens=1000, audio_tokens=500, video_tokens=3000)
BASE64 = "iVBORw0KGgo" * 5_000


def opened(api: Api, said: dict[str, Any], *, ascii_only: bool = False) -> Body:
    body = open_body(api, json.dumps({"model": "m"} | said, ensure_ascii=ascii_only).encode(), MEDIA)
    assert isinstance(body, Body), body
    return body


def user(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


@pytest.mark.parametrize(
    "api,said",
    [
        (CHAT, {"messages": user("T" * 1000)}),
        (CHAT, {"messages": user("T" * 400), "tools": [{"description": "T" * 600}]}),
        (CHAT, {"messages": user([{"type": "text", "text": "T" * 1000}])}),
        (COMPLETIONS, {"prompt": "T" * 1000}),
        (COMPLETIONS, {"prompt": "T" * 500, "suffix": "T" * 500}),
        (RESPONSES, {"input": "T" * 500, "instructions": "T" * 500}),
        (RESPONSES, {"input": user("T" * 1000)}),
        (MESSAGES, {"system": "T" * 500, "messages": user("T" * 500)}),
        (EMBEDDINGS, {"input": ["T" * 500, "T" * 500]}),
        (RERANK, {"query": "T" * 100, "documents": ["T" * 300, {"text": "T" * 500}]}),
        (CHAT, {"messages": user("潮" * 333 + "T")}),
    ],
)
def test_prompt_text_is_measured_in_bytes(api: Api, said: dict[str, Any]) -> None:
    """1,000 bytes of text and a little for the form, wherever the text stands, however it is escaped."""
    for ascii_only in (False, True):
        body = opened(api, said | {"user": "U" * 500, "stop": "S" * 500}, ascii_only=ascii_only)

        assert 1000 <= body.prompt_bytes <= 1110
        assert body.prompt_tokens_known == 0


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


TEXT = {"type": "text", "text": "T" * 1000}


@pytest.mark.parametrize(
    "api,said,tokens",
    [
        (CHAT, {"messages": user([TEXT, image("data:image/png;base64," + BASE64)])}, 1000),
        (CHAT, {"messages": user([image("https://x/a.png"), TEXT, image("https://x/b.png")])}, 2000),
        (CHAT, {"messages": user([TEXT, {"image_url": "data:" + BASE64}])}, 1000),
        (
            CHAT,
            {
                "messages": user(
                    [TEXT, {"type": "input_audio", "input_audio": {"data": BASE64, "format": "wav"}}]
                )
            },
            500,
        ),
        (CHAT, {"messages": user([TEXT, {"type": "video_url", "video_url": {"url": BASE64}}])}, 3000),
        (RESPONSES, {"input": user([TEXT, {"type": "input_image", "image_url": BASE64}])}, 1000),
        (
            MESSAGES,
            {
                "messages": user(
                    [
                        TEXT,
                        {"type": "image", "source": {"type": "base64", "data": BASE64}},
                        {
                            "type": "tool_result",
                            "content": [{"type": "image", "source": {"type": "base64", "data": BASE64}}],
                        },
                    ]
                )
            },
            2000,
        ),
        (EMBEDDINGS, {"messages": user([TEXT, image(BASE64)])}, 1000),
    ],
)
def test_media_cost_their_estimate_and_their_data_nothing(
    api: Api, said: dict[str, Any], tokens: int
) -> None:
    """55 KB of base64 are an image, not 14,000 tokens of prose."""
    body = opened(api, said)

    assert body.prompt_tokens_known == tokens
    assert 1000 <= body.prompt_bytes <= 1300


def test_text_does_not_become_free_by_looking_like_media() -> None:
    """Only the data of a media part is left out; text that names media, or stands beside it, is text."""
    text = "T" * 10_000
    for messages in (
        user('{"type":"image_url","image_url":{"url":"' + text + '"}}'),
        user([{"type": "text", "text": text, "image_url": {"url": "https://x"}}]),
        user([{"type": "image_url", "image_url": {"url": "https://x"}, "text": text}]),
        user([{"type": "note", "image_url": text}]),
    ):
        assert opened(CHAT, {"messages": messages}).prompt_bytes >= 10_000
    twice = b'{"model":"m","messages":[{"role":"user","content":"%b","content":[{"type":"image_url"}]}]}'
    body = open_body(CHAT, twice % text.encode(), MEDIA)
    assert isinstance(body, Body)
    assert body.prompt_bytes >= 10_000


def test_long_escaped_text_is_sampled() -> None:
    """Escaped text costs what it would cost unescaped, at any length; emoji half as much again."""
    for size in (10, 5_000, 200_000):
        text = "潮と潮と潮と潮と 🌊 " * (size // 10)
        plain, escaped = (
            opened(CHAT, {"messages": user(text)}, ascii_only=ascii_only).prompt_bytes
            for ascii_only in (False, True)
        )
        assert plain <= escaped <= plain * 1.08


@pytest.mark.parametrize(
    "api,value,text_bytes,tokens,prompts",
    [
        (COMPLETIONS, None, 0, 0, 1),
        (COMPLETIONS, "", 2, 0, 1),
        (COMPLETIONS, [], 0, 0, 1),
        (COMPLETIONS, [1, 2, 3], 0, 3, 1),
        (COMPLETIONS, [[1, 2, 3], [4, 5]], 0, 5, 2),
        (COMPLETIONS, ["aa", "bbb"], 5, 0, 2),
        (COMPLETIONS, ["潮", "b"], 4, 0, 2),
        (COMPLETIONS, [1, "bbb", 2], 3, 2, 1),  # llama.cpp: one prompt of both
        (COMPLETIONS, [[1, "bbb"], "cc"], 5, 1, 2),
        (EMBEDDINGS, "aa", 4, 0, 1),
        (EMBEDDINGS, [7] * 50_000, 0, 50_000, 1),
        (EMBEDDINGS, [[7] * 100] * 30, 0, 3_000, 30),
    ],
)
def test_batches_and_token_ids(api: Api, value: Any, text_bytes: int, tokens: int, prompts: int) -> None:
    """Token ids are counted exactly, and each element of a list is a prompt of its own."""
    said = {} if value is None else {api.batch: value}
    for spaced in (False, True):
        raw = json.dumps({"model": "m"} | said, ensure_ascii=False, indent=2 if spaced else None)
        body = open_body(api, raw.encode(), MEDIA)

        assert isinstance(body, Body)
        assert (body.prompt_bytes, body.prompt_tokens_known, body.prompts) == (text_bytes, tokens, prompts)


def test_a_reranker_reads_its_query_with_every_document() -> None:
    """The query counts once per document."""
    body = opened(RERANK, {"query": "Q" * 100, "documents": ["D" * 50] * 10})

    assert body.prompts == 10
    assert 10 * 150 <= body.prompt_bytes <= 10 * 150 + 30


def test_what_shares_a_cache_shares_its_affinity() -> None:
    """A stated key comes first; else the start of the prompt, so that a conversation stays where it is."""
    long = "T" * 3000
    first = opened(CHAT, {"messages": [*user(long)]})
    later = opened(CHAT, {"messages": [*user(long), *user("and then?")], "temperature": 1})
    other = opened(CHAT, {"messages": [*user("S" + long)]})
    assert first.affinity_source == later.affinity_source != other.affinity_source
    assert first.affinity_source is not None
    assert len(first.affinity_source) == 1024

    for key in ("prompt_cache_key", "user", "session_id"):
        keyed = opened(CHAT, {"messages": user(long), key: "alice"})
        assert keyed.affinity_source == b'"alice"'
        assert opened(CHAT, {"messages": user(long), key: ""}).affinity_source == first.affinity_source
    assert opened(CHAT, {}).affinity_source is None
    assert opened(RERANK, {"query": "a", "documents": []}).affinity_source == b'"a"'


@given(text=st.text(max_size=200), ascii_only=st.booleans(), api=st.sampled_from([CHAT, COMPLETIONS]))
def test_text_costs_at_least_half_of_its_bytes(text: str, ascii_only: bool, api: Api) -> None:
    """No way of writing text makes it look much shorter than it is."""
    said = {"prompt": text} if api is COMPLETIONS else {"messages": user(text)}
    raw = json.dumps({"model": "m"} | said, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    body = open_body(api, raw)
    if isinstance(body, Body):
        assert body.prompt_bytes >= len(text.encode()) / 2


def test_every_api_measures_something() -> None:
    """No route is free."""
    said = {name: "T" * 100 for api in APIS.values() for name in (*api.texts, api.batch) if name}
    for api in APIS.values():
        assert opened(api, said).prompt_bytes >= 100


@pytest.mark.parametrize("odd", [b"1e999", b"[1e999]", b'{"image_url":-1e999}'])
def test_what_cannot_be_decoded_is_text(odd: bytes) -> None:
    """A number that no float holds hides neither the text beside it nor the prompts."""
    for api in (COMPLETIONS, EMBEDDINGS, RERANK):
        assert api.batch is not None
        raw = b'{"model":"m","%b":["%b","%b",%b]}' % (api.batch.encode(), b"T" * 500, b"T" * 500, odd)
        body = open_body(api, raw)
        assert isinstance(body, Body)
        assert body.prompt_bytes >= 1000
        assert body.prompts >= 3
