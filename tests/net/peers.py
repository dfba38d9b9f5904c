"""Peers for the net tests: a handler that records, raw clients, and an engine that says what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from tidegate.core.messages import FailureKind
from tidegate.core.reasons import ANSWERS, Reason
from tidegate.net.exchange import Exchange
from tidegate.net.headers import Headers
from tidegate.net.limits import ServerLimits
from tidegate.net.server import Server

PATIENCE_S = 20.0
"""Upper bound that no test reaches unless something hangs."""

Run = Callable[[Coroutine[Any, Any, None]], None]


def _on_asyncio(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(_bounded(main))


def _on_uvloop(main: Coroutine[Any, Any, None]) -> None:
    uvloop.run(_bounded(main))


async def _bounded(main: Coroutine[Any, Any, None]) -> None:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
    async with asyncio.timeout(PATIENCE_S):
        await main
    assert not problems, problems


both_loops = pytest.mark.parametrize("run", [_on_asyncio, _on_uvloop], ids=["asyncio", "uvloop"])


class Recorder:
    """Answers /echo with what came, /refuse at the head; holds everything else for the test to answer."""

    def __init__(self) -> None:
        self.heads: list[Exchange] = []
        self.requests: list[Exchange] = []
        self.held: list[Exchange] = []
        self.gone: list[Exchange] = []
        self.pauses: list[bool] = []

    def on_head(self, exchange: Exchange) -> None:
        self.heads.append(exchange)
        exchange.on_gone = lambda: self.gone.append(exchange)
        exchange.on_paused = self.pauses.append
        if exchange.path == "/refuse":
            exchange.respond(401, [(b"www-authenticate", b"Bearer")], b"no")

    def on_request(self, exchange: Exchange) -> None:
        self.requests.append(exchange)
        if exchange.path == "/echo":
            line = f"{exchange.method} {exchange.path}?{exchange.query} ".encode()
            exchange.respond(200, [(b"content-type", b"text/plain")], line + exchange.body)
        else:
            self.held.append(exchange)

    def refusal(self, reason: Reason, detail: str) -> tuple[int, Headers, bytes]:
        return ANSWERS[reason].status, [(b"content-type", b"text/plain")], reason.value.encode()


@asynccontextmanager
async def serving(handler: Recorder, limits: ServerLimits | None = None) -> AsyncIterator[Server]:
    """A server on a free port of the loopback interface."""
    server = Server(handler, limits or ServerLimits())
    await server.listen("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.close()
        assert server.connections == 0


class Raw:
    """A client that sends bytes and sees bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def head(self) -> bytes:
        """One response head."""
        return await self.reader.readuntil(b"\r\n\r\n")

    async def answer(self) -> tuple[int, bytes]:
        """Status and body of one response with a content-length."""
        head = await self.head()
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return int(head.split()[1]), await self.reader.readexactly(length)

    async def rest(self) -> bytes:
        """Everything up to the end."""
        return await self.reader.read()

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def connected(port: int, buffer_bytes: int = 2**16) -> AsyncIterator[Raw]:
    """A raw connection to a port of the loopback interface."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=buffer_bytes)
    try:
        yield Raw(reader, writer)
    finally:
        writer.transport.abort()


async def told(port: int, data: bytes) -> bytes:
    """All that a server says to `data` until it closes."""
    async with connected(port) as raw:
        raw.send(data)
        return await raw.rest()


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that must become true."""
    while not condition():  # noqa: ASYNC110 - there is nothing to wait on but the peer
        await asyncio.sleep(0.005)


class Engine:
    """A server whose every connection runs `script`, with a count of connections and the bytes it saw."""

    def __init__(self, script: Callable[[Engine, Raw], Awaitable[None]]) -> None:
        self._script = script
        self.connections = 0
        self.requests = 0
        self.seen = b""
        self.port = 0

    async def request(self, raw: Raw) -> bytes:
        """Read one request, body included; empty at the end of the connection."""
        try:
            head = await raw.head()
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        length = b"0"
        if b"content-length: " in head:
            length = head.split(b"content-length: ")[1].split(b"\r\n")[0]
        request = head + await raw.reader.readexactly(int(length))
        self.requests += 1
        self.seen += request
        return request

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        try:
            await self._script(self, Raw(reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def engine(script: Callable[[Engine, Raw], Awaitable[None]]) -> AsyncIterator[Engine]:
    """An engine on a free port of the loopback interface."""
    peer = Engine(script)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(peer.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Sink:
    """Writes down what a call tells it."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Headers = []
        self.reads: list[bytes] = []
        self.ends = 0
        self.failures: list[tuple[FailureKind, str]] = []

    @property
    def body(self) -> bytes:
        return b"".join(self.reads)

    @property
    def over(self) -> bool:
        return self.ends > 0 or bool(self.failures)

    @property
    def kinds(self) -> list[FailureKind]:
        return [kind for kind, _ in self.failures]

    def on_head(self, status: int, headers: Headers) -> None:
        assert not self.over
        assert not self.status
        self.status = status
        self.headers = headers

    def on_body(self, data: bytes) -> None:
        assert not self.over
        assert self.status
        assert data
        self.reads.append(data)

    def on_end(self) -> None:
        assert not self.over
        assert self.status
        self.ends += 1

    def on_failure(self, kind: FailureKind, detail: str) -> None:
        assert not self.over
        self.failures.append((kind, detail))
