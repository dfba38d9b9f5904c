"""The relay: what goes out when, what is counted, and how streams end."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.engine_streams import (
    DONE,
    SAMPLES,
    TOTALS,
    USAGE,
    WORDS,
    Sample,
    anthropic_messages,
    chat_chunk,
    chat_delta,
    event,
    openai_responses,
    text_chunk,
    vllm_chat,
)
from tidegate.core.errors import CallerError, UpstreamError
from tidegate.core.request import Usage
from tidegate.gateway.apis import CHAT, COMPLETIONS, EMBEDDINGS, MESSAGES, RESPONSES, Api
from tidegate.gateway.streams import HELD_BYTES, Relay

LINE_ENDS = [b"\n", b"\r\n", b"\r"]


def relay_of(sample: Sample, *, withhold_usage: bool = False) -> Relay:
    return Relay(sample.api, withhold_usage=withhold_usage, choices=sample.choices)


def sent(relay: Relay, reads: Iterable[bytes]) -> bytes:
    """All that a client gets of a stream that arrives in these reads and then ends."""
    return b"".join([relay.feed(read) for read in reads]) + relay.end().tail


def cut(stream: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(places), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


def each_event(stream: bytes) -> list[bytes]:
    return [part + b"\n\n" for part in stream.split(b"\n\n")[:-1]]


def payloads(stream: bytes) -> list[dict[str, Any]]:
    lines = [line.removeprefix(b"data: ") for line in stream.splitlines() if line.startswith(b"data: {")]
    return [json.loads(line) for line in lines]


samples = pytest.mark.parametrize("sample", SAMPLES, ids=[sample.name for sample in SAMPLES])


@samples
@pytest.mark.parametrize("line_end", LINE_ENDS, ids=["LF", "CRLF", "CR"])
def test_a_whole_stream_passes_untouched_and_is_counted(sample: Sample, line_end: bytes) -> None:
    """Bytes out are bytes in, and totals and tokens are read, whatever ends the lines."""
    relay = relay_of(sample)
    stream = sample.stream.replace(b"\n", line_end)

    assert sent(relay, [stream]) == stream

    assert relay.first_token
    assert relay.usage == TOTALS
    assert relay.output_tokens >= sample.content_events


@samples
def test_where_reads_end_changes_nothing(sample: Sample) -> None:
    """One read per event, the fast path, gives the same counts as one read for all and one per byte."""
    results = set()
    for reads in ([sample.stream], each_event(sample.stream), cut(sample.stream, range(len(sample.stream)))):
        relay = relay_of(sample)
        out = sent(relay, reads)
        results.add((out, relay.usage, relay.output_tokens, relay.first_token))

    assert len(results) == 1


@samples
@given(data=st.data(), line_end=st.sampled_from(LINE_ENDS), withhold_usage=st.booleans())
def test_any_split_gives_the_same_bytes_and_counts(
    sample: Sample, data: st.DataObject, line_end: bytes, withhold_usage: bool
) -> None:
    """The relay is a function of the bytes, not of the reads that they came in."""
    stream = sample.stream.replace(b"\n", line_end)
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))
    whole, split = (relay_of(sample, withhold_usage=withhold_usage) for _ in range(2))

    assert sent(split, cut(stream, places)) == sent(whole, [stream])
    assert split.usage == whole.usage
    assert split.output_tokens == whole.output_tokens


DELTAS = st.one_of(
    st.builds(chat_delta, content=st.text(max_size=40)),
    st.builds(chat_delta, reasoning_content=st.text(max_size=40)),
    st.builds(chat_delta, index=st.integers(0, 2), content=st.text(min_size=1, max_size=5)),
    st.builds(chat_delta, finish=st.sampled_from(["stop", "length"]), content=st.text(max_size=5)),
    st.builds(chat_delta, role=st.just("assistant")),
    st.builds(chat_chunk, st.just([]), usage=st.just(USAGE)),
    st.builds(chat_delta, tool_calls=st.just([{"index": 0, "function": {"arguments": '{"a"'}}])),
    st.just({"error": {"message": "out of memory", "code": 500}}),
    st.just({"not": "a chunk", "choices": 5, "usage": [], "created": "x"}),
)
EVENTS = st.one_of(
    DELTAS.map(event),
    DELTAS.map(lambda payload: event(payload, spaced=True)),
    st.sampled_from([b": ping\n\n", b"\n", b"data: {broken\n\n", b"data:{}\n\n", b"id: 4\n\n", DONE]),
)


@given(
    events=st.lists(EVENTS, max_size=25),
    line_end=st.sampled_from(LINE_ENDS),
    data=st.data(),
    withhold_usage=st.booleans(),
)
def test_any_stream_is_relayed_alike_however_it_is_split(
    events: list[bytes], line_end: bytes, data: st.DataObject, withhold_usage: bool
) -> None:
    """Not even a stream that no engine sends makes a read's end visible, or raises."""
    stream = b"".join(events).replace(b"\n", line_end)
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))
    whole, split = (Relay(CHAT, withhold_usage=withhold_usage, choices=3) for _ in range(2))

    assert sent(split, cut(stream, places)) == sent(whole, [stream])
    assert (split.usage, split.saw_error) == (whole.usage, whole.saw_error)
    assert (split.output_tokens, split.first_token) == (whole.output_tokens, whole.first_token)


def with_logprobs(chunk: dict[str, Any]) -> dict[str, Any]:
    chunk["choices"][0]["logprobs"] = {"content": [{"token": "A", "logprob": -0.5, "top_logprobs": []}]}
    return chunk


def names(stream: bytes) -> bytes:
    """The stream without its `event:` lines, as some servers send Anthropic's."""
    return b"".join(line for line in stream.splitlines(keepends=True) if not line.startswith(b"event:"))


WORD = st.sampled_from(
    ["tide", " ", "潮", "\n", '"', "\\", "\u0007", "data: x", "[DONE]", '"usage":{}', "🌊" * 20]
)
CHAT_NEIGHBOURS = st.one_of(
    st.builds(chat_delta, content=WORD).map(event),
    st.builds(chat_delta, st.integers(0, 5), content=WORD).map(event),
    st.builds(chat_delta, reasoning=WORD).map(event),
    st.builds(chat_delta, content=WORD).map(with_logprobs).map(event),
    st.builds(chat_delta, content=WORD).map(lambda chunk: event(chunk, spaced=True)),
    st.builds(chat_delta, content=WORD).map(lambda chunk: event(chunk).replace(b"\n", b"\r\n")),
    st.builds(chat_delta, content=WORD).map(lambda chunk: event(chunk).replace(b"\n", b"\r")),
    st.builds(chat_delta, content=WORD).map(lambda chunk: event(chunk | {"usage": USAGE})),
    st.builds(chat_delta, content=WORD).map(lambda chunk: event(chunk | {"created": 1764450001})),
    st.builds(chat_delta, content=WORD).map(lambda chunk: event(chunk | {"error": {"message": "broken"}})),
    st.builds(chat_delta, st.integers(0, 2), st.just("stop"), content=WORD).map(event),
    st.builds(chat_delta, role=st.just("assistant"), content=st.just("")).map(event),
    st.sampled_from([b": ping\n\n", DONE, b"\n", b"data: {", event(chat_chunk([], usage=USAGE))]),
)
ODDITIES = [b": ping\n\n", b"\r\n", b": pi", b"event: content_block_delta\ndata: {"]
MESSAGE_NEIGHBOURS = st.sampled_from(
    each_event(anthropic_messages()) + each_event(names(anthropic_messages())) + ODDITIES
)
RESPONSE_NEIGHBOURS = st.sampled_from(
    each_event(openai_responses())
    + each_event(names(openai_responses()))
    + each_event(openai_responses().replace(b"}\n\n", b"}\r\n\r\n"))
    + ODDITIES
)


@pytest.mark.parametrize(
    "api,neighbours",
    [(CHAT, CHAT_NEIGHBOURS), (MESSAGES, MESSAGE_NEIGHBOURS), (RESPONSES, RESPONSE_NEIGHBOURS)],
    ids=["chat", "messages", "responses"],
)
@given(data=st.data())
def test_reads_that_end_with_an_event_are_no_different(
    api: Api, neighbours: st.SearchStrategy[bytes], data: st.DataObject
) -> None:
    """Events that go by unparsed, in reads of several, are counted as if each byte came alone."""
    reads = data.draw(st.lists(st.lists(neighbours, min_size=1, max_size=4).map(b"".join), max_size=12))
    fast, slow = (Relay(api, withhold_usage=True, choices=3) for _ in range(2))

    out = b"".join(fast.feed(read) for read in reads)

    assert b"".join(slow.feed(bytes([byte])) for byte in b"".join(reads)) == out
    assert (fast.usage, fast.saw_error, fast.first_token) == (slow.usage, slow.saw_error, slow.first_token)
    assert fast.output_tokens == slow.output_tokens
    assert fast.truncate() == slow.truncate()
    assert fast.end() == slow.end()


@given(events=st.lists(EVENTS, max_size=20))
def test_what_goes_out_is_a_beginning_of_what_came_in(events: list[bytes]) -> None:
    """With nothing withheld, a client gets the engine's bytes, and only after them something of ours."""
    stream = b"".join(events)
    relay = Relay(CHAT, withhold_usage=False)

    out = b"".join(relay.feed(one) for one in events)

    assert stream.startswith(out)


@given(events=st.lists(EVENTS, max_size=20), line_end=st.sampled_from(LINE_ENDS))
def test_counts_never_go_down(events: list[bytes], line_end: bytes) -> None:
    """Progress that was reported stays true."""
    relay = Relay(CHAT, withhold_usage=False)
    seen = [0]
    for one in events:
        relay.feed(one.replace(b"\n", line_end))
        seen.append(relay.output_tokens)

    assert seen == sorted(seen)


@pytest.mark.parametrize(
    "first",
    [
        chat_delta(content="A"),
        chat_delta(reasoning_content="A"),
        chat_delta(reasoning="A"),
        chat_delta(refusal="No."),
        chat_delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]),
        chat_delta(function_call={"name": "f", "arguments": ""}),
        chat_delta(content=[{"type": "text", "text": "A"}]),
        text_chunk("A"),
    ],
    ids=["content", "reasoning_content", "reasoning", "refusal", "tool", "function", "parts", "text"],
)
def test_everything_is_held_until_the_first_token(first: dict[str, Any]) -> None:
    """A stream's head, its comments and role-only chunks go out with the first delta, not before."""
    relay = Relay(CHAT, withhold_usage=True)
    before = b": ping\n\n" + event(chat_delta(role="assistant", content="")) + event(chat_delta(content=None))

    assert relay.feed(before) == b""
    assert (relay.first_token, relay.released) == (False, False)

    assert relay.feed(event(first)) == before + event(first)
    assert (relay.first_token, relay.released, relay.output_tokens) == (True, True, 1)

    assert relay.feed(b": ping\n\n") == b": ping\n\n"


def test_an_error_beside_a_comment_too_long_to_hold_is_still_invisible() -> None:
    """That an attempt failed counts for more than that its hold was full."""
    relay = Relay(CHAT, withhold_usage=True)
    comments = (b": " + b"." * 1022 + b"\n\n") * (HELD_BYTES // 1024 + 1)

    assert relay.feed(comments + ENGINE_ERRORS[0][1]) == b""
    assert not relay.released


def test_what_is_held_is_bounded() -> None:
    """An engine that talks and says nothing is let through in the end, which commits the attempt."""
    relay = Relay(CHAT, withhold_usage=True)
    comment = b": " + b"." * 1022 + b"\n\n"

    out = [relay.feed(comment) for _ in range(HELD_BYTES // len(comment) + 1)]

    assert b"".join(out) == comment * len(out)
    assert out[-2] == b""
    assert relay.released
    assert not relay.first_token


def test_an_endless_event_is_the_engines_fault() -> None:
    """Memory is bounded: an event of up to 1 MiB passes, a longer one raises."""
    relay = Relay(CHAT, withhold_usage=False)
    long = event(chat_delta(content="x" * 1_000_000))
    assert relay.feed(long) == long

    assert relay.feed(b"x" * 2**20) == b""
    with pytest.raises(UpstreamError):
        relay.feed(b"x")


@pytest.mark.parametrize("api", [CHAT, COMPLETIONS], ids=["chat", "completions"])
def test_only_the_usage_chunk_is_withheld(api: Api) -> None:
    """The usage that we asked for is read and stripped; nothing else is (headroomlabs-ai/headroom#2026)."""
    usage = event(chat_chunk([], usage=USAGE))
    filtered = event(chat_chunk([], prompt_filter_results=[]))
    content = event(chat_delta(content="A") | {"usage": None})
    dummy = event(chat_delta(content="B") | {"usage": USAGE})
    stream = filtered + content + dummy + usage + DONE
    relay = Relay(api, withhold_usage=True)

    assert sent(relay, [stream]) == filtered + content + dummy + DONE
    assert relay.usage == TOTALS


def test_totals_are_never_added_up() -> None:
    """Usage in several chunks is a running total (tensorzero/tensorzero#5481)."""
    relay = Relay(CHAT, withhold_usage=False)
    for total in (10, 50, 100):
        usage = {"prompt_tokens": 7, "completion_tokens": total}
        relay.feed(event(chat_delta(content="A") | {"usage": usage}))

    assert relay.usage == Usage(prompt_tokens=7, output_tokens=100)


def test_several_tokens_in_a_chunk_are_seen_in_its_bytes() -> None:
    """Chunks are not tokens: bytes of unparsed events, less what an event is without content, tell more."""
    relay = Relay(CHAT, withhold_usage=False, bytes_per_token=4.0)
    for _ in range(100):
        relay.feed(event(chat_delta(content="sixteen bytes, q")))

    assert relay.output_tokens == 400


@samples
def test_mixed_line_ends_in_a_read_are_all_seen(sample: Sample) -> None:
    """An event that ends in CR LF does not hide between others of its kind."""
    content = each_event(sample.stream)[4]
    other = content[:-2] + b"\r\n\r\n"
    together, apart = relay_of(sample), relay_of(sample)
    for relay in (together, apart):
        relay.feed(content)

    together.feed(content + other + content)
    for one in (content, other, content):
        apart.feed(one)

    assert together.output_tokens == apart.output_tokens >= 4


def test_only_text_is_content_in_responses_too() -> None:
    """Log-probabilities in a delta do not look like tokens."""
    relay = Relay(RESPONSES, withhold_usage=False)
    kind = "response.output_text.delta"
    delta = {"type": kind, "delta": "tide", "sequence_number": 5}
    for size in range(1, 11):
        relay.feed(event(delta | {"logprobs": [{"token": "tide", "logprob": -0.5}] * size}, kind))

    assert relay.output_tokens == 10


@pytest.mark.parametrize(
    "words",
    [["tide"] * 10, ["潮"] * 10, ["\x07"] * 10, ["tide", "潮潮"] * 5],
    ids=["ASCII", "wide", "escaped", "mixed"],
)
@pytest.mark.parametrize("spaced", [False, True])
def test_only_text_is_content(words: list[str], spaced: bool) -> None:
    """Log-probabilities and six-byte escapes do not look like tokens."""
    for wrap in (lambda chunk: chunk, with_logprobs):
        relay = Relay(CHAT, withhold_usage=False, bytes_per_token=8.0)
        for word in words:
            relay.feed(event(wrap(chat_delta(content=word)), spaced=spaced))

        assert relay.output_tokens == 10


# -- endings --------------------------------------------------------------------------------------


@samples
def test_a_complete_stream_ends_with_one_terminator(sample: Sample) -> None:
    """A terminator that the engine sent is enough, and what follows it is dropped (BerriAI/litellm#1255)."""
    relay = relay_of(sample)

    assert sent(relay, [sample.stream, DONE, event(chat_delta(content="late"))]) == sample.stream
    assert relay.end() == (b"", True)


@samples
def test_a_forgotten_terminator_is_added(sample: Sample) -> None:
    """All choices finished and no terminator: ours is written. A response's only the engine can write."""
    *events, last = each_event(sample.stream)
    relay = relay_of(sample)
    out = b"".join(relay.feed(one) for one in events)

    ending = relay.end()

    if sample.api is RESPONSES:
        assert not ending.complete
    else:
        assert ending.complete
        assert payloads(out + ending.tail) == payloads(sample.stream)
        assert (out + ending.tail).count(last) == 1


@samples
def test_a_stream_that_breaks_off_is_incomplete(sample: Sample) -> None:
    """40 of 60 chunks and an orderly close is a failure, not an end (Portkey-AI/gateway#1797)."""
    events = each_event(sample.stream)[:-4]
    relay = relay_of(sample)
    out = b"".join(relay.feed(one) for one in events)

    assert out == b"".join(events)
    assert relay.end() == (b"", False)
    assert relay.output_tokens > 0


@pytest.mark.parametrize("lost", [1, 2])
@samples
def test_the_last_blank_line_may_be_missing(sample: Sample, lost: int) -> None:
    """An engine that closes right after its last event has still sent it."""
    relay = relay_of(sample)

    assert sent(relay, [sample.stream[:-lost]]) == sample.stream
    assert relay.end().complete


def test_choices_that_end_alike_have_all_ended() -> None:
    """A finish that comes with text is seen for each choice, even if its bytes were seen before."""
    relay = Relay(CHAT, withhold_usage=True, choices=2)
    for finish in (None, "length"):
        for index in (0, 1):
            relay.feed(event(chat_delta(index, finish, content="tide")))

    assert relay.end() == (DONE, True)


def test_a_message_stays_ended() -> None:
    """Usage that comes after the reason does not open a message again."""
    relay = Relay(MESSAGES, withhold_usage=False)
    later = event({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 12}}, "message_delta")
    relay.feed(b"".join(each_event(anthropic_messages())[:-1]) + later)

    assert relay.end().complete
    assert relay.usage is not None
    assert relay.usage.output_tokens == 12


def test_an_answer_without_a_token_is_held_to_its_end() -> None:
    """A model may say nothing; the client gets all of it once it is certain that no retry is needed."""
    stream = event(chat_delta(role="assistant")) + event(chat_delta(finish="stop")) + DONE
    relay = Relay(CHAT, withhold_usage=True)

    assert relay.feed(stream) == b""
    assert relay.end() == (stream, True)
    assert not relay.first_token


def test_half_an_event_is_never_sent() -> None:
    """What goes out ends at an event boundary, so that an ending can follow."""
    relay = Relay(CHAT, withhold_usage=False)
    whole, half = event(chat_delta(content="A")), event(chat_delta(content="B"))[:-20]

    assert relay.feed(whole + half) == whole
    assert relay.truncate().startswith(b"data: ")
    assert relay.feed(b"more") == b""


# -- truncation -----------------------------------------------------------------------------------


def test_truncated_chat_ends_every_open_choice() -> None:
    """Each choice that is open gets its finish, then usage if the client asked, then the terminator."""
    for withhold_usage in (False, True):
        relay = Relay(CHAT, withhold_usage=withhold_usage, choices=3, prompt_tokens=40)
        relay.feed(event(chat_delta(0, content="A")) + event(chat_delta(2, content="B")))
        relay.feed(event(chat_delta(2, finish="stop")))

        ending = relay.truncate()

        *chunks, _ = [*payloads(ending), None]
        finishes = {c["index"]: c["finish_reason"] for chunk in chunks for c in chunk["choices"]}
        assert finishes == {0: "length", 1: "length"}
        assert {chunk["id"] for chunk in chunks} == {"chatcmpl-7f"}
        usages = [chunk["usage"] for chunk in chunks if "usage" in chunk]
        assert [(u["prompt_tokens"], u["completion_tokens"]) for u in usages] == [(40, 2)][withhold_usage:]
        assert ending.endswith(DONE)
        assert ending.count(b"[DONE]") == 1
        assert relay.truncate() == b""
        assert relay.end() == (b"", True)


def test_truncation_adds_only_what_is_missing() -> None:
    """After all choices have ended and usage was told, only the terminator is left to say."""
    relay = Relay(CHAT, withhold_usage=False)
    relay.feed(vllm_chat(done=False))

    assert relay.truncate() == DONE


def test_choices_that_nobody_asked_for_are_none() -> None:
    """An engine that makes up choices neither completes the stream with them nor has them kept."""
    relay = Relay(CHAT, withhold_usage=True, choices=2)
    relay.feed(event(chat_delta(content="A")))
    for index in (-1, 2, 2**40, True, "0", None, *range(3, 1000)):
        end = {"index": index, "delta": {}, "finish_reason": "stop"}
        relay.feed(event(chat_chunk([end])))
    relay.feed(event(chat_delta(0, finish="stop")))
    ended = [choice["index"] for chunk in payloads(relay.truncate()) for choice in chunk["choices"]]

    assert ended == [1]


def test_truncated_messages_close_their_open_block() -> None:
    """The open block is stopped, the reason is max_tokens, and the message stops."""
    relay = Relay(MESSAGES, withhold_usage=False)
    relay.feed(b"".join(each_event(anthropic_messages())[:5]))

    kinds = [(said["type"], said.get("index")) for said in payloads(relay.truncate())]

    assert kinds == [("content_block_stop", 0), ("message_delta", None), ("message_stop", None)]


def test_truncated_messages_stop_only_what_is_open() -> None:
    """Blocks that the engine has stopped are not stopped again."""
    events = each_event(anthropic_messages())
    started = next(at for at, one in enumerate(events) if b'"content_block_start","index":1' in one)
    relay = Relay(MESSAGES, withhold_usage=False)
    relay.feed(b"".join(events[: started + 3]))

    kinds = [(said["type"], said.get("index")) for said in payloads(relay.truncate())]

    assert kinds == [("content_block_stop", 1), ("message_delta", None), ("message_stop", None)]


def test_truncated_response_is_incomplete_and_numbered_on() -> None:
    """The response that the engine announced comes back as incomplete, with the next number."""
    events = each_event(openai_responses())[:9]
    for reads in (events, [b"".join(events)]):
        relay = Relay(RESPONSES, withhold_usage=False)
        for read in reads:
            relay.feed(read)

        (said,) = payloads(relay.truncate())

        assert said["type"] == "response.incomplete"
        assert said["sequence_number"] == 9
        assert said["response"]["id"] == "resp_7f"
        assert said["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


# -- errors ---------------------------------------------------------------------------------------

ENGINE_ERRORS = [
    (CHAT, event({"error": {"message": "out of memory", "type": "x", "code": 500}})),
    (CHAT, event({"object": "error", "message": "out of memory", "code": 500})),
    (CHAT, event({"error": "out of memory"}, spaced=True)),
    (COMPLETIONS, event({"error": {"message": "out of memory"}}, "error")),
    (MESSAGES, event({"type": "error", "error": {"type": "api_error", "message": "out of memory"}}, "error")),
    (RESPONSES, event({"type": "error", "code": "x", "message": "out of memory"}, "error")),
    (
        RESPONSES,
        event({"type": "response.failed", "response": {"error": {"message": "out of memory"}}}, "x"),
    ),
]


@pytest.mark.parametrize("api,error", ENGINE_ERRORS)
def test_an_error_before_the_first_token_is_invisible(api: Api, error: bytes) -> None:
    """What was held is dropped with it, so that the request can be tried elsewhere."""
    relay = Relay(api, withhold_usage=True)

    assert relay.feed(b": ping\n\n") == b""
    assert relay.feed(error + DONE) == b""

    assert relay.saw_error == "out of memory"
    assert not relay.released
    assert relay.end() == (b"", False)


def test_an_error_after_tokens_is_the_last_that_goes_out() -> None:
    """The client hears of it in the engine's words, and a terminator after it is not passed on."""
    relay = Relay(CHAT, withhold_usage=True)
    content, (_, error) = event(chat_delta(content="A")), ENGINE_ERRORS[0]

    assert relay.feed(content * 3) == content * 3
    assert relay.feed(error + DONE) == error

    assert relay.saw_error == "out of memory"
    assert relay.end() == (b"", False)


def test_text_about_errors_is_no_error() -> None:
    """Names of members inside the text are escaped, and `error: null` is nothing."""
    relay = Relay(CHAT, withhold_usage=True)
    words = ['{"error": {"message": "x"}}', '"usage":null', "[DONE]", 'data: {"error":1}', "\n\n"]
    stream = b"".join(event(chat_delta(content=word) | {"error": None}) for word in words * 3)

    assert b"".join(relay.feed(one) for one in each_event(stream)) == stream
    assert relay.saw_error is None
    assert relay.output_tokens >= len(words) * 3


@pytest.mark.parametrize("api", [CHAT, COMPLETIONS, MESSAGES, RESPONSES], ids=lambda api: api.name)
def test_what_comes_from_outside_cannot_break_out_of_an_error(api: Api) -> None:
    """Line ends and event fields in a message stay inside its JSON."""
    relay = Relay(api, withhold_usage=False)

    said = relay.error("bad\n\ndata: [DONE]\r\n\r\nevent: x", "upstream_error\n\n")

    assert said.count(b"\n\n") == 1
    assert said.endswith(b"\n\n")
    assert b"\r" not in said
    assert b"\ndata: [DONE]" not in said
    assert relay.feed(event(chat_delta(content="late"))) == b""


def test_ids_from_an_engine_cannot_break_out_of_a_truncation() -> None:
    """A chunk's id is written as JSON, whatever it holds and however its data was laid out in lines."""
    relay = Relay(CHAT, withhold_usage=True)
    chunk = chat_delta(content="A") | {"id": "x\n\ndata: [DONE]\n\n", "model": {"a": [1]}}
    relay.feed(b"data: " + json.dumps(chunk, indent=1).replace("\n", "\ndata: ").encode() + b"\n\n")

    ending = relay.truncate()

    assert ending.count(b"\n\n") == 2
    assert payloads(ending)[0]["id"] == chunk["id"]


def test_a_route_that_never_streams_has_no_relay() -> None:
    """Asking for one is a bug of ours."""
    with pytest.raises(CallerError):
        Relay(EMBEDDINGS, withhold_usage=False)


def test_words_of_the_samples_cover_what_they_must() -> None:
    """The samples hold wide characters and the names that the fast path looks for."""
    text = "".join(WORDS)
    assert not text.isascii()
    assert '"usage"' in text


# -- usage of several choices -----------------------------------------------------------------------


def own(output_tokens: int, prompt_tokens: int = 10, cached_tokens: int = 0) -> dict[str, Any]:
    """A usage member."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": output_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def ends(index: int, usage: dict[str, Any] | None = None) -> dict[str, Any]:
    """The end of a choice, with usage in it as llama.cpp's text completions have it."""
    chunk = chat_delta(index, finish="stop")
    return chunk if usage is None else chunk | {"usage": usage}


def says(index: int, usage: dict[str, Any] | None = None) -> dict[str, Any]:
    chunk = chat_delta(index, content="A")
    return chunk if usage is None else chunk | {"usage": usage}


def alone(usage: dict[str, Any]) -> dict[str, Any]:
    return chat_chunk([], usage=usage)


USAGES: dict[str, tuple[int, list[dict[str, Any]], tuple[int, int]]] = {
    # name: prompts, chunks, (prompt tokens, output tokens)
    "llama.cpp, n=3": (
        1,
        [says(0), says(1), ends(1), alone(own(7)), says(2), ends(0), alone(own(5)), ends(2), alone(own(9))],
        (10, 21),
    ),
    "llama.cpp, three prompts": (
        3,
        [ends(0), alone(own(5, 10)), ends(1), alone(own(5, 20)), ends(2), alone(own(5, 33))],
        (63, 15),
    ),
    "llama.cpp, three prompts as text": (
        3,
        [ends(2, own(5, 10)), says(1), ends(1, own(6, 20)), ends(0, own(7, 33))],
        (63, 18),
    ),
    "llama.cpp, none is longer": (
        1,
        [ends(0), alone(own(5)), ends(1), alone(own(5)), ends(2), alone(own(5))],
        (10, 15),
    ),
    "told in the end and again behind it": (
        1,
        [ends(n, own(5)) if kind == "in" else alone(own(5)) for n in range(3) for kind in ("in", "behind")],
        (10, 15),
    ),
    "vLLM": (1, [says(0), says(1), ends(0), ends(2), ends(1), alone(own(21))], (10, 21)),
    "vLLM, one ends late": (1, [ends(0), ends(2), says(1), ends(1), alone(own(21))], (10, 21)),
    "vLLM, usage in each chunk, of its choice": (
        1,
        [says(0, own(1)), says(1, own(1)), *[ends(n, own(7)) for n in range(3)], alone(own(21))],
        (10, 21),
    ),
    "running totals in each chunk": (
        1,
        [says(0, own(10)), says(1, own(50)), ends(0, own(60)), ends(1, own(80)), ends(2, own(100))],
        (10, 100),
    ),
    "running totals by themselves": (
        1,
        [says(0), alone(own(10)), ends(0), alone(own(50)), ends(1), ends(2), alone(own(100))],
        (10, 100),
    ),
    "of each choice, then of all": (
        1,
        [ends(0), alone(own(5)), ends(1), alone(own(6)), ends(2), alone(own(7)), alone(own(19))],
        (10, 19),
    ),
}


@pytest.mark.parametrize(("prompts", "chunks", "counted"), USAGES.values(), ids=USAGES.keys())
@pytest.mark.parametrize("withhold_usage", [False, True])
def test_what_is_told_of_single_choices_is_added_up(
    prompts: int, chunks: list[dict[str, Any]], counted: tuple[int, int], withhold_usage: bool
) -> None:
    """Told right behind the end of one choice it is that one's; else it is a total: the latest counts."""
    relay = Relay(CHAT, withhold_usage=withhold_usage, choices=3, prompts=prompts)
    sent(relay, [*map(event, chunks), DONE])

    assert relay.usage is not None
    assert (relay.usage.prompt_tokens, relay.usage.output_tokens) == counted


def test_a_total_of_nothing_is_told_too() -> None:
    """An answer without output has a prompt nonetheless."""
    relay = Relay(CHAT, withhold_usage=False)
    sent(relay, [event(ends(0)), event(alone(own(0))), DONE])

    assert relay.usage == Usage(prompt_tokens=10, output_tokens=0)


def test_a_choice_that_was_told_of_does_not_stand_for_the_others() -> None:
    """Cut or left before all have ended, the prompt counts once and what shows of the others counts too."""
    relay = Relay(CHAT, withhold_usage=True, choices=4)
    for chunk in [*[says(n) for n in (0, 1, 2, 3, 1, 2, 3)], ends(0), alone(own(1, 12, cached_tokens=8))]:
        relay.feed(event(chunk))

    assert relay.usage == Usage(prompt_tokens=12, output_tokens=7, cached_tokens=8)
