"""OpenAI's responses: named, numbered events, then one that carries the whole response.

Source: OpenAI's API reference on streaming responses, and vLLM 0.32's version of it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tidegate.core.request import Usage
from tidegate.gateway.apis import Form
from tidegate.gateway.decoders import RESPONSES_EVENT, ResponsesEvent
from tidegate.gateway.dialects import NOTHING, Look, message_of, text_bytes, write_event
from tidegate.gateway.usage import read_usage
from tidegate.net.sse import data_of

_NUMBER = b'"sequence_number":'
_NUMBER_BYTES = len(_NUMBER) + 20


class Responses:
    """Follows one response stream."""

    __slots__ = ("_kind", "_last_number", "_overhead_bytes", "_response", "complete")

    def __init__(self) -> None:
        self.complete = False
        self._kind = b""  # the line that names the deltas last looked at, and the start of the next
        self._overhead_bytes = 0  # of such an event, beside its text
        self._last_number = b""  # where the newest event tells its number, unparsed
        self._response: bytes | None = None  # as announced, encoded: it may repeat long instructions

    def plain(self, data: bytes) -> tuple[int, int] | None:
        """Deltas of the type last looked at. Their numbers differ, so that no template fits."""
        if not data.startswith(self._kind) or not data.endswith(b"\n\n"):
            return None
        events = data.count(b"\n\n")
        if data.count(b"\n\n" + self._kind) != events - 1 or b"\r" in data:
            return None
        self._note_number(data)
        return events, max(len(data) - events * self._overhead_bytes, 0)

    def look(self, event: bytes) -> Look:
        """Read one event."""
        data = data_of(event)
        try:
            said = RESPONSES_EVENT.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return NOTHING
        self._note_number(data)
        response = said.response if isinstance(said.response, dict) else {}
        match said.type:
            case "response.created" | "response.in_progress":
                self._response = msgspec.json.encode(response)
            case "response.completed" | "response.incomplete":
                self.complete = True
                return Look(usage=read_usage(Form.RESPONSES, response.get("usage")), final=True)
            case "response.failed":
                return Look(error=message_of(response.get("error")))
            case "error":
                return Look(error=message_of(said.error or said.message))
            case str() as kind if kind.startswith("response.") and kind.endswith(".delta"):
                return self._look_at_delta(event, kind, said)
        return NOTHING

    def _look_at_delta(self, event: bytes, kind: str, said: ResponsesEvent) -> Look:
        content_bytes = text_bytes(said.delta)
        if content_bytes == 0:
            return NOTHING
        # Beside log-probabilities, the length of an event tells nothing of its text.
        self._kind = b"" if said.logprobs else f"event: {kind}\ndata:".encode()
        self._overhead_bytes = len(event) - content_bytes
        return Look(content_bytes=content_bytes)

    def _note_number(self, data: bytes) -> None:
        at = data.rfind(_NUMBER)
        if at >= 0:
            self._last_number = data[at : at + _NUMBER_BYTES]

    def _next_number(self) -> int:
        digits = self._last_number.removeprefix(_NUMBER).replace(b"}", b",").split(b",")[0].strip()
        return int(digits) + 1 if digits.isdigit() else 0

    def terminator(self) -> bytes:
        """None of ours: it carries the whole response, which only the engine knows."""
        return b""

    def truncation(self, usage: Usage, show_usage: bool) -> bytes:
        """`response.incomplete`. Items still open are not closed one by one: their text is not kept here."""
        announced = _EMPTY_RESPONSE if self._response is None else msgspec.json.decode(self._response)
        ended = {
            **announced,
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "usage": _usage(usage),
        }
        event = {"type": "response.incomplete", "sequence_number": self._next_number(), "response": ended}
        return write_event(event, "response.incomplete")

    def error(self, message: str, code: str) -> bytes:
        """An `error` event, flat as the API reference has it and nested as clients look for it."""
        body = {
            "type": "error",
            "sequence_number": self._next_number(),
            "code": code,
            "message": message,
            "param": None,
            "error": {"type": "server_error", "code": code, "message": message, "param": None},
        }
        return write_event(body, "error")


_EMPTY_RESPONSE: dict[str, Any] = {
    "id": "resp_tidegate",
    "object": "response",
    "created_at": 0,
    "model": "",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
    }
