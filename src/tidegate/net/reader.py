"""Which requests do a client's bytes hold?

Bytes in, exchanges out, no I/O: what came is in `queue`, in order, and `phase` says what the next byte
belongs to. The first thing that is not allowed ends the reading: it becomes the last exchange's
`refusal`, and whatever follows is thrown away. How the bytes were cut into reads makes no difference.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Final

import httptools

from tidegate.core.reasons import Reason
from tidegate.net.exchange import Exchange
from tidegate.net.headers import Headers, RefusedError, check_host, split_target, stripped

if TYPE_CHECKING:
    from tidegate.net.connection import Connection
    from tidegate.net.limits import ServerLimits

SLICE_BYTES: Final = 16_384
"""The parser gets at most so much at a time: it cannot be stopped, and a read may hold thousands of heads."""
CHUNK_OVERHEAD_BYTES: Final = 16
"""Framing that a chunk may cost before the rest counts as extensions and trailers."""
MOST_PIECES: Final = 4_096
"""Pieces of a body that are kept apart. One of 32 MiB has half as many, unless it comes in small chunks: by
itself a chunk of two bytes would take twenty times its size."""

_METHODS: Final = {
    name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
}


class Phase(Enum):
    """What the next byte from the client belongs to."""

    IDLE = 0
    HEAD = 1
    BODY = 2
    OVER = 3
    """Nothing: no further request is read."""


# By themselves: a look-up on the enum costs as much as a call.
IDLE: Final = Phase.IDLE
HEAD: Final = Phase.HEAD
BODY: Final = Phase.BODY
OVER: Final = Phase.OVER


class RequestReader:
    """Turns the bytes of one connection into exchanges."""

    __slots__ = (
        "_asked",
        "_awaits_continue",
        "_begun_bytes",
        "_body_bytes",
        "_chunked",
        "_chunks",
        "_connection",
        "_content_length",
        "_fed_bytes",
        "_headers",
        "_host",
        "_hosts",
        "_incoming",
        "_joined",
        "_limits",
        "_most_body_bytes",
        "_most_head_bytes",
        "_most_headers",
        "_most_target_bytes",
        "_parser",
        "_path",
        "_pieces",
        "_query",
        "_refusal",
        "_resuming",
        "_said_connection",
        "_slice_bytes",
        "_target",
        "_upgrade",
        "phase",
        "queue",
        "unparsed",
    )

    def __init__(self, connection: Connection, limits: ServerLimits) -> None:
        self.phase = IDLE
        self.queue: deque[Exchange] = deque()
        """Heads read, bodies complete or not; whoever answers them takes them out."""
        self._connection = connection
        self._limits = limits
        self._most_head_bytes = limits.head_bytes
        self._most_headers = limits.headers
        self._most_target_bytes = limits.target_bytes
        self._most_body_bytes = limits.body_bytes
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._incoming: Exchange | None = None  # the one whose body is being read
        self._refusal: RefusedError | None = None  # what a callback raised
        self.unparsed = b""
        """What waits for `read_on`."""
        # Bytes fed since the slice in which this head or body began, that slice, and the one being fed.
        self._fed_bytes = 0
        self._begun_bytes = 0
        self._slice_bytes = 0
        self._pieces: list[bytes] = []
        self._joined = bytearray()  # those before, of a body in very many pieces
        self._body_bytes = 0
        self._resuming = False
        self._host: bytes | None = None  # the last that was good: a client says the same one each time
        self._asked: bytes | None = None  # the last target that was good, for the same reason, and its parts
        self._path = ""
        self._query = ""
        # Of the head being read, then what it said of its body:
        self._target = b""
        self._headers: Headers = []
        self._content_length = 0
        self._chunked = False
        self._chunks = 0
        self._hosts = 0
        self._awaits_continue = False
        self._said_connection = False
        self._upgrade = False

    def feed(self, data: bytes) -> None:
        """Take what the client sent, as far as the queue's bounds allow; the rest waits for `read_on`."""
        if len(data) <= SLICE_BYTES and not self.unparsed:
            self._feed_slice(data)
            return
        data = self.unparsed + data
        self.unparsed = b""
        view = memoryview(data)
        for start in range(0, len(data), SLICE_BYTES):
            if self.crowded:
                self.unparsed = data[start:]
                break
            self._feed_slice(view[start : start + SLICE_BYTES])

    def read_on(self) -> bool:
        """Read more of what is here already; False if there is none."""
        if not self.unparsed:
            return False
        self.feed(b"")
        return True

    @property
    def crowded(self) -> bool:
        """True if more waits behind the active exchange than may."""
        if len(self.queue) < 2:
            return False  # one is bounded by itself
        waiting_bytes = sum(len(exchange.body) for exchange in self.queue) + self._body_bytes
        return len(self.queue) > self._limits.pipelined or waiting_bytes > self._most_body_bytes

    def refuse(self, reason: Reason, detail: str) -> None:
        """Read no further, and have what was being read answered with this."""
        exchange = self._incoming
        if exchange is None:
            exchange = Exchange(self._connection, "", "", "", [], False, False)
            self.queue.append(exchange)
        exchange.refusal = (reason, detail)
        self.stop()

    def stop(self) -> None:
        """Read no further; what is queued stays. Also breaks the cycle with the parser."""
        self.phase = OVER
        self._parser = None
        self._incoming = None
        self.unparsed = b""
        self._pieces = []
        self._joined = bytearray()

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
                if self.phase is not IDLE:
                    self._check_growth()
                break

    def _fail(self, error: Exception) -> None:
        refusal = self._refusal
        if self.phase is OVER:
            self.stop()  # something after the last request: not wanted, and no fault of that one
        elif refusal is not None:
            self.refuse(refusal.reason, refusal.detail)
        elif isinstance(error, httptools.HttpParserCallbackError):
            raise error  # ours
        else:
            self.refuse(Reason.MALFORMED, str(error))

    def _check_growth(self) -> None:
        """Bound what the parser has taken without giving anything back."""
        if self.phase is HEAD:
            if self._fed_bytes > self._most_head_bytes or len(self._headers) > self._most_headers:
                self.refuse(Reason.HEAD_TOO_LARGE, "request head too large")
        elif self.phase is BODY and self._chunked:
            framing_bytes = self._fed_bytes - self._body_bytes - CHUNK_OVERHEAD_BYTES * self._chunks
            if framing_bytes > self._most_head_bytes:
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
        if self.phase is OVER:
            raise RefusedError(Reason.MALFORMED, "a request after the last")
        if not self._resuming:
            self.phase = HEAD
            self._target = b""
            self._headers = []
            self._fed_bytes = 0
            self._begun_bytes = self._slice_bytes

    def on_url(self, url: bytes) -> None:
        if not self._resuming:
            self._target += url
            if len(self._target) > self._most_target_bytes:
                raise self._refused(Reason.HEAD_TOO_LARGE, "request target too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.phase is HEAD:  # else it is a trailer, on which nothing may depend
            self._headers.append((name.lower(), stripped(value)))

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
        self.phase = BODY
        self._fed_bytes = 0

    def on_chunk_header(self) -> None:
        self._chunks += 1

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if self._body_bytes > self._most_body_bytes:
            raise self._refused(Reason.BODY_TOO_LARGE, "request body too large")
        self._pieces.append(data)
        if len(self._pieces) == MOST_PIECES:
            self._joined += b"".join(self._pieces)
            self._pieces.clear()

    def on_message_complete(self) -> None:
        if self._upgrade and self._parser is not None and self._parser.should_upgrade():
            return  # its body is still to come
        exchange = self._incoming
        assert exchange is not None
        if self._body_bytes:
            exchange.body = self._body()
            self._body_bytes = 0
        exchange.whole = True
        self._incoming = None
        self.phase = IDLE if exchange.keep_alive else OVER

    def _body(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        if self._joined:
            joined, self._joined = self._joined, bytearray()
            return bytes(joined + b"".join(pieces))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _refused(self, reason: Reason, detail: str) -> RefusedError:
        self._refusal = RefusedError(reason, detail)
        return self._refusal

    # -- rules of the head ---------------------------------------------------------------------------

    def _exchange(self) -> Exchange:
        """The exchange that the complete head asks for; raises RefusedError."""
        parser = self._parser
        assert parser is not None
        keep_alive = parser.should_keep_alive()
        self._check_head()
        # Only HTTP/1.1 keeps a connection of which nothing is said (RFC 9112, 9.3), and to ask llhttp for the
        # version takes as long as all else that is checked here.
        plain = keep_alive and not self._said_connection
        version = "1.1" if plain else parser.get_http_version()
        old = version != "1.1"
        if old:
            self._check_old_head(version)
        if self._hosts != 1 and not (old and self._hosts == 0):
            raise RefusedError(Reason.MALFORMED, "not exactly one Host")
        method = _METHODS.get(parser.get_method())
        if method is None:
            raise RefusedError(Reason.METHOD, "unsupported method")
        if self._target != self._asked:
            self._path, self._query = split_target(self._target, method)
            # Of any other form it depends on the method whether it is allowed.
            self._asked = self._target if self._target.startswith(b"/") else None
        exchange = Exchange(self._connection, method, self._path, self._query, self._headers, keep_alive, old)
        exchange.awaits_continue = self._awaits_continue and not old
        return exchange

    def _check_head(self) -> None:
        """Note what the fields say of the body and of the connection; refuse what they may not."""
        headers = self._headers
        read_bytes = self._begun_bytes + self._fed_bytes  # at least this head; rarely more than it may have
        too_large = read_bytes > self._most_head_bytes and self._head_too_large()
        if too_large or len(headers) > self._most_headers:
            raise RefusedError(Reason.HEAD_TOO_LARGE, "request head too large")
        self._content_length = self._chunks = self._hosts = 0
        self._chunked = self._upgrade = self._awaits_continue = self._said_connection = False
        for name, value in headers:
            if name == b"host":
                self._hosts += 1
                if value != self._host:
                    check_host(value)
                    self._host = value
            elif name == b"content-length":
                self._content_length = int(value)  # llhttp has seen to it that it is digits, and only once
            elif name == b"transfer-encoding":
                if value.lower() != b"chunked":
                    raise RefusedError(Reason.MALFORMED, "unsupported Transfer-Encoding")
                self._chunked = True
            elif name == b"expect":
                self._awaits_continue = value.lower() == b"100-continue"
                if value and not self._awaits_continue:
                    raise RefusedError(Reason.MALFORMED, "unsupported expectation")
            elif name == b"connection":
                self._said_connection = True
            elif name == b"upgrade":
                self._upgrade = True
        if self._content_length > self._most_body_bytes:
            raise RefusedError(Reason.BODY_TOO_LARGE, "request body too large")

    def _check_old_head(self, version: str) -> None:
        """Refuse what only HTTP/1.1 has, and any other version."""
        if version != "1.0":
            raise RefusedError(Reason.MALFORMED, "unsupported HTTP version")
        if self._chunked:
            raise RefusedError(Reason.MALFORMED, "Transfer-Encoding in HTTP/1.0")

    def _head_too_large(self) -> bool:
        """Counts the head as it is written plainly: the parser does not tell of white space around values."""
        parser = self._parser
        assert parser is not None
        request_line_bytes = len(parser.get_method()) + len(self._target) + len("  HTTP/1.1\r\n")
        lines_bytes = sum(len(name) + len(value) + len(": \r\n") for name, value in self._headers)
        return request_line_bytes + lines_bytes + len("\r\n") > self._most_head_bytes
