"""What happens on one client connection?

Exchanges are answered in order, one active at a time. Reading goes on while one is active, so that a
client that leaves is noticed at once; what it may pile up meanwhile is bounded.

Handlers run outside of the parser, so a handler may do anything to the connection. Deadlines are
instants that the server's one sweeper compares: nothing here owns a timer.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, cast

from tidegate.core.reasons import Reason
from tidegate.net.exchange import Exchange
from tidegate.net.reader import HEAD, IDLE, RequestReader

if TYPE_CHECKING:
    from tidegate.net.server import Server

HIGH_WATER_BYTES = 65_536
"""Unsent bytes above which a handler is asked to pause."""
LINGER_S = 2.0
"""How long a client may go on sending after its last answer: closing at once could reset that away."""

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # struct linger: on, 0 seconds


class Connection:
    """The server's side of one client connection: an `asyncio.Protocol` in all but inheritance."""

    __deletable__ = ("_reader", "_transport")  # as mypyc wants it said
    __slots__ = (
        "_active",
        "_advancing",
        "_closing",
        "_head_awaited",
        "_reader",
        "_reading_paused",
        "_sent_bytes",
        "_stall_at",
        "_taken_bytes",
        "_transport",
        "_writing_paused",
        "client",
        "deadline_at",
        "now",
        "server",
        "watched",
    )

    _transport: asyncio.Transport

    def __init__(self, server: Server, client: str) -> None:
        self.client = client
        self.now = server.now
        self.deadline_at = inf
        """When the client must have done what is awaited of it."""
        self.watched = False
        """True while bytes wait for the client to take them."""
        self.server = server
        self._reader = RequestReader(self, server.limits)
        self._active: Exchange | None = None
        self._advancing = False
        self._closing = False
        self._head_awaited = False  # its deadline is set
        self._reading_paused = False
        self._writing_paused = False
        self._sent_bytes = 0
        self._taken_bytes = 0  # by the client, as of the last look
        self._stall_at = inf

    # -- the transport tells -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        if self._closing:
            transport.abort()
            return
        transport.set_write_buffer_limits(HIGH_WATER_BYTES)
        self.deadline_at = self.now() + self.server.idle_timeout_s
        self.server.joined(self)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        reader.feed(data)
        queue = reader.queue
        if self._active is None and len(queue) == 1 and queue[0].whole and not self._writing_paused:
            self._serve(queue.popleft())
        else:
            self._advance()

    def eof_received(self) -> None:
        # A client that will send no more has given up on the answer: inference clients do not half-close.
        self._close_after_flush()
        self._lose()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.outbox.forget(self._transport)
        self._close_after_flush()
        self.server.left(self)
        self._lose()
        del self._reader, self._transport  # each holds the connection: a cycle, if they were kept

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._watch()
        self._tell_paused(True)

    def resume_writing(self) -> None:
        self._writing_paused = False
        self.watched = self._closing
        self._tell_paused(False)
        self._advance()

    # -- exchanges, in turn --------------------------------------------------------------------------

    def _serve(self, exchange: Exchange) -> None:
        """Hand over a request that came whole, with none before or behind it.

        This is the usual case: what `_advance` would do, in one go.
        """
        self._active = exchange
        self.deadline_at = inf
        exchange.handed = True
        handler = self.server.handler
        try:
            handler.on_head(exchange)
            if not (exchange.started or exchange.gone):
                handler.on_request(exchange)
        except Exception as error:
            self._failed(exchange, error)

    def _advance(self) -> None:
        """Take the active exchange as far as it goes, then the next one."""
        if self._advancing:
            return  # a handler answered at once: the loop below is on the stack
        self._advancing = True
        while self._step():
            pass
        self._advancing = False
        reader = self._reader
        if reader.crowded is not self._reading_paused:
            self._pause_reading(not self._reading_paused)
        if reader.phase is HEAD and self._active is None and not self._head_awaited:
            self._head_awaited = True
            self.deadline_at = self.now() + self.server.limits.head_timeout_s

    def _step(self) -> bool:
        """Do the next thing that can be done; False if there is none."""
        exchange = self._active
        if exchange is None:
            if self._writing_paused or self._closing:
                return False
            reader = self._reader
            if not reader.queue:
                return reader.read_on()
            self._active = exchange = reader.queue.popleft()
            if exchange.refusal is None:
                self._open(exchange)
            return True
        if exchange.refusal is not None:
            self._answer_refusal(exchange, exchange.refusal)
            return True
        if exchange.whole and not exchange.handed:
            exchange.handed = True
            self.deadline_at = inf
            if not exchange.started:
                self._call(self.server.handler.on_request, exchange)
            return True
        return not exchange.whole and self._reader.read_on()

    def _open(self, exchange: Exchange) -> None:
        """Show the head to the handler, and have the body sent if it still wants it."""
        exchange.paused = self._writing_paused
        self.deadline_at = inf
        self._call(self.server.handler.on_head, exchange)
        if exchange.whole or exchange.started or exchange.gone:
            return
        self.deadline_at = self.now() + self.server.limits.body_timeout_s
        if exchange.awaits_continue:
            self.send(_CONTINUE)

    def _answer_refusal(self, exchange: Exchange, refusal: tuple[Reason, str]) -> None:
        exchange.refusal = None
        exchange.keep_alive = False
        begun = exchange.started
        self._tell_gone(exchange)
        if begun:
            self.break_off(reset=True)
            return
        status, headers, body = self.server.handler.refusal(*refusal)
        exchange.gone = False
        exchange.respond(status, headers, body)
        exchange.gone = True  # whatever the handler still says is said to nobody

    def _call(self, method: Callable[[Exchange], None], exchange: Exchange) -> None:
        try:
            method(exchange)
        except Exception as error:
            self._failed(exchange, error)

    def _failed(self, exchange: Exchange, error: Exception) -> None:
        """What a handler raises costs its exchange, never the connection's bookkeeping."""
        self.server.report(error, "a handler failed")
        if exchange.started:
            exchange.abort()
        else:
            exchange.keep_alive = False
            exchange.respond(500, [], b"")

    def _pause_reading(self, pause: bool) -> None:
        self._reading_paused = pause
        if self._closing:
            return
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # -- what an exchange asks for --------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Write, in one go."""
        self._sent_bytes += len(data)
        self.server.outbox.write(self._transport, data)

    def finished(self, keep_alive: bool) -> None:
        """The active exchange has been answered."""
        exchange = self._active
        self._active = None
        if keep_alive and not self.server.draining:
            self._head_awaited = False
            self.deadline_at = self.now() + self.server.idle_timeout_s
            reader = self._reader
            if reader.queue or reader.unparsed or reader.phase is not IDLE:
                self._advance()
        else:
            self._linger(more_comes=exchange is not None and not exchange.whole)

    def break_off(self, reset: bool) -> None:
        """Close, once what was written is sent; reset where an end of file would look like the answer's."""
        self._active = None
        if reset:
            self._close_after_flush()
            raw = self._transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._transport.abort()
        else:
            self._linger(more_comes=False)

    # -- endings -------------------------------------------------------------------------------------

    def expire(self) -> None:
        """The deadline has passed: say so if a request is half here, else just close."""
        if self._closing:
            self._transport.abort()
        elif self._reader.phase is IDLE:
            self.close_idle()
        else:
            self.deadline_at = inf
            self._reader.refuse(Reason.SLOW_REQUEST, "the request did not arrive in time")
            self._advance()

    def check_taken(self, now: float) -> None:
        """Cut the client off if it has taken none of the waiting bytes for the write timeout."""
        taken_bytes = self._sent_bytes - self._transport.get_write_buffer_size()
        if taken_bytes != self._taken_bytes:
            self._taken_bytes = taken_bytes
            self._stall_at = now + self.server.limits.write_timeout_s
        elif now >= self._stall_at:
            self.abort()

    def close_idle(self) -> None:
        """Close if no request is here, in whole or in part."""
        if self._active is None and self._reader.phase is IDLE and not self._reader.queue:
            self._close_after_flush()
            self._transport.close()

    def disown(self) -> None:
        """The server was closed while the connection came to be; the loop may not tell of its end."""
        self._closing = True
        self._reader.stop()
        self.server.left(self)

    def abort(self) -> None:
        """Close at once; an exchange under way is told."""
        self._close_after_flush()
        self._transport.abort()
        self._lose()

    def _close_after_flush(self) -> None:
        """No further request is read or begun; what was written may still be sent."""
        self.server.outbox.flush(self._transport)
        self._closing = True
        self.deadline_at = inf
        self._reader.stop()
        self._reader.queue.clear()
        self._watch()

    def _linger(self, more_comes: bool) -> None:
        """Say no more, but let the client take it and close first."""
        self._close_after_flush()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        elif not more_comes:
            self._transport.close()  # TLS says goodbye only when it closes for good
            return
        self.deadline_at = self.now() + LINGER_S

    def _watch(self) -> None:
        if not self.watched:
            self.watched = True
            self._stall_at = self.now() + self.server.limits.write_timeout_s

    def _lose(self) -> None:
        exchange = self._active
        self._active = None
        if exchange is not None:
            self._tell_gone(exchange)

    def _tell_gone(self, exchange: Exchange) -> None:
        callback = exchange.lose()
        if callback is not None:
            try:
                callback()
            except Exception as error:
                self.server.report(error, "on_gone failed")

    def _tell_paused(self, paused: bool) -> None:
        exchange = self._active
        if exchange is None:
            return
        exchange.paused = paused
        if exchange.on_paused is not None:
            try:
                exchange.on_paused(paused)
            except Exception as error:
                self.server.report(error, "on_paused failed")
