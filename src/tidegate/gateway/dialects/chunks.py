"""Chat and text completions: unnamed chunks, one per delta, then `data: [DONE]`.

Source: OpenAI's API reference, and the streams of vLLM 0.32 and llama.cpp's server.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from tidegate.core.request import Usage
from tidegate.gateway.apis import Form
from tidegate.gateway.decoders import CHUNK
from tidegate.gateway.dialects import NOTHING, Look, message_of, text_bytes, write_event
from tidegate.gateway.dialects.template import Template
from tidegate.gateway.usage import read_usage
from tidegate.net.sse import data_of

DONE = b"data: [DONE]\n\n"


class Chunks:
    """Follows one stream of chunks for `choices` choices, 0 to `choices` - 1; others do not count."""

    __slots__ = (
        "_choices",
        "_created",
        "_ended",
        "_finished",
        "_form",
        "_id",
        "_model",
        "_object",
        "_template",
        "complete",
    )

    def __init__(self, form: Form, choices: int) -> None:
        self.complete = False
        self._form = form
        self._choices = range(choices)
        self._template = Template()
        self._finished: set[int] = set()
        self._ended: list[int] = []  # since usage was last told
        chat = form is Form.CHAT
        self._id: Any = "chatcmpl-tidegate" if chat else "cmpl-tidegate"
        self._object: Any = "chat.completion.chunk" if chat else "text_completion"
        self._created: Any = None
        self._model: Any = ""

    def plain(self, data: bytes) -> tuple[int, int] | None:
        """Chunks with a known member of text; no usage, error, finish reason or terminator among them."""
        return self._template.match(data)

    def look(self, event: bytes) -> Look:
        """Read one chunk."""
        data = data_of(event).strip()
        if data == b"[DONE]":
            return Look(final=True)
        try:
            chunk = CHUNK.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return NOTHING
        if chunk.error or chunk.object == "error":
            return Look(error=message_of(chunk.error or chunk.message))
        if self._created is None and chunk.created is not None:
            self._id, self._object = chunk.id, chunk.object
            self._created, self._model = chunk.created, chunk.model
        choices = chunk.choices if isinstance(chunk.choices, list) else None
        usage = read_usage(self._form, chunk.usage)
        if not choices:
            usage_only = choices is not None and usage is not None
            return Look(usage=usage, usage_of=self._owner(usage), usage_only=usage_only)
        choices = [choice for choice in choices if isinstance(choice, dict)]
        ended = self._note_ends(choices)
        owner = self._owner(usage)
        produced = [made for choice in choices if (made := _produced(choice)) is not None]
        if not produced:
            return Look(usage=usage, usage_of=owner)
        if not ended:  # or the end of another choice, written alike, would go unseen
            self._template.learn(event, produced[0].member)
        return Look(content_bytes=sum(made.bytes for made in produced), usage=usage, usage_of=owner)

    def _note_ends(self, choices: list[dict[str, Any]]) -> bool:
        """True if any choice ends here."""
        indexes = [choice.get("index", 0) for choice in choices if choice.get("finish_reason") is not None]
        for index in indexes:
            if type(index) is int and index in self._choices and index not in self._finished:
                self._finished.add(index)
                self._ended.append(index)
        self.complete = len(self._finished) == len(self._choices)
        return bool(indexes)

    def _owner(self, usage: Usage | None) -> int | None:
        """Whose usage this is: llama.cpp tells each choice's at its end, others that of all at any time."""
        if usage is None:
            return None
        ended, self._ended = self._ended, []
        return ended[0] if len(ended) == 1 and len(self._choices) > 1 else None

    def terminator(self) -> bytes:
        """`[DONE]`."""
        return DONE

    def truncation(self, usage: Usage, show_usage: bool) -> bytes:
        """A last chunk for each open choice, the usage chunk if it is to be shown, `[DONE]`."""
        empty: dict[str, Any] = {"delta": {}} if self._form is Form.CHAT else {"text": ""}
        written = [
            self._write([{"index": index, **empty, "logprobs": None, "finish_reason": "length"}])
            for index in self._choices
            if index not in self._finished
        ]
        if show_usage:
            written.append(self._write([], _usage(usage)))
        return b"".join(written) + DONE

    def _write(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        chunk = {
            "id": self._id,
            "object": self._object,
            "created": self._created or 0,
            "model": self._model,
            "choices": choices,
        }
        return write_event(chunk if usage is None else chunk | {"usage": usage})

    def error(self, message: str, code: str) -> bytes:
        """An `error` object in a data line; no `[DONE]`, for the answer is not done."""
        return write_event(
            {"error": {"message": message, "type": "server_error", "param": None, "code": code}}
        )


class _Produced(NamedTuple):
    member: str
    bytes: int


def _produced(choice: dict[str, Any]) -> _Produced | None:
    """What the model produced in a choice: text, reasoning, a refusal or a tool call; None for nothing."""
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        delta = choice
    for name in ("content", "reasoning_content", "reasoning", "refusal", "text"):
        text = delta.get(name)
        if text and isinstance(text, str | list):
            parts = text if isinstance(text, list) else [{"text": text}]  # some send a list of parts
            size = sum(text_bytes(part.get("text")) for part in parts if isinstance(part, dict))
            return _Produced(name, size)
    calls = delta.get("tool_calls") or delta.get("function_call")
    if calls:
        calls = calls if isinstance(calls, list) else [{"function": calls}]
        return _Produced("arguments", sum(_call_bytes(call) for call in calls))
    return None


def _call_bytes(call: Any) -> int:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return 0
    return text_bytes(function.get("name")) + text_bytes(function.get("arguments"))


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
