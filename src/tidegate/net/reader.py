"""Which requests do a client's bytes hold?

Bytes in, exchanges out, no I/O: what came is in `queue`, in order, and `phase` says what the next byte
belongs to. The first thing that is not allowed ends the reading: it becomes the last exchange's
`refusal`, and whatever follows is thrown away. How the bytes were cut into reads makes no difference.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from typing import TYPE_CHECKING

import httptools

from tidegate.core.reasons import Reason
from tidegate.net.exchange import Exchange
from tidegate.net.headers import WATCHED, Headers, RefusedError, check_host, split_target

if TYPE_CHECKING:
    from tidegate.net.connection import Connection
    from tidegate.net.server import ServerLimits

SLICE_BYTES = 16_384
"""The parser gets at most so much at a time: it cannot be stopped, and a read may hold thousands of heads."""
CHUNK_OVERHEAD_BYTES = 16
"""Framing that a chunk may cost before the rest counts as extensions and trailers."""

_METHODS = {
    name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
}


class Phase(IntEnum):
    """What the next byte from the client belongs to."""

    IDLE = 0
    HEAD = 1
    BODY = 2
    OVER = 3
    """Nothing: no further request is read."""


class RequestReader:
    """Turns the bytes of one connection into exchanges."""

    __slots__ = (
        "_body_bytes",
        "_chunked",
        "_chunks",
        "_connection",
        "_content_length",
        "_expects",
        "_fed_bytes",
        "_headers",
        "_hosts",
        "_incoming",
        "_limits",
        "_parser",
        "_pieces",
        "_refusal",
        "_resuming",
        "_slice_bytes",
        "_target",
        "_unparsed",
        "_upgrade",
        "phase",
        "queue",
    )

    def __init__(self, connection: Connection, limits: ServerLimits) -> None:
        self.phase = Phase.IDLE
        self.queue: deque[Exchange] = deque()
        """Heads read, bodies complete or not; whoever answers them takes them out."""
        self._connection = connection
        self._limits = limits
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._incoming: Exchange | None = None  # the one whose body is being read
        self._refusal: RefusedError | None = None  # what a callback raised
        self._unparsed = b""
        # Bytes fed since this head or body began, in whole slices, and the slice being fed.
        self._fed_bytes = 0
        self._slice_bytes = 0
        self._pieces: list[bytes] = []
        self._body_bytes = 0
        self._resuming = False
        self._begin()

    def _begin(self) -> None:
        self._target = b""
        self._headers: Headers = []
        self._hosts = 0
        self._content_length = 0
        self._chunked = False
        self._chunks = 0
        self._expects = b""
        self._upgrade = False

    def feed(self, data: bytes) -> None:
        """Take what the client sent, as far as the queue's bounds allow; the rest waits for `read_on`."""
        if len(data) <= SLICE_BYTES and not self._unparsed:
            self._feed_slice(data)
            return
        data = self._unparsed + data
        self._unparsed = b""
        view = memoryview(data)
        for start in range(0, len(data), SLICE_BYTES):
            if self.crowded:
                self._unparsed = data[start:]
                break
            self._feed_slice(view[start : start + SLICE_BYTES])

    def read_on(self) -> bool:
        """Read more of what is here already; False if there is none."""
        if not self._unparsed:
            return False
        self.feed(b"")
        return True

    @property
    def crowded(self) -> bool:
        """True if more waits behind the active exchange than may."""
        if len(self.queue) < 2:
            return False  # one is bounded by itself
        waiting_bytes = sum(len(exchange.body) for exchange in self.queue) + self._body_bytes
        return len(self.queue) > self._limits.pipelined or waiting_bytes > self._limits.body_bytes

    def refuse(self, reason: Reason, detail: str) -> None:
        """Read no further, and have what was being read answered with this."""
        exchange = self._incoming
        if exchange is None:
            exchange = Exchange(self._connection, "", "", "", [], self._connection.now(), False, False)
            self.queue.append(exchange)
        exchange.refusal = (reason, detail)
        self.stop()

    def stop(self) -> None:
        """Read no further; what is queued stays. Also breaks the cycle with the parser."""
        self.phase = Phase.OVER
        self._parser = None
        self._incoming = None
        self._unparsed = b""
        self._pieces = []

    def _feed_slice(self, data: bytes | memoryview) -> None:
        self._fed_bytes += len(data)
        self._slice_bytes = len(data)
        while self._parser is not None:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                self._continue_after_upgrade()
            except httptools.HttpParserError as error:
                self._fail(error)
            else:
                self._check_growth()
                break

    def _fail(self, error: Exception) -> None:
        refusal = self._refusal
        if self.phase is Phase.OVER:
            self.stop()  # something after the last request: not wanted, and no fault of that one
        elif refusal is not None:
            self.refuse(refusal.reason, refusal.detail)
        elif isinstance(error, httptools.HttpParserCallbackError):
            raise error  # ours
        else:
            self.refuse(Reason.MALFORMED, str(error))

    def _check_growth(self) -> None:
        """Bound what the parser has taken without giving anything back."""
        if self.phase is Phase.HEAD:
            if self._fed_bytes > self._limits.head_bytes or len(self._headers) > self._limits.headers:
                self.refuse(Reason.HEAD_TOO_LARGE, "request head too large")
        elif self.phase is Phase.BODY and self._chunked:
            framing_bytes = self._fed_bytes - self._body_bytes - CHUNK_OVERHEAD_BYTES * self._chunks
            if framing_bytes > self._limits.head_bytes:
                self.refuse(Reason.HEAD_TOO_LARGE, "chunk extensions or trailers too large")

    def _continue_after_upgrade(self) -> None:
        """Read on as if no upgrade had been offered: a server may ignore it (RFC 9110, 7.8).

        llhttp stops at such a head without reading its body. A fresh parser is told only the framing.
        """
        framing = (
            b"transfer-encoding: chunked" if self._chunked else b"content-length: %d" % self._content_length
        )
        self._upgrade = False
        self._resuming = True
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % framing)

    # -- the parser calls; an exception here ends it -----------------------------------------------

    def on_message_begin(self) -> None:
        if self.phase is Phase.OVER:
            raise RefusedError(Reason.MALFORMED, "a request after the last")
        if not self._resuming:
            self._begin()
            self.phase = Phase.HEAD
            self._fed_bytes = 0

    def on_url(self, url: bytes) -> None:
        if not self._resuming:
            self._target += url
            if len(self._target) > self._limits.target_bytes:
                raise self._refused(Reason.HEAD_TOO_LARGE, "request target too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.phase is Phase.HEAD:  # else it is a trailer, on which nothing may depend
            name = name.lower()
            value = value.strip()
            self._headers.append((name, value))
            if name in WATCHED:
                self._watch(name, value)

    def on_headers_complete(self) -> None:
        if self._resuming:
            self._resuming = False
            return
        try:
            exchange = self._exchange()
        except RefusedError as refusal:
            self._refusal = refusal
            raise
        self._incoming = exchange
        self.queue.append(exchange)
        self.phase = Phase.BODY
        self._fed_bytes = 0

    def on_chunk_header(self) -> None:
        self._chunks += 1

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if self._body_bytes > self._limits.body_bytes:
            raise self._refused(Reason.BODY_TOO_LARGE, "request body too large")
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        if self._upgrade and self._parser is not None and self._parser.should_upgrade():
            return  # its body is still to come
        exchange = self._incoming
        assert exchange is not None
        pieces = self._pieces
        if pieces:
            exchange.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._pieces = []
            self._body_bytes = 0
        exchange.whole = True
        self._incoming = None
        self.phase = Phase.IDLE if exchange.keep_alive else Phase.OVER

    def _refused(self, reason: Reason, detail: str) -> RefusedError:
        self._refusal = RefusedError(reason, detail)
        return self._refusal

    # -- rules of the head ---------------------------------------------------------------------------

    def _watch(self, name: bytes, value: bytes) -> None:
        if name == b"host":
            self._hosts += 1
            try:
                check_host(value)
            except RefusedError as refusal:
                self._refusal = refusal
                raise
        elif name == b"content-length":
            self._content_length = int(value)  # llhttp has seen to it that it is digits, and only once
        elif name == b"transfer-encoding":
            if value.lower() != b"chunked":
                raise self._refused(Reason.MALFORMED, "unsupported Transfer-Encoding")
            self._chunked = True
        elif name == b"expect":
            self._expects = value.lower()
        else:
            self._upgrade = True

    def _exchange(self) -> Exchange:
        """The exchange that the complete head asks for; raises RefusedError."""
        parser = self._parser
        assert parser is not None
        old = self._check_head(parser.get_http_version())
        method = _METHODS.get(parser.get_method())
        if method is None:
            raise RefusedError(Reason.METHOD, "unsupported method")
        path, query = split_target(self._target, method)
        connection = self._connection
        keep_alive = parser.should_keep_alive()
        exchange = Exchange(connection, method, path, query, self._headers, connection.now(), keep_alive, old)
        if self._expects and not old:
            exchange.awaits_continue = True
        return exchange

    def _check_head(self, version: str) -> bool:
        """Refuse what no single line shows; True if this is HTTP/1.0."""
        limits = self._limits
        if len(self._headers) > limits.headers or self._head_too_large(limits.head_bytes):
            raise RefusedError(Reason.HEAD_TOO_LARGE, "request head too large")
        if self._content_length > limits.body_bytes:
            raise RefusedError(Reason.BODY_TOO_LARGE, "request body too large")
        if self._expects not in (b"", b"100-continue"):
            raise RefusedError(Reason.MALFORMED, "unsupported expectation")
        if self._hosts > 1:
            raise RefusedError(Reason.MALFORMED, "more than one Host")
        if version == "1.1":
            if not self._hosts:
                raise RefusedError(Reason.MALFORMED, "no Host")
            return False
        if version != "1.0":
            raise RefusedError(Reason.MALFORMED, "unsupported HTTP version")
        if self._chunked:
            raise RefusedError(Reason.MALFORMED, "Transfer-Encoding in HTTP/1.0")
        return True

    def _head_too_large(self, bound_bytes: int) -> bool:
        if self._fed_bytes + self._slice_bytes <= bound_bytes:
            return False  # the usual case: all that was read is less
        lines_bytes = sum(len(name) + len(value) + 4 for name, value in self._headers)
        return len(self._target) + lines_bytes > bound_bytes
