"""How does an answer read in each API, as a stream and as a whole?

A `Voice` turns tokens into bytes and knows nothing of time or sockets. What does not change within an
answer is made once, so that a chunk costs one concatenation; the text needs no escaping (`words`).
"""

from __future__ import annotations

from collections.abc import Sequence as Several
from typing import Any, Protocol

import msgspec

from tidegate.emulator.engine import Choice
from tidegate.emulator.jobs import Job, Refusal

DONE = b"data: [DONE]\n\n"
FINISH = {False: b"stop", True: b"length"}


class Answered(msgspec.Struct, frozen=True):
    """What every voice must know of its answer."""

    answer_id: str
    model: str
    created_at: int  # seconds since 1970
    prompt_tokens: int
    job: Job


class Voice(Protocol):
    """One API's form of one answer."""

    def opening(self) -> bytes:
        """What precedes the first token of a stream."""

    def piece(self, choice: Choice, text: bytes, last: bool) -> bytes:
        """Some tokens of a choice, its last ones or not."""

    def closing(self) -> bytes:
        """What follows when all choices are finished."""

    def whole(self, texts: Several[bytes]) -> bytes:
        """The body of an answer that is not streamed; one text per choice."""

    def error(self, refusal: Refusal) -> bytes:
        """The body of an error."""

    def broken(self, refusal: Refusal) -> bytes:
        """The end of a stream that fails."""


def encoded(value: object) -> bytes:
    """As JSON."""
    return msgspec.json.encode(value)


def openai_error(refusal: Refusal) -> bytes:
    """An error as vLLM words it."""
    return encoded(
        {
            "error": {
                "message": refusal.message,
                "type": refusal.error_type,
                "param": refusal.param,
                "code": refusal.status,
            }
        }
    )


def openai_usage(prompt_tokens: int, output_tokens: int) -> dict[str, Any]:
    """`usage` of chat and completions."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + output_tokens,
        "completion_tokens": output_tokens,
    }


class CompletionsVoice:
    """Chat and text completions: one event per piece, told apart by `object` and where the text stands."""

    __slots__ = ("_about", "_after", "_before", "_chat", "_choices", "_head", "_object")

    def __init__(self, about: Answered, choices: Several[Choice], chat: bool) -> None:
        self._about = about
        self._chat = chat
        self._choices = choices
        self._object = "chat.completion" if chat else "text_completion"
        event = {
            "id": about.answer_id,
            "object": self._object + (".chunk" if chat else ""),
            "created": about.created_at,
            "model": about.model,
        }
        self._head = b"data: " + encoded(event)[:-1] + b',"choices":['
        opened = b'"delta":{"content":"' if chat else b'"text":"'
        self._before = [self._head + b'{"index":%d,' % choice.index + opened for choice in choices]
        closed = b'"},' if chat else b'",'
        self._after = closed + b'"logprobs":null,"finish_reason":null}]}\n\n'

    def opening(self) -> bytes:
        """Chat says who speaks, for each choice."""
        if not self._chat:
            return b""
        role = b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
        return b"".join(
            b'%b{"index":%d,%b%b}\n\n' % (self._head, choice.index, role, self._usage_of(choice, 0))
            for choice in self._choices
        )

    def piece(self, choice: Choice, text: bytes, last: bool) -> bytes:
        """One event."""
        before = self._before[choice.index] + text
        if not last and not self._about.job.continuous_usage:
            return before + self._after
        finish = b"null"
        if last:
            finish = b'"%b","stop_reason":null' % FINISH[choice.cut]
        usage = self._usage_of(choice, choice.sent)
        closed = b'"},' if self._chat else b'",'
        return b'%b%b"logprobs":null,"finish_reason":%b}]%b}\n\n' % (before, closed, finish, usage)

    def closing(self) -> bytes:
        """The usage, if asked for, and the terminator."""
        if not self._about.job.include_usage:
            return DONE
        usage = openai_usage(self._about.prompt_tokens, self._output_tokens())
        return b'%b],"usage":%b}\n\n%b' % (self._head, encoded(usage), DONE)

    def whole(self, texts: Several[bytes]) -> bytes:
        """All choices and the usage."""
        return encoded(
            {
                "id": self._about.answer_id,
                "object": self._object,
                "created": self._about.created_at,
                "model": self._about.model,
                "choices": [self._choice(c, t) for c, t in zip(self._choices, texts, strict=True)],
                "usage": openai_usage(self._about.prompt_tokens, self._output_tokens()),
            }
        )

    def error(self, refusal: Refusal) -> bytes:
        """As vLLM words it."""
        return openai_error(refusal)

    def broken(self, refusal: Refusal) -> bytes:
        """An error event, then the terminator all the same: so does vLLM."""
        return b"data: %b\n\n%b" % (openai_error(refusal), DONE)

    def _choice(self, choice: Choice, text: bytes) -> dict[str, Any]:
        said = text.decode()
        content = {"message": {"role": "assistant", "content": said}} if self._chat else {"text": said}
        finish = FINISH[choice.cut].decode()
        return {"index": choice.index, **content, "logprobs": None, "finish_reason": finish}

    def _output_tokens(self) -> int:
        return sum(choice.sent for choice in self._choices)

    def _usage_of(self, choice: Choice, output_tokens: int) -> bytes:
        """Continuous usage, if asked for: vLLM's counts one choice, not all."""
        if not self._about.job.continuous_usage:
            return b""
        return b',"usage":' + encoded(openai_usage(choice.sequence.prompt_tokens, output_tokens))


class ResponsesVoice:
    """The Responses API: typed events, each with its number."""

    __slots__ = ("_about", "_choice", "_delta", "_message_id", "_number", "_text")

    def __init__(self, about: Answered, choices: Several[Choice]) -> None:
        self._about = about
        (self._choice,) = choices
        self._message_id = "msg_" + about.answer_id.removeprefix("resp_")
        self._number = 0
        self._text: list[bytes] = []
        self._delta = (
            b"event: response.output_text.delta\n"
            b'data: {"type":"response.output_text.delta","item_id":%b,"output_index":0,"content_index":0,'
            b'"logprobs":[],"delta":"' % encoded(self._message_id)
        )

    def opening(self) -> bytes:
        """The response, its one message and that message's one part."""
        response = self._response("in_progress", [])
        item = {**self._item("in_progress", b""), "content": []}
        return (
            self._event("response.created", response=response)
            + self._event("response.in_progress", response=response)
            + self._event("response.output_item.added", output_index=0, item=item)
            + self._event("response.content_part.added", **self._place(), part=self._part(b""))
        )

    def piece(self, choice: Choice, text: bytes, last: bool) -> bytes:
        """One delta."""
        self._text.append(text)
        number = self._number
        self._number += 1
        return b'%b%b","sequence_number":%d}\n\n' % (self._delta, text, number)

    def closing(self) -> bytes:
        """Everything again, complete."""
        text = b"".join(self._text)
        status = self._status()
        item = self._item(status, text)
        place = self._place()
        return (
            self._event("response.output_text.done", **place, text=text.decode(), logprobs=[])
            + self._event("response.content_part.done", **place, part=self._part(text))
            + self._event("response.output_item.done", output_index=0, item=item)
            + self._event(f"response.{status}", response=self._response(status, [item]))
        )

    def whole(self, texts: Several[bytes]) -> bytes:
        """The response object."""
        status = self._status()
        return encoded(self._response(status, [self._item(status, texts[0])]))

    def error(self, refusal: Refusal) -> bytes:
        """As vLLM words it."""
        return openai_error(refusal)

    def broken(self, refusal: Refusal) -> bytes:
        """An error event."""
        return self._event("error", code=refusal.error_type, message=refusal.message, param=None)

    def _event(self, kind: str, **fields: object) -> bytes:
        number = self._number
        self._number += 1
        data = encoded({"type": kind, "sequence_number": number, **fields})
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._message_id, "output_index": 0, "content_index": 0}

    def _part(self, text: bytes) -> dict[str, Any]:
        return {"type": "output_text", "text": text.decode(), "annotations": [], "logprobs": []}

    def _item(self, status: str, text: bytes) -> dict[str, Any]:
        content = [self._part(text)]
        message = {"id": self._message_id, "type": "message", "role": "assistant"}
        return {**message, "status": status, "content": content}

    def _status(self) -> str:
        return "incomplete" if self._choice.cut else "completed"

    def _response(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        incomplete = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": self._about.answer_id,
            "object": "response",
            "created_at": self._about.created_at,
            "model": self._about.model,
            "status": status,
            "output": output,
            "error": None,
            "incomplete_details": incomplete,
            "instructions": None,
            "max_output_tokens": self._about.job.max_tokens,
            "metadata": {},
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": None if status == "in_progress" else self._usage(),
        }

    def _usage(self) -> dict[str, Any]:
        return {
            "input_tokens": self._about.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": self._choice.sent,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self._about.prompt_tokens + self._choice.sent,
        }


class MessagesVoice:
    """Anthropic's Messages API."""

    __slots__ = ("_about", "_choice")

    _DELTA = (
        b"event: content_block_delta\n"
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"'
    )

    def __init__(self, about: Answered, choices: Several[Choice]) -> None:
        self._about = about
        (self._choice,) = choices

    def opening(self) -> bytes:
        """The message without content, and its one block."""
        block = {"type": "text", "text": ""}
        return self._event("message_start", message=self._message([], None)) + self._event(
            "content_block_start", index=0, content_block=block
        )

    def piece(self, choice: Choice, text: bytes, last: bool) -> bytes:
        """One delta."""
        return self._DELTA + text + b'"}}\n\n'

    def closing(self) -> bytes:
        """Why it ended, and the usage."""
        delta = {"stop_reason": self._stop_reason(), "stop_sequence": None}
        return (
            self._event("content_block_stop", index=0)
            + self._event("message_delta", delta=delta, usage=self._usage())
            + self._event("message_stop")
        )

    def whole(self, texts: Several[bytes]) -> bytes:
        """The message object."""
        content = [{"type": "text", "text": texts[0].decode()}]
        return encoded(self._message(content, self._stop_reason()))

    def error(self, refusal: Refusal) -> bytes:
        """In Anthropic's form."""
        return messages_error(refusal)

    def broken(self, refusal: Refusal) -> bytes:
        """An error event."""
        return b"event: error\ndata: %b\n\n" % messages_error(refusal)

    def _event(self, kind: str, **fields: object) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), encoded({"type": kind, **fields}))

    def _message(self, content: list[dict[str, Any]], stop_reason: str | None) -> dict[str, Any]:
        return {
            "id": self._about.answer_id,
            "type": "message",
            "role": "assistant",
            "model": self._about.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": self._usage(),
        }

    def _stop_reason(self) -> str:
        return "max_tokens" if self._choice.cut else "end_turn"

    def _usage(self) -> dict[str, Any]:
        return {"input_tokens": self._about.prompt_tokens, "output_tokens": self._choice.sent}


_ANTHROPIC_TYPES = {400: "invalid_request_error", 404: "not_found_error", 503: "overloaded_error"}


def messages_error(refusal: Refusal) -> bytes:
    """An error in Anthropic's form."""
    kind = _ANTHROPIC_TYPES.get(refusal.status, "api_error")
    return encoded({"type": "error", "error": {"type": kind, "message": refusal.message}})
