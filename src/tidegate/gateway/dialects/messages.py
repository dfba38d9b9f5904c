"""Anthropic's messages: named events in blocks, then `message_stop`.

Source: Anthropic's API reference on streaming, and vLLM's and llama.cpp's versions of it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tidegate.core.request import Usage
from tidegate.gateway.apis import Form
from tidegate.gateway.decoders import MESSAGES_EVENT
from tidegate.gateway.dialects import NOTHING, Look, message_of, text_bytes, write_event
from tidegate.gateway.dialects.template import Template
from tidegate.gateway.usage import read_usage
from tidegate.net.sse import data_of


class Messages:
    """Follows one message stream."""

    __slots__ = ("_blocks", "_started", "_template", "_usage", "complete")

    def __init__(self) -> None:
        self.complete = False
        self._started = False
        self._template = Template()
        self._blocks: dict[int, None] = {}  # open ones, in the order of their start
        self._usage: Usage | None = None

    def plain(self, data: bytes) -> tuple[int, int] | None:
        """Deltas of a known block and type."""
        return self._template.match(data)

    def look(self, event: bytes) -> Look:
        """Read one event."""
        try:
            said = MESSAGES_EVENT.decode(data_of(event))
        except (msgspec.DecodeError, RecursionError):
            return NOTHING
        match said.type:
            case "message_start":
                self._started = True
                message = said.message if isinstance(said.message, dict) else {}
                return self._with_usage(message.get("usage"))
            case "content_block_start" if isinstance(said.index, int):
                self._blocks[said.index] = None
            case "content_block_stop" if isinstance(said.index, int):
                self._blocks.pop(said.index, None)
            case "content_block_delta" if isinstance(said.delta, dict):
                return self._look_at_delta(event, said.delta)
            case "message_delta":
                delta = said.delta if isinstance(said.delta, dict) else {}
                self.complete = self.complete or delta.get("stop_reason") is not None
                return self._with_usage(said.usage)
            case "message_stop":
                return Look(final=True)
            case "error":
                return Look(error=message_of(said.error))
        return NOTHING

    def _look_at_delta(self, event: bytes, delta: dict[str, Any]) -> Look:
        for name in ("text", "thinking", "partial_json"):
            if size := text_bytes(delta.get(name)):
                self._template.learn(event, name)
                return Look(content_bytes=size)
        return NOTHING  # the signature of a thinking block, which is no output

    def _with_usage(self, counts: Any) -> Look:
        self._usage = read_usage(Form.MESSAGES, counts, self._usage)
        return Look(usage=self._usage)

    def terminator(self) -> bytes:
        """`message_stop`."""
        return write_event({"type": "message_stop"}, "message_stop")

    def truncation(self, usage: Usage, show_usage: bool) -> bytes:
        """Stops for the open blocks, a `message_delta` with the reason and usage, `message_stop`."""
        written = [] if self._started else [_start(usage)]
        stops = ({"type": "content_block_stop", "index": index} for index in self._blocks)
        written += [write_event(stop, "content_block_stop") for stop in stops]
        if not self.complete:
            last = {
                "type": "message_delta",
                "delta": {"stop_reason": "max_tokens", "stop_sequence": None},
                "usage": {"output_tokens": usage.output_tokens},
            }
            written.append(write_event(last, "message_delta"))
        return b"".join(written) + self.terminator()

    def error(self, message: str, code: str) -> bytes:
        """An event of type `error`. Anthropic's errors have no code: it goes in front of the message."""
        body = {"type": "error", "error": {"type": "api_error", "message": f"{code}: {message}"}}
        return write_event(body, "error")


def _start(usage: Usage) -> bytes:
    """The start that clients insist on, for a message cut before the engine sent its own."""
    message: dict[str, Any] = {
        "id": "msg_tidegate",
        "type": "message",
        "role": "assistant",
        "model": "",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": usage.prompt_tokens, "output_tokens": 0},
    }
    return write_event({"type": "message_start", "message": message}, "message_start")
