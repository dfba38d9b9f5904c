"""Who may connect, and when must a client be let go?

The server accepts by itself instead of `create_server`: uvloop accepts one connection per loop turn
there, which under load holds newcomers for seconds. One sweeper looks after every deadline.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from functools import partial
from ssl import SSLContext
from typing import Protocol, cast

from tidegate.core.reasons import Reason
from tidegate.net.connection import Connection
from tidegate.net.exchange import Exchange
from tidegate.net.limits import SERVER_LIMITS, ServerLimits
from tidegate.net.outbox import Outbox

BACKLOG = 8192
SWEEP_S = 0.25
ACCEPTS_PER_TURN = 256
EXHAUSTED_PAUSE_S = 0.1
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Handler(Protocol):
    """What is done with requests. Called synchronously; may answer at once or later."""

    def on_head(self, exchange: Exchange) -> None:
        """The head is complete, the body not yet read. An answer now means that it will not be."""

    def on_request(self, exchange: Exchange) -> None:
        """The body is complete. Not called for an exchange that was answered or lost before."""

    def refusal(self, reason: Reason, detail: str) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Status, headers and body with which a refusal by this layer is said."""


class Server:
    """Listens on one address and serves HTTP/1.1 (and 1.0) there."""

    def __init__(
        self, handler: Handler, limits: ServerLimits = SERVER_LIMITS, ssl: SSLContext | None = None
    ) -> None:
        self.handler = handler
        self.limits = limits
        self.idle_timeout_s = limits.idle_timeout_s
        self.port = 0
        self.draining = False
        """True once no further requests are wanted."""
        self._ssl = ssl
        self._socket: socket.socket | None = None
        self._open: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._all_left = asyncio.Event()

    @property
    def connections(self) -> int:
        """Client connections open now."""
        return len(self._open)

    async def listen(self, host: str, port: int) -> None:
        """Begin to accept; port 0 takes a free one. Raises OSError if the address cannot be had."""
        self._loop = asyncio.get_running_loop()
        self.outbox = Outbox(self._loop)
        self.now: Callable[[], float] = self._loop.time
        infos = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = infos[0]
        self._socket = _listening_socket(family, address)
        self.port = self._socket.getsockname()[1]
        self._loop.add_reader(self._socket, self._accept)
        self._timer = self._loop.call_later(SWEEP_S, self._sweep)

    def stop_accepting(self) -> None:
        """Take no new connection and close those without a request; the others close after their answer."""
        self.draining = True
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        for connection in tuple(self._open):
            connection.close_idle()

    async def close(self) -> None:
        """Stop, and abort what is open."""
        self.stop_accepting()
        for task in tuple(self._opening):
            task.cancel()
        for connection in tuple(self._open):
            connection.abort()
        while self._open or self._opening:
            self._all_left.clear()
            await self._all_left.wait()
        if self._timer is not None:
            self._timer.cancel()

    # -- accepting -----------------------------------------------------------------------------------

    def _accept(self) -> None:
        listening = self._socket
        for _ in range(ACCEPTS_PER_TURN):
            if listening is None:
                return
            try:
                accepted, address = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    # The socket stays readable: without a pause this would spin until a descriptor is free.
                    self._loop.remove_reader(listening)
                    self._loop.call_later(EXHAUSTED_PAUSE_S, self._accept_again)
                    return
                continue  # that one client is gone already
            task = self._loop.create_task(self._take(accepted, address))
            self._opening.add(task)
            task.add_done_callback(partial(self._opened, accepted))

    def _accept_again(self) -> None:
        if self._socket is not None:
            self._loop.add_reader(self._socket, self._accept)

    async def _take(self, accepted: socket.socket, address: tuple[object, ...]) -> None:
        accepted.setblocking(False)
        connection = Connection(self, str(address[0]) if address else "")
        handshake_s = None if self._ssl is None else self.limits.head_timeout_s
        try:
            await self._loop.connect_accepted_socket(
                lambda: cast(asyncio.Protocol, connection),
                accepted,
                ssl=self._ssl,
                ssl_handshake_timeout=handshake_s,
            )
        except OSError:  # TLS failures are OSErrors too: nobody was served, nobody is told
            accepted.close()
        except asyncio.CancelledError:
            connection.disown()
            raise

    def _opened(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        self._opening.discard(task)
        if task.cancelled():
            accepted.close()  # perhaps before anything of the task had run
        elif (error := task.exception()) is not None:
            self.report(error, "a connection could not be taken")
        self._all_left.set()

    # -- told by connections -------------------------------------------------------------------------

    def joined(self, connection: Connection) -> None:
        """A connection is open."""
        self._open.add(connection)

    def left(self, connection: Connection) -> None:
        """A connection is closed."""
        self._open.discard(connection)
        self._all_left.set()

    def report(self, error: BaseException, message: str) -> None:
        """Hand an error that nobody awaits to the loop's exception handler."""
        self._loop.call_exception_handler({"message": message, "exception": error})

    def _sweep(self) -> None:
        self._timer = self._loop.call_later(SWEEP_S, self._sweep)  # first: a handler may raise
        now = self.now()
        late = [c for c in self._open if c.deadline_at <= now]
        watched = [c for c in self._open if c.watched]
        for connection in late:
            connection.expire()
        for connection in watched:
            connection.check_taken(now)


def _listening_socket(family: int, address: object) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit it
        listening.bind(address)  # type: ignore[arg-type]
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
