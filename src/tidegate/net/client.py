"""How are an engine's connections shared, and when is one used again?

A `Client` keeps the connections of one origin. The most recently used idle one is taken first; a
reused one that turns out dead before any byte of an answer is replaced once, silently, because an
engine may close it at the very moment of sending. Nothing else is ever sent twice, and CONNECT is said
only of a request that no engine can have seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from ssl import SSLContext
from typing import Final, NamedTuple, cast

from tidegate.core.errors import UpstreamError
from tidegate.core.messages import FailureKind
from tidegate.net.call import Call, ResponseSink
from tidegate.net.headers import Headers
from tidegate.net.limits import CLIENT_LIMITS, ClientLimits
from tidegate.net.outbox import Outbox
from tidegate.net.upstream import UpstreamConnection

__all__ = ["Call", "Client", "Response", "ResponseSink"]

SWEEP_S = 0.25
STALE_WITHIN_S: Final = 1.0
"""A reused connection that breaks within this of sending was stale: the engine had closed it, and its reset
answers our first segment, a round trip later; 1 s leaves room for a network far away and for two segments
lost (Linux sends again after 0.2 s at least, then after twice that). One that breaks later had taken the
request, which may be what broke it."""
RESPONSE_BYTES = 32 * 2**20
"""What `request` takes of an answer at most."""


class Response(NamedTuple):
    """A whole answer."""

    status: int
    headers: Headers
    body: bytes


class Client:
    """Calls to one origin over pooled connections."""

    def __init__(
        self,
        host: str,
        port: int,
        limits: ClientLimits = CLIENT_LIMITS,
        ssl: SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.limits = limits
        self._idle_timeout_s = limits.idle_timeout_s
        self._max_idle = limits.max_idle
        self._ssl = ssl
        self._server_hostname = server_hostname if ssl is None or server_hostname else host
        self.calls: set[Call] = set()
        """Those under way; a call takes itself out."""
        self._idle: list[UpstreamConnection] = []  # the most recently used last
        self._open: set[UpstreamConnection] = set()
        self._dialling: set[asyncio.Task[None]] = set()
        self._left = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def active(self) -> int:
        """Calls under way, those that still wait for a connection included."""
        return len(self.calls)

    @property
    def idle(self) -> int:
        """Connections that wait to be used again."""
        return len(self._idle)

    def send(self, head: bytes, body: bytes, sink: ResponseSink) -> Call:
        """Send a request; `head` is complete, with its blank line. The sink is told everything else."""
        call = Call(self, head, body, sink)
        self.calls.add(call)
        if self._timer is None:
            self._start()
        idle, now = self._idle, self.now()
        while idle:
            connection = idle.pop()
            if connection.usable and now - connection.idle_since < self._idle_timeout_s:
                call.stale_until = now + STALE_WITHIN_S
                call.connection = connection
                connection.begin(call)
                return call
            connection.drop()
        self.dial(call)
        return call

    async def request(
        self,
        method: str,
        path: str,
        headers: Sequence[tuple[bytes, bytes]] = (),
        body: bytes = b"",
        timeout_s: float = 5.0,
    ) -> Response:
        """A whole answer, for probes and tools. Raises UpstreamError for any failure, lateness included."""
        answer = _Answer(asyncio.get_running_loop().create_future())
        call = self.send(self._head(method, path, headers, len(body)), body, answer)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer.future
        except TimeoutError:
            raise UpstreamError(f"no complete answer within {timeout_s} s") from None
        finally:
            call.cancel()

    async def close(self) -> None:
        """Fail what is under way and close every connection."""
        for call in tuple(self.calls):
            call.fail(FailureKind.RESET, "the client was closed")
        for task in tuple(self._dialling):
            task.cancel()
        self._idle.clear()
        for connection in tuple(self._open):
            connection.drop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._dialling:
            await asyncio.wait(self._dialling)
        while self._open:
            self._left.clear()
            await self._left.wait()

    def _head(self, method: str, path: str, headers: Sequence[tuple[bytes, bytes]], length: int) -> bytes:
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [f"{method} {path} HTTP/1.1\r\nhost: {host}:{self.port}\r\n".encode("ascii")]
        lines += [b"%b: %b\r\n" % header for header in headers]
        if length or method not in ("GET", "HEAD"):
            lines.append(b"content-length: %d\r\n" % length)
        return b"".join(lines) + b"\r\n"

    # -- connections ---------------------------------------------------------------------------------

    def dial(self, call: Call) -> None:
        """Carry a call over a new connection."""
        task = self._loop.create_task(self._connect(call))
        call.dialling = task
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    async def _connect(self, call: Call) -> None:
        connection = UpstreamConnection(self)
        failure = ""
        try:
            async with asyncio.timeout(self.limits.connect_timeout_s):
                await self._loop.create_connection(
                    lambda: cast(asyncio.Protocol, connection),
                    self.host,
                    self.port,
                    ssl=self._ssl,
                    server_hostname=self._server_hostname,
                )
        except TimeoutError:
            failure = f"no connection within {self.limits.connect_timeout_s} s"
        except (
            OSError,
            UnicodeError,
        ) as error:  # TLS failures, and names that the name service has no form for
            failure = str(error) or type(error).__name__
        except asyncio.CancelledError:
            connection.drop()
            self.left(connection)  # uvloop does not say so of a connection whose making was cancelled
            raise
        call.dialling = None
        if failure:
            connection.drop()
            self.left(connection)
            call.fail(FailureKind.RESET if call.sent else FailureKind.CONNECT, failure)
        else:
            connection.carry(call)

    def joined(self, connection: UpstreamConnection) -> None:
        """A connection is open."""
        self._open.add(connection)

    def left(self, connection: UpstreamConnection) -> None:
        """A connection is closed, or will not be used again."""
        self._open.discard(connection)
        self._left.set()

    def give_back(self, connection: UpstreamConnection) -> None:
        """A connection is free for the next call."""
        if len(self._idle) < self._max_idle:
            connection.idle_since = self.now()
            self._idle.append(connection)
        else:
            connection.drop()

    def withdraw(self, connection: UpstreamConnection) -> None:
        """An idle connection has been closed by the engine."""
        if connection in self._idle:
            self._idle.remove(connection)

    def _start(self) -> None:
        """Sweep from now on. The loop is known only when the first call is sent."""
        self._loop = asyncio.get_running_loop()
        self.outbox = Outbox(self._loop)
        self.now: Callable[[], float] = self._loop.time
        self._timer = self._loop.call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        busy = self.calls or self._idle
        self._timer = self._loop.call_later(SWEEP_S, self._sweep) if busy else None  # a sink may raise
        now = self.now()
        oldest_since = now - self._idle_timeout_s
        while self._idle and self._idle[0].idle_since <= oldest_since:
            self._idle.pop(0).drop()
        late = []
        for call in self.calls:
            if call.heard:  # noted at each read instead of the time: reads are many, sweeps are few
                call.heard = False
                call.deadline_at = now + call.patience_s
            elif call.deadline_at <= now:
                late.append(call)
        for call in late:
            call.fail(FailureKind.STALLED, "no byte in time")


class _Answer:
    """Collects a whole answer for `Client.request`."""

    def __init__(self, future: asyncio.Future[Response]) -> None:
        self.future = future
        self._status = 0
        self._headers: Headers = []
        self._body = bytearray()

    def on_head(self, status: int, headers: Headers) -> None:
        self._status = status
        self._headers = headers

    def on_body(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > RESPONSE_BYTES and not self.future.done():
            self.future.set_exception(UpstreamError(f"the answer is longer than {RESPONSE_BYTES} bytes"))

    def on_end(self) -> None:
        if not self.future.done():
            self.future.set_result(Response(self._status, self._headers, bytes(self._body)))

    def on_failure(self, kind: FailureKind, detail: str) -> None:
        if not self.future.done():
            self.future.set_exception(UpstreamError(f"{kind.value}: {detail}"))
