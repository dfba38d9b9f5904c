"""Event streams in the shape in which real engines send them, made small enough to read.

Shapes: vLLM 0.32 and llama.cpp's server as observed, OpenAI and Anthropic as their API references have
them. Every text here is ours.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tidegate.core.request import Usage
from tidegate.gateway.apis import CHAT, COMPLETIONS, MESSAGES, RESPONSES, Api

DONE = b"data: [DONE]\n\n"
WORDS = ["The ", "tide ", "turns — ", "潮が満ちる ", "🌊 ", 'and "usage": 5 ', "goes."]


def event(payload: dict[str, Any], name: str = "", *, spaced: bool = False) -> bytes:
    """One event, as compact JSON or, `spaced`, as Python's json writes it by itself."""
    separators = (", ", ": ") if spaced else (",", ":")
    text = json.dumps(payload, separators=separators, ensure_ascii=spaced)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


def chat_chunk(choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A chunk of a chat completion."""
    head = {"id": "chatcmpl-7f", "object": "chat.completion.chunk", "created": 1764450000, "model": "tide-1"}
    return head | {"choices": choices} | more


def chat_delta(index: int = 0, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """A chunk with one choice."""
    return chat_chunk([{"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}])


def text_chunk(text: str, finish: str | None = None, index: int = 0) -> dict[str, Any]:
    """A chunk of a text completion."""
    head = {"id": "cmpl-7f", "object": "text_completion", "created": 1764450000, "model": "tide-1"}
    return head | {"choices": [{"index": index, "text": text, "logprobs": None, "finish_reason": finish}]}


USAGE = {
    "prompt_tokens": 21,
    "completion_tokens": 9,
    "total_tokens": 30,
    "prompt_tokens_details": {"cached_tokens": 16},
}
TOTALS = Usage(prompt_tokens=21, output_tokens=9, cached_tokens=16)


def vllm_chat(*, usage: bool = True, done: bool = True) -> bytes:
    """A role, the words, a finish, the usage chunk."""
    events = [chat_delta(role="assistant", content="")]
    events += [chat_delta(content=word) for word in WORDS]
    events += [chat_delta(finish="stop", content="")]
    events += [chat_chunk([], usage=USAGE)] if usage else []
    return b"".join(event(one) for one in events) + (DONE if done else b"")


def vllm_reasoning() -> bytes:
    """A model that thinks first and then calls a tool."""
    call = {"index": 0, "id": "call-1", "type": "function", "function": {"name": "tide_at", "arguments": ""}}
    parts = [{"index": 0, "function": {"arguments": part}} for part in ('{"port":', '"Brest"}')]
    events = [
        chat_delta(role="assistant", content=""),
        *[chat_delta(reasoning=word) for word in WORDS],
        *[chat_delta(content=word) for word in WORDS[:3]],
        chat_delta(tool_calls=[call]),
        *[chat_delta(tool_calls=[part]) for part in parts],
        chat_delta(finish="tool_calls"),
        chat_chunk([], usage=USAGE),
    ]
    return b"".join(event(one) for one in events) + DONE


def openai_chat() -> bytes:
    """OpenAI puts `usage: null` into every chunk once usage is asked for, and two choices are interleaved."""
    events = [chat_delta(index, role="assistant", content="", refusal=None) for index in (0, 1)]
    events += [chat_delta(index, content=word) for word in WORDS for index in (0, 1)]
    events += [chat_delta(index, finish="stop") for index in (0, 1)]
    written = [event(one | {"usage": None}) for one in events]
    return b"".join(written) + event(chat_chunk([], usage=USAGE)) + DONE


def llama_chat() -> bytes:
    """llama.cpp: a role-only chunk with null content, pings, timings in the last chunk."""
    events = [event(chat_delta(role="assistant", content=None)), b":\n\n"]
    events += [event(chat_delta(content=word)) for word in WORDS]
    events.insert(5, b": ping\n\n")
    events += [event(chat_delta(finish="stop"))]
    events += [event(chat_chunk([], usage=USAGE, timings={"prompt_ms": 12.5, "cache_n": 16}))]
    return b"".join(events) + DONE


def spaced_chat() -> bytes:
    """A server that writes JSON with spaces and escapes, as Python does by default."""
    events = [chat_delta(role="assistant"), *[chat_delta(content=word) for word in WORDS]]
    events += [chat_delta(finish="length"), chat_chunk([], usage=USAGE)]
    return b"".join(event(one, spaced=True) for one in events) + DONE


def dummy_choice_usage() -> bytes:
    """A usage chunk that carries an empty choice (BerriAI/litellm#28735)."""
    last = chat_delta(finish="stop") | {"usage": USAGE}
    events = [chat_delta(role="assistant"), *[chat_delta(content=word) for word in WORDS], last]
    return b"".join(event(one) for one in events) + DONE


def vllm_text(*, usage: bool = True) -> bytes:
    """Two prompts, one after the other."""
    events = [text_chunk(word, index=index) for word in WORDS for index in (0, 1)]
    events += [text_chunk("", "stop", index) for index in (0, 1)]
    events += [text_chunk("") | {"choices": [], "usage": USAGE}] if usage else []
    return b"".join(event(one) for one in events) + DONE


def anthropic_messages() -> bytes:
    """A thinking block and a text block; output counts are running totals (tensorzero/tensorzero#5481)."""
    start: dict[str, Any] = {
        "id": "msg_7f",
        "type": "message",
        "role": "assistant",
        "model": "tide-1",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 5, "cache_read_input_tokens": 16, "output_tokens": 1},
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
    blocks = [
        ({"type": "thinking", "thinking": "", "signature": ""}, "thinking_delta", "thinking"),
        ({"type": "text", "text": ""}, "text_delta", "text"),
    ]
    for index, (block, kind, member) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        if index == 0:
            events.append({"type": "ping"})
        events += [
            {"type": "content_block_delta", "index": index, "delta": {"type": kind, member: word}}
            for word in WORDS
        ]
        if index == 0:
            signature = {"type": "signature_delta", "signature": "c2ln" * 40}
            events.append({"type": "content_block_delta", "index": index, "delta": signature})
        events.append({"type": "content_block_stop", "index": index})
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    events += [
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    return b"".join(event(one, one["type"]) for one in events)


def openai_responses() -> bytes:
    """Reasoning and text items of a response, numbered."""
    response = {
        "id": "resp_7f",
        "object": "response",
        "created_at": 1764450000,
        "model": "tide-1",
        "status": "in_progress",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    item = {"id": "msg_7f", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    where = {"item_id": "msg_7f", "output_index": 0, "content_index": 0}
    text = "".join(WORDS)
    whole = {"type": "output_text", "text": text, "annotations": []}
    done = item | {"status": "completed", "content": [whole]}
    usage = {
        "input_tokens": 21,
        "input_tokens_details": {"cached_tokens": 16},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 30,
    }
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        {"type": "response.in_progress", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", **where, "part": whole | {"text": ""}},
        *[{"type": "response.output_text.delta", **where, "delta": word, "logprobs": []} for word in WORDS],
        {"type": "response.output_text.done", **where, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **where, "part": whole},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {
            "type": "response.completed",
            "response": response | {"status": "completed", "output": [done], "usage": usage},
        },
    ]
    numbered = [one | {"sequence_number": number} for number, one in enumerate(events)]
    return b"".join(event(one, one["type"]) for one in numbered)


class Sample(NamedTuple):
    """A stream that ends well, and what must be read from it."""

    name: str
    api: Api
    stream: bytes
    content_events: int
    choices: int = 1


SAMPLES = [
    Sample("vLLM chat", CHAT, vllm_chat(), 7),
    Sample("vLLM reasoning and tools", CHAT, vllm_reasoning(), 7 + 3 + 3),
    Sample("OpenAI chat, n=2", CHAT, openai_chat(), 14, 2),
    Sample("llama.cpp chat", CHAT, llama_chat(), 7),
    Sample("spaced JSON", CHAT, spaced_chat(), 7),
    Sample("usage with a dummy choice", CHAT, dummy_choice_usage(), 7),
    Sample("vLLM completions, two prompts", COMPLETIONS, vllm_text(), 14, 2),
    Sample("Anthropic messages", MESSAGES, anthropic_messages(), 14),
    Sample("OpenAI responses", RESPONSES, openai_responses(), 7),
]
"""Each of them tells `TOTALS`."""
