"""What happens on one connection to an engine?

It carries one call at a time. Bytes go through the parser once; what one read holds reaches the sink as
at most one `on_head`, one `on_body` and one end. A connection is given back only if its answer ended by
its own framing, said nothing against it and brought not a byte too many.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

import httptools

from tidegate.core.errors import UpstreamError
from tidegate.core.messages import FailureKind
from tidegate.net.call import Call
from tidegate.net.headers import Headers, stripped

if TYPE_CHECKING:
    from tidegate.net.client import Client

ONE_WRITE_BYTES: Final = 65_536
"""A longer body is written by itself rather than copied behind its head."""


class UpstreamConnection:
    """Our side of one connection to an engine: an `asyncio.Protocol` in all but inheritance."""

    __slots__ = (
        "_answered",
        "_call",
        "_client",
        "_complete",
        "_eof_ends",
        "_framed",
        "_garbage",
        "_headers",
        "_headless",
        "_idle_bytes",
        "_in_head",
        "_keep_alive",
        "_lost",
        "_parser",
        "_pieces",
        "_reading_paused",
        "_status",
        "_told_head",
        "_transport",
        "idle_since",
        "on_body",
    )

    def __init__(self, client: Client) -> None:
        self.idle_since = 0.0
        self._client = client
        self._transport: asyncio.Transport | None = None
        self._pieces: list[bytes] = []  # of the body, from this read
        self.on_body = self._pieces.append  # the parser's
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._call: Call | None = None
        self._lost = False
        self._reading_paused = False
        self._reset(False)

    def _reset(self, headless: bool) -> None:
        self._headless = headless  # the answer to HEAD: framing is announced, no body comes
        self._answered = False
        self._in_head = False
        self._status = 0
        self._headers: Headers = []
        self._framed = False
        self._told_head = False
        self._eof_ends = False
        self._complete = False
        self._keep_alive = False
        self._garbage = ""
        self._idle_bytes = 0  # read since anything was told to the sink

    # -- used by the pool ----------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """True while the engine has not closed it, as far as we know."""
        return not self._lost and self._transport is not None and not self._transport.is_closing()

    def carry(self, call: Call) -> None:
        """Carry a call over this new connection, if both are still there."""
        if not self.usable:
            self._call = call
            self._break("the connection closed before the request was sent")
        elif call.attach(self):
            self.begin(call)
        else:
            self.drop()

    def begin(self, call: Call) -> None:
        """Send a call's request and listen for its answer."""
        transport = self._transport
        assert transport is not None
        self._call = call
        call.sent = True
        self._reset(call.head.startswith(b"HEAD "))
        if len(call.body) > ONE_WRITE_BYTES:
            self._client.outbox.flush_all()
            transport.write(call.head)
            transport.write(call.body)
        else:
            self._client.outbox.write(transport, call.head + call.body)

    def drop(self) -> None:
        """Close at once and tell nobody."""
        self._lost = True
        self._call = None
        self._parser = None
        if self._transport is not None:
            self._client.outbox.forget(self._transport)
            self._transport.abort()

    def pause(self) -> None:
        """Stop reading."""
        if self._transport is not None and not self._reading_paused and self.usable:
            self._reading_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._transport is not None and self._reading_paused and self.usable:
            self._reading_paused = False
            self._transport.resume_reading()

    # -- the transport tells -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        if self._lost:
            self._transport.abort()  # the call was cancelled as the connection came to be
        else:
            self._client.joined(self)

    def data_received(self, data: bytes) -> None:
        call = self._call
        parser = self._parser
        if call is None or parser is None:
            self._client.withdraw(self)  # an answer that nobody asked for
            self.drop()
            return
        if not self._answered:
            self._answered = True
            call.body = b""  # it can no longer be replayed
        call.heard = True
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._garbage = self._garbage or f"not HTTP/1.1: {error}"
        pieces = self._pieces
        if self._told_head and pieces and not (self._complete or self._garbage or self._headless):
            # In the middle of an answer, once for each token: nothing but the piece to look at.
            piece = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
            self._idle_bytes = 0
            call.sink.on_body(piece)
        else:
            self._idle_bytes += len(data)
            self._deliver(call)

    def eof_received(self) -> None:
        call = self._call
        if call is None:
            self._lost = True
            self._client.withdraw(self)
        elif self._eof_ends:
            self._call = None
            call.complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._transport is not None:
            self._client.outbox.forget(self._transport)
        self._client.left(self)
        self._client.withdraw(self)
        self._parser = None
        self._break(str(exc) if exc else "the engine closed the connection")

    def pause_writing(self) -> None:
        pass  # a request is written whole, and bounded by what the server takes

    def resume_writing(self) -> None:
        pass

    def _break(self, detail: str) -> None:
        call = self._call
        self._call = None
        if call is None:
            return
        if not self._answered and self._client.now() <= call.stale_until:
            call.replay()
        else:
            call.fail(FailureKind.RESET, detail)

    # -- the parser tells ----------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            raise UpstreamError("bytes after the answer")  # ends the parsing
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else it is a trailer
            name = name.lower()
            value = stripped(value)
            self._headers.append((name, value))
            if name == b"content-length":
                self._framed = True
            elif name == b"transfer-encoding":
                self._framed = True
                if value.lower() != b"chunked":
                    self._garbage = "unsupported Transfer-Encoding"

    def on_headers_complete(self) -> None:
        parser = self._parser
        if parser is None:
            return
        self._in_head = False
        status = parser.get_status_code()
        if status < 200:
            self._headers = []
            self._framed = False
            return
        self._status = status
        if self._headless:
            self._complete = True
            self._keep_alive = parser.should_keep_alive()
        else:
            self._eof_ends = not self._framed and status != 204 and status != 304

    def on_message_complete(self) -> None:
        if self._status and not self._complete and self._parser is not None:
            self._complete = True
            self._keep_alive = self._parser.should_keep_alive()

    # -- the sink is told ----------------------------------------------------------------------------

    def _deliver(self, call: Call) -> None:
        sink = call.sink
        if self._status and not self._told_head:
            self._told_head = True
            self._idle_bytes = 0
            call.close_delimited = self._eof_ends
            sink.on_head(self._status, self._headers)
            if self._call is not call:
                return  # the sink cancelled
        pieces = self._pieces
        if pieces:
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
            self._idle_bytes = 0
            if self._headless:
                self._garbage = "a body in the answer to HEAD"
            else:
                sink.on_body(data)
                if self._call is not call:
                    return
        if self._complete:
            self._release(call)
            call.complete()
        elif self._garbage:
            call.fail(FailureKind.GARBAGE, self._garbage)
        elif self._idle_bytes > self._client.limits.head_bytes:
            call.fail(FailureKind.GARBAGE, "the answer's head, chunk extensions or trailers are too large")

    def _release(self, call: Call) -> None:
        """The answer is complete: give the connection back, or close it."""
        self._call = None
        if not (call.reusable and self._keep_alive) or self._garbage:
            self.drop()
            return
        if self._headless:
            self._parser = httptools.HttpResponseParser(self)  # the old one waits for the body
        if self._reading_paused:
            self.resume()
        self._client.give_back(self)
