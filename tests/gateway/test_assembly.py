"""The assembly: what a stream becomes, and when it becomes nothing."""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections import Counter
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Completion
from openai.types.chat import ChatCompletion

from tests.gateway.engine_streams import (
    DONE,
    SAMPLES,
    TOTALS,
    USAGE,
    WORDS,
    Sample,
    chat_chunk,
    chat_delta,
    event,
    llama_chat,
    text_chunk,
    vllm_chat,
)
from tidegate.core.errors import CallerError, UpstreamError
from tidegate.core.request import Usage
from tidegate.gateway.apis import APIS, CHAT, COMPLETIONS, EMBEDDINGS, MESSAGES, RESPONSES, Api
from tidegate.gateway.assembly import Assembly, can_assemble
from tidegate.gateway.usage import usage_of

ASSEMBLED = [sample for sample in SAMPLES if can_assemble(sample.api)]
samples = pytest.mark.parametrize("sample", ASSEMBLED, ids=[sample.name for sample in ASSEMBLED])
WORDS_JOINED = "".join(WORDS)


def fed(api: Api, stream: bytes, choices: int = 1) -> Assembly:
    assembly = Assembly(api, choices=choices)
    assembly.feed(stream)
    return assembly


def answer_of(api: Api, *payloads: dict[str, Any], choices: int = 1) -> dict[str, Any]:
    """The whole answer that a stream of these chunks becomes; official clients can read it."""
    answer = fed(api, b"".join(map(event, payloads)) + DONE, choices).answer()
    assert answer is not None
    (ChatCompletion if api is CHAT else Completion).model_validate_json(answer)
    decoded: dict[str, Any] = json.loads(answer)
    return decoded


def choice_of(*choices: dict[str, Any]) -> dict[str, Any]:
    """What these states of one choice become."""
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    whole: dict[str, Any] = answer_of(CHAT, *(chat_chunk([one]) for one in [*choices, last]))["choices"][0]
    return whole


def message_of(*deltas: dict[str, Any]) -> dict[str, Any]:
    """What these deltas of one message become."""
    message: dict[str, Any] = choice_of(*({"index": 0, "delta": delta} for delta in deltas))["message"]
    return message


def test_which_answers_can_be_assembled() -> None:
    """Those of chat and completions; asking for another is our own mistake."""
    assert [api for api in APIS.values() if can_assemble(api)] == [CHAT, COMPLETIONS]
    for api in (RESPONSES, MESSAGES, EMBEDDINGS):
        with pytest.raises(CallerError):
            Assembly(api)


# -- what it becomes ------------------------------------------------------------------------------


def test_a_chat_answer_reads_like_a_whole_one() -> None:
    """Every member in its place, in the order that whole answers have."""
    answer = fed(CHAT, vllm_chat()).answer()
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": WORDS_JOINED},
        "logprobs": None,
        "finish_reason": "stop",
    }
    head = {"id": "chatcmpl-7f", "object": "chat.completion", "created": 1764450000, "model": "tide-1"}

    expected = head | {"choices": [choice], "usage": USAGE}
    assert answer == json.dumps(expected, ensure_ascii=False, separators=(",", ":")).encode()


def test_a_completion_reads_like_a_whole_one() -> None:
    """Two prompts, interleaved."""
    payloads = [text_chunk(word, index=index) for word in WORDS for index in (1, 0)]
    payloads += [text_chunk("", "stop", 0), text_chunk("", "length", 1)]
    payloads += [text_chunk("") | {"choices": [], "usage": USAGE}]

    answer = answer_of(COMPLETIONS, *payloads, choices=2)

    assert answer["object"] == "text_completion"
    assert list(answer) == ["id", "object", "created", "model", "choices", "usage"]
    assert answer["choices"] == [
        {"text": WORDS_JOINED, "index": 0, "logprobs": None, "finish_reason": "stop"},
        {"text": WORDS_JOINED, "index": 1, "logprobs": None, "finish_reason": "length"},
    ]


CALL = {"index": 0, "id": "call-1", "type": "function", "function": {"name": "tide_at", "arguments": ""}}
SECOND_CALL = CALL | {"index": 1, "id": "call-2", "function": {"name": "moon_at", "arguments": "{"}}


def arguments(text: str, index: int = 0, **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "function": {"arguments": text}, **more}]}


def called(id: str, name: str, text: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


MESSAGES_MADE: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "text": ([{"role": "assistant", "content": ""}, {"content": "eb"}, {"content": "b"}], {"content": "ebb"}),
    "the role in every delta": ([{"role": "assistant", "content": one} for one in "ab"], {"content": "ab"}),
    "no role": ([{"content": "ebb"}], {"content": "ebb"}),
    "nothing": ([{"role": "assistant", "content": None}], {"content": ""}),
    "no delta at all": ([], {"content": ""}),
    "escapes": (
        [{"content": '"\\'}, {"content": '\n"'}, {"content": "\u2028é"}],
        {"content": '"\\\n"\u2028é'},
    ),
    "null amid text": ([{"content": "a"}, {"content": None}, {"content": "b"}], {"content": "ab"}),
    "reasoning as vLLM names it": (
        [{"role": "assistant", "content": ""}, {"reasoning": "so"}, {"reasoning": "?"}, {"content": "ebb"}],
        {"content": "ebb", "reasoning": "so?"},
    ),
    "reasoning as llama.cpp names it": (
        [{"role": "assistant", "content": None}, {"reasoning_content": "s"}, {"reasoning_content": "o"}],
        {"content": "", "reasoning_content": "so"},
    ),
    "a refusal": (
        [{"role": "assistant", "content": "", "refusal": None}, {"refusal": "I "}, {"refusal": "won't"}],
        {"content": "", "refusal": "I won't"},
    ),
    "no refusal": ([{"content": "a", "refusal": None}], {"content": "a", "refusal": None}),
    "a call": (
        [{"role": "assistant", "content": None}, {"tool_calls": [CALL]}, arguments('{"a"'), arguments(":1}")],
        {"content": "", "tool_calls": [called("call-1", "tide_at", '{"a":1}')]},
    ),
    "calls in parallel, out of order": (
        [{"tool_calls": [SECOND_CALL]}, {"tool_calls": [CALL]}, arguments("{}"), arguments("}", 1)],
        {
            "content": "",
            "tool_calls": [called("call-1", "tide_at", "{}"), called("call-2", "moon_at", "{}")],
        },
    ),
    "two calls in a delta": (
        [{"tool_calls": [CALL, SECOND_CALL]}, {"tool_calls": [*arguments("}", 1)["tool_calls"]]}],
        {"content": "", "tool_calls": [called("call-1", "tide_at", ""), called("call-2", "moon_at", "{}")]},
    ),
    "calls that repeat what was said with nothing": (
        [{"tool_calls": [CALL]}, arguments("{}", id=None, type=None), arguments("", id="", type="function")],
        {"content": "", "tool_calls": [called("call-1", "tide_at", "{}")]},
    ),
    "calls without index": (
        [{"tool_calls": [called("call-1", "tide_at", "{}"), called("call-2", "moon_at", "{}")]}],
        {"content": "", "tool_calls": [called("call-1", "tide_at", "{}"), called("call-2", "moon_at", "{}")]},
    ),
    "a call of the old kind": (
        [{"function_call": {"name": "tide_at", "arguments": "{"}}, {"function_call": {"arguments": "}"}}],
        {"content": "", "function_call": {"name": "tide_at", "arguments": "{}"}},
    ),
    "content in parts": (
        [{"content": [{"type": "text", "text": "a"}]}, {"content": []}, {"content": [{"text": "b"}]}],
        {"content": [{"type": "text", "text": "a"}, {"text": "b"}]},
    ),
    "members that nobody knows": (
        [
            {"content": "a", "mood": "calm", "depth": 1},
            {"mood": "rough"},
            {"mood": None},
            {"depth": {"m": 2}},
        ],
        {"content": "a", "mood": "rough", "depth": {"m": 2}},
    ),
}


@pytest.mark.parametrize("deltas, expected", MESSAGES_MADE.values(), ids=MESSAGES_MADE.keys())
def test_a_message_comes_together(deltas: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    """What is continued is joined; of the rest the last value counts; null and nothing take nothing back."""
    if isinstance(expected["content"], str):
        assert message_of(*deltas) == {"role": "assistant"} | expected
    else:  # no form that official clients know
        chunks = [*(chat_delta(**delta) for delta in deltas), chat_delta(finish="stop")]
        answer = fed(CHAT, b"".join(map(event, chunks))).answer()
        assert answer is not None
        assert json.loads(answer)["choices"][0]["message"] == {"role": "assistant"} | expected


def token(text: str, *tops: str) -> dict[str, Any]:
    """What a chat answer tells of one token."""
    likely = [{"token": top, "logprob": -0.25, "bytes": None} for top in tops]
    return {"token": text, "logprob": -6.519629955291748, "bytes": None, "top_logprobs": likely}


def test_logprobs_of_a_chat_are_one_list() -> None:
    """Whatever comes without any, before, between or behind; numbers keep their digits."""
    told: list[Any] = [
        {"content": [token("e", "e", "f")]},
        None,
        {"content": [token("b"), token("b")]},
        {"content": []},
    ]
    choices = [{"index": 0, "delta": {"content": "."}, "logprobs": logprobs} for logprobs in told]

    whole = choice_of({"index": 0, "delta": {"role": "assistant"}, "logprobs": None}, *choices)

    assert whole["logprobs"] == {"content": [token("e", "e", "f"), token("b"), token("b")]}


def test_logprobs_of_a_completion_are_parallel_lists() -> None:
    """Tokens, their logprobs, the likeliest and the offsets, as vLLM sends them."""
    pieces = [
        {"tokens": ["e"], "token_logprobs": [None], "top_logprobs": [None], "text_offset": [0]},
        {
            "tokens": ["b", "b"],
            "token_logprobs": [-0.5, -1.5],
            "top_logprobs": [{"b": -0.5}, {"b": -1.5}],
            "text_offset": [1, 2],
        },
    ]
    chunks = [text_chunk("e"), text_chunk("bb", "stop")]
    for chunk, piece in zip(chunks, pieces, strict=True):
        chunk["choices"][0] |= {"logprobs": piece, "token_ids": [7], "stop_reason": None}

    answer = fed(COMPLETIONS, b"".join(map(event, chunks))).answer()
    assert answer is not None
    (choice,) = json.loads(answer)["choices"]

    assert choice["logprobs"] == {
        "tokens": ["e", "b", "b"],
        "token_logprobs": [None, -0.5, -1.5],
        "top_logprobs": [None, {"b": -0.5}, {"b": -1.5}],
        "text_offset": [0, 1, 2],
    }
    assert (choice["text"], choice["token_ids"], choice["stop_reason"]) == ("ebb", [7, 7], None)


def test_the_top_level_is_as_last_told() -> None:
    """Members beside the choices too; what only streams have is left out."""
    first = chat_delta(content="ebb") | {"system_fingerprint": None, "obfuscation": "x" * 9, "usage": None}
    first |= {
        "prompt_progress": {"total": 9, "processed": 4},
        "prompt_token_ids": [1, 2],
        "timings": {"n": 1},
    }
    last = chat_chunk([], system_fingerprint="b1", usage=USAGE, timings={"n": 2}, prompt_token_ids=None)

    answer = answer_of(CHAT, first, chat_delta(finish="stop"), last)

    assert answer.keys() == {"id", "object", "created", "model", "choices", "usage"} | {
        "system_fingerprint",
        "prompt_token_ids",
        "timings",
    }
    assert (answer["system_fingerprint"], answer["timings"]) == ("b1", {"n": 2})
    assert answer["prompt_token_ids"] == [1, 2]


def test_a_usage_chunk_with_an_empty_choice_takes_no_finish_reason_back() -> None:
    """Some servers put one beside the usage."""
    last = chat_delta(finish=None, content=None) | {"usage": USAGE}
    answer = answer_of(CHAT, chat_delta(content="ebb"), chat_delta(finish="length"), last)

    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["choices"][0]["message"]["content"] == "ebb"


def test_white_space_between_the_tokens_of_json_changes_nothing() -> None:
    """Empty lists with a space in them are empty too."""
    lists = [b"[ ]", b"[1 ]", b"[  ]", b"[ 2, 3 ]"]
    chunk = b'data: { "choices" : [ { "index" : 0 , "text" : "a" , "token_ids" : %b } ] }\n\n'
    end = event(text_chunk("", "stop"))

    answer = fed(COMPLETIONS, b"".join(chunk % one for one in lists) + end).answer()

    assert answer is not None
    assert json.loads(answer)["choices"][0]["token_ids"] == [1, 2, 3]


# -- counts ---------------------------------------------------------------------------------------


@samples
def test_the_counts_are_those_of_the_stream(sample: Sample) -> None:
    """Each sample tells the same totals, and so does the answer made from it."""
    assembly = fed(sample.api, sample.stream, sample.choices)
    answer = assembly.answer()

    assert answer is not None
    assert assembly.first_token
    assert assembly.saw_error is None
    assert assembly.usage == usage_of(sample.api, answer) == TOTALS
    assert assembly.output_tokens >= sample.content_events


def test_a_first_token_is_content_not_a_role() -> None:
    """As in a relay: the role, pings and null are not yet an answer."""
    assembly = Assembly(CHAT)
    for piece, seen in [
        (b": ping\n\n", False),
        (event(chat_delta(role="assistant", content=None)), False),
        (event(chat_delta(content="")), False),
        (event(chat_delta(content="ebb")), True),
    ]:
        assembly.feed(piece)
        assert assembly.first_token is seen, piece
    assert assembly.output_tokens == 1
    assert assembly.usage is None


def own_usage(prompt_tokens: int, output_tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": prompt_tokens + output_tokens,
    }


@pytest.mark.parametrize("prompts, prompt_tokens", [(1, 10), (2, 20)], ids=["n=2", "two prompts"])
def test_counts_of_each_choice_are_added_up(prompts: int, prompt_tokens: int) -> None:
    """llama.cpp tells them apart, right behind the end of each; the answer shows the first choice's."""
    assembly = Assembly(CHAT, choices=2, prompts=prompts)
    for chunk in [
        chat_delta(1, content="ebb"),
        chat_delta(0, content="flow"),
        chat_delta(1, finish="stop"),
        chat_chunk([], usage=own_usage(10, 5)),
        chat_delta(0, finish="stop"),
        chat_chunk([], usage=own_usage(10, 7)),
    ]:
        assembly.feed(event(chunk))
    answer = assembly.answer()

    assert assembly.usage == Usage(prompt_tokens=prompt_tokens, output_tokens=12)
    assert answer is not None
    assert json.loads(answer)["usage"] == own_usage(10, 7)


# -- when it becomes nothing ----------------------------------------------------------------------

CONTENT, END = event(chat_delta(content="ebb")), event(chat_delta(finish="stop"))
ENDINGS: dict[str, tuple[bytes, bool]] = {
    "nothing came": (b"", False),
    "only the terminator": (DONE, False),
    "cut off": (CONTENT, False),
    "cut off in an event": (CONTENT + END[:-9], False),
    "cut off before the usage": (CONTENT + END, True),
    "cut off after an end without its blank line": (CONTENT + END.rstrip(b"\n"), True),
    "a terminator without its blank line": (CONTENT + DONE.rstrip(b"\n"), True),
    "line ends of CR": ((CONTENT + DONE).replace(b"\n", b"\r"), True),
    "a terminator without a finish": (CONTENT + DONE, True),
    "`null` and comments first": (b"data: null\n\n:\n\nevent: x\n\n" + CONTENT + DONE, True),
    "an error": (CONTENT + event({"error": {"message": "out of memory"}}), False),
    "an error and the terminator": (CONTENT + END + event({"error": {"message": "no"}}) + DONE, False),
}


@pytest.mark.parametrize("stream, whole", ENDINGS.values(), ids=ENDINGS.keys())
def test_only_a_stream_that_ended_becomes_an_answer(stream: bytes, whole: bool) -> None:
    """A terminator or the end of every choice; an error undoes both. Asking twice changes nothing."""
    assembly = fed(CHAT, stream)
    answer = assembly.answer()

    assert (answer is not None) is whole
    assembly.feed(CONTENT + DONE)
    assert assembly.answer() == answer


def test_the_end_of_one_choice_is_not_the_end_of_two() -> None:
    """Without a terminator, every choice that was asked for must have ended."""
    stream = event(chat_delta(0, content="ebb")) + event(chat_delta(0, finish="stop"))

    assert fed(CHAT, stream, choices=1).answer() is not None
    assert fed(CHAT, stream, choices=2).answer() is None


def test_the_engines_own_words_for_an_error() -> None:
    """They are kept, and nothing that follows counts."""
    assembly = fed(CHAT, event({"error": {"message": "out of memory", "code": 500}}) + CONTENT + DONE)

    assert (assembly.saw_error, assembly.first_token) == ("out of memory", False)


@pytest.mark.parametrize(
    "data",
    [b"{", b"tide", b"[1]", b"7", b'"ebb"', b'{"choices":[7]}', b'{"choices":[{"index":"0"}]}', b"[" * 9999],
)
def test_what_is_no_chunk_is_the_engines_fault(data: bytes) -> None:
    """A piece that cannot be read may have held text: there is no answer without it."""
    with pytest.raises(UpstreamError):
        fed(CHAT, CONTENT + b"data: " + data + b"\n\n" + DONE)


# -- laws -----------------------------------------------------------------------------------------


@samples
@given(data=st.data())
def test_any_split_gives_the_same_answer(sample: Sample, data: st.DataObject) -> None:
    """And the same counts; with any line ends."""
    line_end = data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    stream = sample.stream.replace(b"\n", line_end)
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=30).map(sorted))
    pieces = Assembly(sample.api, choices=sample.choices)
    for start, end in zip([0, *places], [*places, len(stream)], strict=True):
        pieces.feed(stream[start:end])
    whole = fed(sample.api, stream, sample.choices)

    answer = pieces.answer()
    assert answer == whole.answer() == fed(sample.api, sample.stream, sample.choices).answer()
    assert (pieces.usage, pieces.output_tokens) == (whole.usage, whole.output_tokens)


@given(texts=st.lists(st.text(), max_size=8), ascii_only=st.booleans())
def test_text_is_the_concatenation_of_its_deltas(texts: list[str], ascii_only: bool) -> None:
    """Of any characters, escaped or not, in content and in arguments."""
    chunks = [chat_delta(content=text, **arguments(text)) for text in texts]
    lines = [json.dumps(chunk, ensure_ascii=ascii_only) for chunk in [*chunks, chat_delta(finish="stop")]]
    if any("\ud800" <= character <= "\udfff" for text in texts for character in text):
        return  # no Unicode text

    answer = fed(CHAT, "".join(f"data: {line}\n\n" for line in lines).encode()).answer()

    assert answer is not None
    message = json.loads(answer)["choices"][0]["message"]
    assert message["content"] == "".join(texts)
    if texts:
        assert message["tool_calls"] == [{"function": {"arguments": "".join(texts)}}]


def calls_made(words: int) -> int:
    """Calls, ours and the interpreter's, that an answer of so many words takes."""
    pieces = [event(chat_delta(content=f"word {number} ")) for number in range(words)] + [END, DONE]
    seen: Counter[str] = Counter()

    def note(frame: FrameType, what: str, argument: object) -> None:
        seen[what] += 1

    assembly = Assembly(CHAT)
    sys.setprofile(note)
    try:
        for piece in pieces:
            assembly.feed(piece)
        assembly.answer()
    finally:
        sys.setprofile(None)
    return seen["call"] + seen["c_call"]


def test_the_cost_of_a_word_does_not_grow() -> None:
    """Ten times the words, at most ten times the calls; none of them reads what was read before."""
    few, many = calls_made(200), calls_made(2000)

    assert many <= 10 * few


def test_the_memory_of_an_answer_is_that_of_its_text() -> None:
    """A long stream of short words is not kept as its chunks, nor as its words."""
    pieces = [event(chat_delta(content="ebb "))] * 20_000
    assembly = Assembly(CHAT)
    tracemalloc.start()
    try:
        for piece in pieces:
            assembly.feed(piece)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept_bytes < 2 * 4 * len(pieces) + 50_000


LIMITED: dict[str, dict[str, Any]] = {
    "text": chat_delta(content="x" * 100),
    "arguments": chat_delta(**arguments("x" * 100)),
    "logprobs": chat_chunk([{"index": 0, "delta": {}, "logprobs": {"content": [token("x" * 50)]}}]),
}


@pytest.mark.parametrize("chunk", LIMITED.values(), ids=LIMITED.keys())
def test_an_endless_answer_is_given_up(chunk: dict[str, Any]) -> None:
    """Whatever it is that grows."""
    assembly = Assembly(CHAT, limit_bytes=50_000)
    fits = 50_000 // len(event(chunk)) - 10
    assembly.feed(event(chunk) * fits)
    with pytest.raises(UpstreamError):
        assembly.feed(event(chunk) * 1000)


@pytest.mark.parametrize("kind", ["choices", "calls", "members", "usages"])
def test_many_small_things_are_bounded_too(kind: str) -> None:
    """What costs memory is counted, not only text."""
    chunks = [
        {
            "choices": chat_delta(number),
            "calls": chat_delta(**arguments("", number)),
            "members": chat_delta() | {f"x{number}": 0},
            "usages": chat_delta(number) | {"usage": USAGE},
        }[kind]
        for number in range(1000)
    ]
    with pytest.raises(UpstreamError):
        Assembly(CHAT, limit_bytes=50_000).feed(b"".join(map(event, chunks)))


def test_what_is_told_again_and_again_takes_no_more_room() -> None:
    """Timings and usage with each of many chunks are kept once."""
    assembly = Assembly(CHAT, limit_bytes=20_000)
    for number in range(1000):
        usage = own_usage(10, number)
        assembly.feed(event(chat_delta(content="ebb ") | {"timings": {"n": number}, "usage": usage}))

    assert assembly.usage == Usage(prompt_tokens=10, output_tokens=999)


def test_llama_cpps_stream_with_pings_and_timings() -> None:
    """Comments between chunks are nothing; timings come with the usage."""
    answer = fed(CHAT, llama_chat()).answer()

    assert answer is not None
    decoded = json.loads(answer)
    assert decoded["timings"] == {"prompt_ms": 12.5, "cache_n": 16}
    assert decoded["choices"][0]["message"] == {"role": "assistant", "content": WORDS_JOINED}
