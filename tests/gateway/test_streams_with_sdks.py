"""The streams that the relay ends itself, read by the official SDKs: they finish, or raise, as they should.

No socket: the SDK's own decoder reads the bytes through its HTTP library's mock transport.
"""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from anthropic import Anthropic, APIStatusError
from openai import APIError, OpenAI

from tests.gateway.engine_streams import SAMPLES, WORDS, Sample, chat_delta, event
from tidegate.gateway.apis import CHAT, COMPLETIONS, MESSAGES, RESPONSES
from tidegate.gateway.streams import Relay

ASK: list[Any] = [{"role": "user", "content": "When is high tide?"}]
TEXT = "".join(WORDS)


def http_client(stream: bytes) -> httpx2.Client:
    """A client whose every request is answered by this stream."""
    headers = {"content-type": "text/event-stream"}
    return httpx2.Client(
        transport=httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, content=stream))
    )


def openai(stream: bytes) -> OpenAI:
    return OpenAI(api_key="x", base_url="http://gate/v1", max_retries=0, http_client=http_client(stream))


def read(sample: Sample, stream: bytes) -> tuple[str, set[str | None], list[Any]]:
    """What a user of the SDK sees: the text of all choices, why they ended, and the usages."""
    if sample.api is MESSAGES:
        return _read_message(stream)
    if sample.api is RESPONSES:
        return _read_response(stream)
    client = openai(stream)
    text, reasons, usages = "", set[str | None](), []
    if sample.api is CHAT:
        for chunk in client.chat.completions.create(model="m", messages=ASK, stream=True):
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
            reasons |= {choice.finish_reason for choice in chunk.choices}
            usages += [chunk.usage] if chunk.usage else []
    else:
        for piece in client.completions.create(model="m", prompt="x", stream=True):
            text += "".join(choice.text for choice in piece.choices)
            reasons |= {choice.finish_reason for choice in piece.choices}
            usages += [piece.usage] if piece.usage else []
    return text, reasons - {None}, usages


def _read_message(stream: bytes) -> tuple[str, set[str | None], list[Any]]:
    client = Anthropic(api_key="x", base_url="http://gate", max_retries=0, http_client=http_client(stream))
    with client.messages.stream(model="m", max_tokens=99, messages=ASK) as events:
        message = events.get_final_message()
    text = "".join(block.text for block in message.content if block.type == "text")
    return text, {message.stop_reason}, [message.usage]


def _read_response(stream: bytes) -> tuple[str, set[str | None], list[Any]]:
    text, last = "", None
    for said in openai(stream).responses.create(model="m", input="x", stream=True):
        text += said.delta if said.type == "response.output_text.delta" else ""
        last = said
    assert last is not None
    assert last.type in ("response.completed", "response.incomplete")
    details = last.response.incomplete_details
    return text, {details.reason if details else last.response.status}, [last.response.usage]


samples = pytest.mark.parametrize("sample", SAMPLES, ids=[sample.name for sample in SAMPLES])


@samples
def test_a_whole_stream_reads_as_the_engine_meant_it(sample: Sample) -> None:
    """The samples themselves are what SDKs understand, with and without the usage chunk."""
    for withhold_usage in (False, True):
        relay = Relay(sample.api, withhold_usage=withhold_usage, choices=sample.choices)
        text, reasons, usages = read(sample, relay.feed(sample.stream) + relay.end().tail)

        assert set(text) <= set(TEXT)
        assert len(reasons) == 1
        withheld = withhold_usage and sample.api.asks_usage and sample.name != "usage with a dummy choice"
        assert len(usages) == (0 if withheld else 1)


@samples
@pytest.mark.parametrize("events", [0, 1, 3, 7])
def test_a_truncated_stream_reads_as_cut_for_length(sample: Sample, events: int) -> None:
    """Wherever it is cut, the SDK ends without an error and knows that the answer is not whole."""
    relay = Relay(sample.api, withhold_usage=False, choices=sample.choices)
    reads = [part + b"\n\n" for part in sample.stream.split(b"\n\n")[:events]]
    sent = b"".join(relay.feed(part) for part in reads) + relay.truncate()

    text, reasons, usages = read(sample, sent)

    assert set(text) <= set(TEXT)
    assert reasons <= {"length", "max_tokens", "max_output_tokens"}
    assert len(reasons) == 1
    assert len(usages) == 1


@samples
@pytest.mark.parametrize("events", [0, 6])
def test_an_error_event_is_raised_by_the_sdk(sample: Sample, events: int) -> None:
    """A stream that broke never looks complete, and what the gateway says of it reaches the user."""
    relay = Relay(sample.api, withhold_usage=False, choices=sample.choices)
    reads = [part + b"\n\n" for part in sample.stream.split(b"\n\n")[:events]]
    sent = b"".join(relay.feed(part) for part in reads) + relay.error(
        "the engine went away", "upstream_error"
    )

    with pytest.raises((APIError, APIStatusError), match="the engine went away"):
        read(sample, sent)


def test_comments_do_not_disturb_sdks() -> None:
    """An engine's comments pass as comments (mnfst/llm-gateway#2053)."""
    relay = Relay(CHAT, withhold_usage=False)
    stream = (
        b": hi\n\n" + event(chat_delta(content="A")) + b": ping\r\n\r\n" + event(chat_delta(finish="stop"))
    )

    sent = relay.feed(stream) + relay.end().tail

    chunks = list(openai(sent).chat.completions.create(model="m", messages=ASK, stream=True))
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["A", None]


def test_completions_are_among_the_samples() -> None:
    """Each API that streams is read by its SDK here."""
    assert {sample.api.name for sample in SAMPLES} == {
        a.name for a in (CHAT, COMPLETIONS, MESSAGES, RESPONSES)
    }
