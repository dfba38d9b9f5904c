"""What came back: when did the first token arrive, how many came, and did the answer end as it must?

Readers of one answer each, fed by whoever has the connection. They see no clock: `now` is passed in.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tidegate.core.errors import UpstreamError
from tidegate.net.sse import EventSplitter, data_of

KEPT_BYTES = 65_536  # of an error body
DETAIL_CHARS = 200
CODE_CHARS = 64


class Fault(msgspec.Struct, frozen=True):
    """Why an answer is none. `kind` is a label of few values; `detail` is for people."""

    kind: str
    detail: str = ""
    code: str = ""


class Tokens(msgspec.Struct):
    """What an answer says it used."""

    prompt: int = 0
    output: int = 0
    cached: int = 0


class StreamedAnswer:
    """Chat completion chunks as server-sent events, ended by `[DONE]`."""

    __slots__ = ("_events", "deltas", "done", "first_token_at", "tokens")

    def __init__(self) -> None:
        self._events = EventSplitter()
        self.deltas = 0  # with something in them
        self.first_token_at: float | None = None
        self.tokens = Tokens()
        self.done = False

    def feed(self, data: bytes, now: float) -> Fault | None:
        """Take bytes as they come; `done` is True once the stream said so."""
        try:
            for event in self._events.feed(data):
                fault = self._take(data_of(event), now)
                if fault or self.done:
                    return fault
        except (UpstreamError, msgspec.DecodeError) as error:
            return Fault("bad_stream", f"not an event of a chat completion: {error}"[:DETAIL_CHARS])
        return None

    def end(self) -> Fault | None:
        """The body is over; a stream that was done before is sound."""
        if self.done:
            return None
        return Fault("bad_stream", "the answer ended without [DONE]")

    def _take(self, data: bytes, now: float) -> Fault | None:
        if not data:
            return None  # a comment, or a named event without content
        if data == b"[DONE]":
            self.done = True
            return None
        chunk = _CHUNK.decode(data)
        if chunk.error is not None:
            return error_fault("error_event", data)
        for choice in chunk.choices:
            if choice.delta is not None and choice.delta.carries():
                # Until usage comes, if it does: an engine may put several tokens into one delta.
                self.tokens.output += 1
                self.deltas += 1
                if self.first_token_at is None:
                    self.first_token_at = now
        if chunk.usage is not None:
            self.tokens = chunk.usage.tokens()
        return None


class WholeAnswer:
    """A chat completion in one piece. It has no first token that could be timed."""

    __slots__ = ("_body", "done", "first_token_at", "tokens")

    def __init__(self) -> None:
        self._body = bytearray()
        self.first_token_at: float | None = None
        self.tokens = Tokens()
        self.done = False

    def feed(self, data: bytes, now: float) -> Fault | None:
        """Keep bytes until the end."""
        self._body += data
        return None

    def end(self) -> Fault | None:
        """The body is over: read it."""
        try:
            whole = _WHOLE.decode(self._body)
        except msgspec.DecodeError as error:
            return Fault("bad_answer", f"not a chat completion: {error}"[:DETAIL_CHARS])
        if whole.usage is not None:
            self.tokens = whole.usage.tokens()
        self.done = True
        return None


class ErrorAnswer:
    """The body of a status other than 2xx."""

    __slots__ = ("_body", "_status", "done", "first_token_at", "tokens")

    def __init__(self, status: int) -> None:
        self._status = status
        self._body = bytearray()
        self.first_token_at: float | None = None
        self.tokens = Tokens()
        self.done = False

    def feed(self, data: bytes, now: float) -> Fault | None:
        """Keep the beginning."""
        self._body += data[: KEPT_BYTES - len(self._body)]
        return None

    def end(self) -> Fault | None:
        """The status, and the code that the body gives, if it gives one."""
        return error_fault(f"http_{self._status}", bytes(self._body))


Answer = StreamedAnswer | WholeAnswer | ErrorAnswer


def error_fault(kind: str, body: bytes) -> Fault:
    """A fault from an OpenAI error object: `code` if that is a word, else `type`, refines the kind."""
    try:
        error = msgspec.json.decode(body, type=_Error).error
    except msgspec.DecodeError:
        return Fault(kind, body[:DETAIL_CHARS].decode("utf-8", "replace"))
    if not isinstance(error, dict):
        return Fault(kind, str(error)[:DETAIL_CHARS])
    words = [word for name in ("code", "type") if isinstance(word := error.get(name), str) and word]
    code = words[0][:CODE_CHARS] if words else ""
    return Fault(f"{kind}_{code}" if code else kind, str(error.get("message", ""))[:DETAIL_CHARS], code)


class _Delta(msgspec.Struct):
    """Only whether something is in it matters, hence any type."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: Any = None

    def carries(self) -> bool:
        return bool(self.content or self.reasoning_content or self.reasoning or self.tool_calls)


class _Choice(msgspec.Struct):
    delta: _Delta | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None

    def tokens(self) -> Tokens:
        details = self.prompt_tokens_details
        return Tokens(self.prompt_tokens, self.completion_tokens, (details and details.cached_tokens) or 0)


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


class _Whole(msgspec.Struct):
    choices: list[Any]
    usage: _Usage | None = None


class _Error(msgspec.Struct):
    error: Any


_CHUNK = msgspec.json.Decoder(_Chunk)
_WHOLE = msgspec.json.Decoder(_Whole)
