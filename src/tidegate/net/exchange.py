"""What does a handler see of one request, and how does it answer?

An `Exchange` promises: the answer is well-formed HTTP/1.1 for the version and method it answers;
what is written in one call leaves in one write; and once the client is gone every call is a no-op,
so that a handler that has not noticed yet does no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidegate.core.errors import CallerError
from tidegate.core.reasons import Reason
from tidegate.net.headers import Headers, response_head

if TYPE_CHECKING:
    from tidegate.net.connection import Connection

_BODILESS: Final = frozenset({204, 304})


class Exchange:
    """One request and its response. `path` and `query` are raw ASCII; header names are lower-case."""

    __slots__ = (
        "_chunked",
        "_connection",
        "_flowing",
        "_held",
        "_left_bytes",
        "_old",
        "_silent",
        "awaits_continue",
        "body",
        "client",
        "context",
        "ended",
        "gone",
        "handed",
        "headers",
        "keep_alive",
        "method",
        "on_gone",
        "on_paused",
        "path",
        "paused",
        "query",
        "refusal",
        "started",
        "whole",
    )

    def __init__(
        self,
        connection: Connection,
        method: str,
        path: str,
        query: str,
        headers: Headers,
        keep_alive: bool,
        old: bool,
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.client = connection.client
        self.body = b""
        self.context: object = None
        """The handler's own: what it keeps from `on_head` to `on_request`, for one."""
        self.started = False
        self.ended = False
        self.gone = False
        self.paused = False
        self.on_gone: Callable[[], None] | None = None
        """Called once if the client goes away, or its body is refused, before `end`."""
        self.on_paused: Callable[[bool], None] | None = None
        """True: the client does not keep up, stop producing. False: go on."""
        self._connection = connection
        # The connection's own:
        self.whole = False  # the body is complete
        self.handed = False  # the handler has had its turn with the body
        self.keep_alive = keep_alive
        self.awaits_continue = False
        self.refusal: tuple[Reason, str] | None = None  # what to answer instead of asking the handler
        self._old = old  # HTTP/1.0: no chunks, and a connection kept alive only if so said
        self._held = b""  # the head, until there is something to send with it
        self._chunked = False
        self._flowing = False  # chunks follow a head that has been sent
        self._left_bytes: int | None = None  # of the announced length
        self._silent = False  # HEAD, 204, 304: body bytes are dropped

    def header(self, name: bytes) -> bytes | None:
        """The first value of `name` (lower-case), or None."""
        for known, value in self.headers:
            if known == name:
                return value
        return None

    def respond(self, status: int, headers: Headers, body: bytes, lines: bytes = b"") -> None:
        """Send the whole answer in one write.

        `lines` are further header lines as they are sent, CR LF at the end of each: for what a handler
        says in every answer. They are trusted to be clean and to say nothing of framing.
        """
        if self._begins():
            framing = self._framing(status, len(body))
            rest = b"%b%b%b" % (lines, framing, b"" if self._silent else body)
            answer = response_head(status, headers, rest)
            self.started = True
            self._connection.send(answer)
            self._release()
            self._connection.finished(self.keep_alive)

    def start(self, status: int, headers: Headers, length: int | None = None, lines: bytes = b"") -> None:
        """Begin an answer of `length` body bytes, or unknown. The head leaves with the first write.

        `lines` as of `respond`.
        """
        if self._begins():
            self._held = response_head(status, headers, lines + self._framing(status, length))
            self.started = True
            if not self._silent:
                self._left_bytes = length

    def write(self, data: bytes) -> None:
        """Send a part of the body; with no data, only the head."""
        if self._flowing and data:  # the usual case, once for each token
            self._connection.send(b"%x\r\n%b\r\n" % (len(data), data))
        elif self._writes():
            data = self._framed(data)
            if self._held:
                data = self._held + data
                self._held = b""
                self._flowing = self._chunked
            if data:
                self._connection.send(data)

    def end(self, data: bytes = b"") -> None:
        """Send the last part and complete the answer."""
        if self._writes():
            data = self._held + self._framed(data)
            if self._left_bytes:
                self.abort()
                raise CallerError(f"the answer ended {self._left_bytes} bytes short of its length")
            if self._chunked:
                data += b"0\r\n\r\n"
            if data:
                self._connection.send(data)
            self._release()
            self._connection.finished(self.keep_alive)

    def abort(self) -> None:
        """Break the connection, so that the client sees that the answer is incomplete."""
        if self.ended or self.gone:
            return
        close_delimited = self.started and not self._chunked and self._left_bytes is None and not self._silent
        self._release()
        self._connection.break_off(reset=close_delimited)

    def _begins(self) -> bool:
        """False if nobody is there to be answered."""
        if self.gone:
            self._release()
            return False
        if self.started:
            raise CallerError("an exchange is answered once")
        return True

    def _writes(self) -> bool:
        if self.gone:
            return False
        if not self.started or self.ended:
            raise CallerError("write or end outside of start … end")
        return True

    def _framing(self, status: int, length: int | None) -> bytes:
        """The lines that say where the body ends and what becomes of the connection."""
        bodiless = status in _BODILESS
        self._silent = bodiless or self.method == "HEAD"
        self.keep_alive = self.keep_alive and self.whole and not self._connection.server.draining
        if length is None:
            framing = self._framing_unknown(bodiless)
        else:
            framing = b"" if bodiless else b"content-length: %d\r\n" % length
        if not self.keep_alive:
            return framing + b"connection: close\r\n\r\n"
        if self._old:
            return framing + b"connection: keep-alive\r\n\r\n"
        return framing + b"\r\n"

    def _framing_unknown(self, bodiless: bool) -> bytes:
        if self._old:
            self.keep_alive = self.keep_alive and self._silent
            return b""
        self._chunked = not self._silent
        return b"" if bodiless else b"transfer-encoding: chunked\r\n"

    def _framed(self, data: bytes) -> bytes:
        if self._silent:
            return b""
        if self._chunked:
            return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        if self._left_bytes is not None:
            if len(data) > self._left_bytes:
                raise CallerError("the answer is longer than its length")
            self._left_bytes -= len(data)
        return data

    def _release(self) -> None:
        """Nothing may be said any more; drop what would keep the handler's objects alive."""
        self.started = True
        self.ended = True
        self._flowing = False
        self.on_gone = None
        self.on_paused = None

    # -- told by the connection ---------------------------------------------------------------------

    def lose(self) -> Callable[[], None] | None:
        """The client is gone. Gives back what the handler wants called, once."""
        if self.ended or self.gone:
            return None
        self.gone = True
        self._flowing = False
        callback = self.on_gone
        self.on_gone = None
        self.on_paused = None
        return callback
