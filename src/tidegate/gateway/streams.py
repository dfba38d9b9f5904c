"""What of an engine's event stream may reach the client now, and how does the stream end?

A `Relay` is one streamed answer, as a machine without I/O: bytes of the engine in, bytes for the
client out. It promises

- nothing goes out before the first token, so that a retry until then is invisible;
- what goes out is what came in, byte for byte, except for the usage chunk if that is withheld and
  whatever follows the terminator or an error;
- what went out always ends at an event boundary, so a stream can be ended well-formed at any time;
- counts and output do not depend on how the bytes were cut into reads.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tidegate.core.errors import CallerError
from tidegate.core.request import Usage
from tidegate.gateway.apis import Api, Form
from tidegate.gateway.dialects import Dialect, is_whole
from tidegate.gateway.dialects.chunks import Chunks
from tidegate.gateway.dialects.messages import Messages
from tidegate.gateway.dialects.responses import Responses
from tidegate.gateway.usage import Tally
from tidegate.net.sse import EventSplitter

HELD_BYTES = 256 * 1024
"""More than this is not held for a first token: it goes out, and the attempt is committed."""


class Ending(NamedTuple):
    """How the engine's message ended: what is left for the client, and whether the answer is whole."""

    tail: bytes
    complete: bool


class Relay:
    """One streamed answer. `choices` is how many must end (`Body.answers`), to as many `prompts` as said.

    `withhold_usage`: the usage chunk was asked for by us, not by the client. `prompt_tokens` is our
    estimate, told in the usage of a truncated stream if the engine told none.
    """

    __slots__ = (
        "_aligned",
        "_bytes_per_token",
        "_content_bytes",
        "_dialect",
        "_events",
        "_held",
        "_held_bytes",
        "_over",
        "_splitter",
        "_tally",
        "_told_usage",
        "_withhold_usage",
        "first_token",
        "prompt_tokens",
        "released",
        "saw_error",
    )

    def __init__(
        self,
        api: Api,
        *,
        withhold_usage: bool,
        choices: int = 1,
        prompts: int = 1,
        bytes_per_token: float = 4.0,
        prompt_tokens: int = 0,
    ) -> None:
        self.prompt_tokens = prompt_tokens
        self.first_token = False
        """Content, reasoning, a refusal or a tool call has been seen."""
        self.released = False
        """Bytes went out: the attempt can no longer be retried."""
        self.saw_error: str | None = None
        """The engine's own words for why it gave up. Its error event is the last that is passed on."""
        self._withhold_usage = withhold_usage and api.asks_usage
        self._dialect = _dialect(api, choices)
        self._bytes_per_token = bytes_per_token
        self._events = 0  # of content
        self._content_bytes = 0
        self._splitter = EventSplitter()
        self._tally = Tally(prompts)
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._aligned = True  # the last read ended with an event
        self._over = False  # the terminator, an error or our own ending: nothing may follow
        self._told_usage = False

    @property
    def usage(self) -> Usage | None:
        """The engine's totals, as last told; of choices that it has not told of yet, what shows."""
        told = self._tally.usage
        if told is None or self._dialect.complete or not self._tally.in_parts:
            return told
        return msgspec.structs.replace(told, output_tokens=max(told.output_tokens, self.output_tokens))

    @property
    def output_tokens(self) -> int:
        """Tokens produced so far, as far as they show; `usage` knows better once it is there.

        Chunks are not tokens: an engine may put several into one, which then shows in the bytes.
        """
        return max(self._events, int(self._content_bytes / self._bytes_per_token))

    def feed(self, data: bytes) -> bytes:
        """One read from the engine; what the client may have now. UpstreamError: an endless event."""
        if self._aligned and self.first_token and not self._over:
            plain = self._dialect.plain(data)
            if plain is not None:
                self._count(*plain)
                return data
        passed = [event for event in self._splitter.feed(data) if self._passes(event)]
        self._aligned = not self._splitter.tail
        return self._hold_or_release(passed)

    def end(self) -> Ending:
        """The engine's message is over. Whole: what is still to be sent, with exactly one terminator."""
        passed = [event for event in self._splitter.finish() if self._passes(event)]
        rest = self._splitter.tail.rstrip(b"\r\n") + b"\n\n"  # an engine may close before the blank line
        if is_whole(rest) and self._passes(rest):
            passed.append(rest)
        whole = self.saw_error is None and (self._over or self._dialect.complete)
        if not whole:
            return Ending(self._hold_or_release(passed), False)
        if not self._over:
            passed.append(self._dialect.terminator())
            self._over = True
        return Ending(self._release(passed), True)

    def truncate(self) -> bytes:
        """End the stream here, as if at its output bound; to stop the engine is the caller's."""
        ending = [] if self._over else [self._dialect.truncation(self._produced(), self._shows_usage())]
        self._over = True
        return self._release(ending)

    def error(self, message: str, code: str) -> bytes:
        """End the stream here with an error event, on which official clients raise; drop what was held."""
        self._held.clear()
        self._over = True
        return self._release([self._dialect.error(message, code)])

    def _passes(self, event: bytes) -> bool:
        """Take note of an event; True if the client gets it."""
        if self._over:
            return False
        if self.first_token:
            plain = self._dialect.plain(event)
            if plain is not None:
                self._count(*plain)
                return True
        look = self._dialect.look(event)
        if look.content_bytes is not None:
            self.first_token = True
            self._count(1, look.content_bytes)
        if look.usage is not None:
            self._tally.note(look.usage, look.usage_of)
        self._over = look.final or look.error is not None
        self.saw_error = look.error
        if look.usage_only and not self._withhold_usage:
            self._told_usage = True
        return not (look.usage_only and self._withhold_usage)

    def _count(self, events: int, content_bytes: int) -> None:
        self._events += events
        self._content_bytes += content_bytes

    def _hold_or_release(self, passed: list[bytes]) -> bytes:
        if self.released:
            return b"".join(passed)
        if self.saw_error is not None and not self.first_token:
            self._held.clear()
            return b""
        self._held_bytes += sum(map(len, passed))
        if self.first_token or self._held_bytes > HELD_BYTES:
            return self._release(passed)
        self._held += passed
        return b""

    def _release(self, passed: list[bytes]) -> bytes:
        held, self._held = self._held, []
        self.released = True
        return b"".join(held + passed)

    def _produced(self) -> Usage:
        told = self.usage or Usage(prompt_tokens=self.prompt_tokens, output_tokens=0)
        return msgspec.structs.replace(told, output_tokens=max(told.output_tokens, self.output_tokens))

    def _shows_usage(self) -> bool:
        return not self._withhold_usage and not self._told_usage


def _dialect(api: Api, choices: int) -> Dialect:
    match api.form:
        case Form.CHAT | Form.TEXT:
            return Chunks(api.form, choices)
        case Form.MESSAGES:
            return Messages()
        case Form.RESPONSES:
            return Responses()
    raise CallerError(f"{api.path} never streams")
