"""What of an engine's answer is decoded? A form for each kind of message, open to whatever it holds beside.

The forms are apart from those who read them because those may be compiled, and msgspec's classes may not
(docs/decisions/0007).
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec


class _Answer(msgspec.Struct):
    usage: Any = None


ANSWER = msgspec.json.Decoder(_Answer)
"""Any whole answer."""


_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]


class _Details(msgspec.Struct):
    cached_tokens: _Count | None = None


class _Counts(msgspec.Struct):
    prompt_tokens: _Count
    completion_tokens: _Count
    prompt_tokens_details: _Details | None = None


class _Counted(msgspec.Struct):
    usage: _Counts


COUNTED = msgspec.json.Decoder(_Counted)
"""What vLLM, llama.cpp and OpenAI send all day: decoded by type, at a fifth of the cost of looking around."""


class _Chunk(msgspec.Struct):
    id: Any = None
    object: Any = None
    created: Any = None
    model: Any = None
    choices: Any = None
    usage: Any = None
    error: Any = None
    message: Any = None


CHUNK = msgspec.json.Decoder(_Chunk)
"""A chunk of a chat or text completion."""


class _MessagesEvent(msgspec.Struct):
    type: Any = None
    index: Any = None
    message: Any = None
    delta: Any = None
    usage: Any = None
    error: Any = None


MESSAGES_EVENT = msgspec.json.Decoder(_MessagesEvent)
"""An event of Anthropic's messages."""


class ResponsesEvent(msgspec.Struct):
    """Open to whatever an engine puts there."""

    type: Any = None
    response: Any = None
    delta: Any = None
    logprobs: Any = None
    message: Any = None
    error: Any = None


RESPONSES_EVENT = msgspec.json.Decoder(ResponsesEvent)
"""An event of OpenAI's responses."""
