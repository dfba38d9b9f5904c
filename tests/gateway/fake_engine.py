"""How does a test play an engine that misbehaves on purpose?

A `FakeEngine` listens on the loopback interface and lets a script answer each POST, byte by byte. It
writes down what it saw: every request, every connection with the instants of its opening and closing,
and the most that ran at once. GETs (probes) are answered by themselves.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

MODEL = "tide-1"
TASK = "fake engine"
"""Name of the tasks that are the test's own, so that a count of the gateway's leaves them out."""

Script = Callable[["Turn"], Awaitable[None]]


class Connection(asyncio.Protocol):
    """One connection of the gateway's, as the engine sees it."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self.opened_at = asyncio.get_running_loop().time()
        self.closed_at: float | None = None
        self.closed = asyncio.Event()
        self.requests = 0
        self._read = b""
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.engine.connections.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed_at = asyncio.get_running_loop().time()
        self.closed.set()
        self._writable.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._read += data
        if self._task is None:
            self._next()

    def _next(self) -> None:
        """Take up the next request, once it is whole."""
        head, blank, rest = self._read.partition(b"\r\n\r\n")
        if not blank:
            return
        seen = Seen(self, head)
        length = int(seen.headers.get("content-length", "0"))
        if len(rest) < length:
            return
        seen.body, self._read = rest[:length], rest[length:]
        self.requests += 1
        self._task = asyncio.get_running_loop().create_task(self._answer(seen), name=TASK)
        self._task.add_done_callback(self._answered)

    async def _answer(self, seen: Seen) -> None:
        await self.engine.answer(Turn(self, seen))

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            if not isinstance(error, ConnectionError):
                self.engine.errors.append(error)
            self.transport.abort()
        elif not self.transport.is_closing():
            self._next()

    async def closed_or_after(self, seconds: float) -> None:
        """Wait so long, or until the gateway hangs up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.closed.wait()

    async def send(self, data: bytes) -> None:
        """Write, and wait while the gateway does not read."""
        if self.transport.is_closing():
            raise ConnectionResetError
        self.transport.write(data)
        await self._writable.wait()


class Seen:
    """One request as it came."""

    def __init__(self, connection: Connection, head: bytes) -> None:
        self.connection = connection
        self.head = head
        line, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = line.split(" ")
        self.headers = {
            name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)
        }
        self.body = b""

    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


class Turn:
    """A script's chance to answer one request."""

    def __init__(self, connection: Connection, request: Seen) -> None:
        self.connection = connection
        self.request = request
        self.number = len(connection.engine.requests)
        """Of the POSTs that this engine has seen, from 1; 0 before it is counted."""

    async def send(self, data: bytes) -> None:
        """Write raw bytes."""
        await self.connection.send(data)

    async def head(self, status: int = 200, *headers: str, chunked: bool = True) -> None:
        """Write a response head; by default that of an event stream, chunked."""
        lines = [f"HTTP/1.1 {status} Whatever", *headers]
        if not any(line.lower().startswith("content-type") for line in headers):
            lines.append("content-type: text/event-stream; charset=utf-8")
        if chunked:
            lines.append("transfer-encoding: chunked")
        await self.send("\r\n".join((*lines, "", "")).encode("latin-1"))

    async def chunk(self, data: bytes) -> None:
        """Write one chunk."""
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        """Write the last chunk."""
        await self.send(b"0\r\n\r\n")

    async def respond(self, status: int, body: bytes, *headers: str) -> None:
        """Write a whole answer."""
        if not any(line.lower().startswith("content-type") for line in headers):
            headers = (*headers, "content-type: application/json")
        lines = [f"HTTP/1.1 {status} Whatever", *headers, f"content-length: {len(body)}", "", ""]
        await self.send("\r\n".join(lines).encode("latin-1") + body)

    async def stall(self) -> None:
        """Say nothing until the gateway hangs up."""
        await self.connection.closed.wait()

    def close(self) -> None:
        """Close in good order (FIN)."""
        self.connection.transport.close()

    def reset(self) -> None:
        """Break off."""
        self.connection.transport.abort()


class FakeEngine:
    """A scriptable engine on a free port. `script` answers POSTs; assign it anew at any time."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Seen] = []
        """POSTs, in the order in which they came."""
        self.connections: list[Connection] = []
        self.running = 0
        self.peak = 0
        """Most POSTs under way at once."""
        self.errors: list[BaseException] = []
        """What scripts raised; each fails the test."""
        self.healthy = True
        self.pages: dict[str, tuple[int, bytes]] = {
            "/v1/models": (
                200,
                json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode(),
            ),
        }
        """Answers to GETs; others are 404, /health is as `healthy` says."""
        self.on_get: Script | None = None
        """Answers GETs instead of `pages` and `healthy`."""
        self.probes = 0
        self.port = 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def open(self) -> int:
        """Connections open now."""
        return sum(connection.closed_at is None for connection in self.connections)

    async def answer(self, turn: Turn) -> None:
        """Let the script answer a POST; answer a GET."""
        request = turn.request
        if request.method != "POST":
            path = request.target.partition("?")[0]
            if path == "/health":
                self.probes += 1
            if self.on_get is not None:
                await self.on_get(turn)
                return
            status, body = self.pages.get(
                path, (200 if self.healthy else 503, b"") if path == "/health" else (404, b"")
            )
            await turn.respond(status, body)
            return
        self.requests.append(request)
        turn.number = len(self.requests)
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await self.script(turn)
        finally:
            self.running -= 1


@asynccontextmanager
async def fake_engine(script: Script, port: int = 0) -> AsyncIterator[FakeEngine]:
    """An engine that runs `script`; at the end every error of a script fails the test."""
    engine = FakeEngine(script)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(engine), "127.0.0.1", port, backlog=2048)
    engine.port = server.sockets[0].getsockname()[1]
    try:
        yield engine
    finally:
        server.close()
        for connection in engine.connections:
            connection.transport.abort()
        for connection in engine.connections:
            await connection.closed.wait()
        await server.wait_closed()
    assert not engine.errors, engine.errors


# -- scripts --------------------------------------------------------------------------------------


def event(payload: dict[str, Any]) -> bytes:
    """One event as vLLM writes it."""
    return b"data: " + json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


def delta(content: str | None = None, finish: str | None = None, **more: Any) -> bytes:
    """A chat chunk with one choice; without content, a role."""
    said = {"role": "assistant", "content": ""} if content is None else {"content": content}
    choice = {"index": 0, "delta": said | more, "logprobs": None, "finish_reason": finish}
    return event(_CHUNK | {"choices": [choice]})


_CHUNK = {"id": "chatcmpl-7f", "object": "chat.completion.chunk", "created": 1764450000, "model": MODEL}
ROLE = delta()
DONE = b"data: [DONE]\n\n"


def usage_of(prompt: int, output: int, cached: int = 0) -> dict[str, Any]:
    """A usage object."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def usage_chunk(prompt: int, output: int, cached: int = 0) -> bytes:
    """The chunk that `include_usage` asks for."""
    return event(_CHUNK | {"choices": [], "usage": usage_of(prompt, output, cached)})


def wants_usage(request: Seen) -> bool:
    """Whether a request asks for the usage chunk, as an engine reads it."""
    return bool((request.json().get("stream_options") or {}).get("include_usage"))


def answer(
    *words: str, prompt: int = 7, output: int | None = None, cached: int = 0, padding: str = ""
) -> Script:
    """Answer as a well-behaved engine: a stream or one object, as the request asks, usage as asked."""
    words = words or ("Hello", " there", ".")
    produced = len(words) if output is None else output

    async def script(turn: Turn) -> None:
        body = turn.request.json()
        if not body.get("stream"):
            await turn.respond(
                200, json.dumps(completion("".join(words) + padding, prompt, produced, cached)).encode()
            )
            return
        await turn.head()
        await turn.chunk(ROLE)
        for word in words:
            await turn.chunk(delta(word))
        await turn.chunk(delta("", finish="stop"))
        if wants_usage(turn.request):
            await turn.chunk(usage_chunk(prompt, produced, cached))
        await turn.chunk(DONE)
        await turn.end()

    return script


def completion(text: str, prompt: int, output: int, cached: int = 0) -> dict[str, Any]:
    """A whole chat answer."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = usage_of(prompt, output, cached)
    return {
        "id": "chatcmpl-7f",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [choice],
    } | {"usage": usage}


def raw(*parts: bytes, then: str = "close") -> Script:
    """Say these bytes, each in a write of its own, then `close`, `reset`, `stall` or `stay`."""

    async def script(turn: Turn) -> None:
        for part in parts:
            await turn.send(part)
            await asyncio.sleep(0)
        if then == "close":
            turn.close()
        elif then == "reset":
            turn.reset()
        elif then == "stall":
            await turn.stall()

    return script


def status(code: int, body: bytes = b'{"error":{"message":"no"}}', *headers: str) -> Script:
    """Answer with a status."""

    async def script(turn: Turn) -> None:
        await turn.respond(code, body, *headers)

    return script


def events(*parts: bytes, then: str = "stall", head: bool = True) -> Script:
    """Begin a stream with these chunks, then `stall`, `close`, `reset` or `end` (without a terminator)."""

    async def script(turn: Turn) -> None:
        if head:
            await turn.head()
        for part in parts:
            await turn.chunk(part)
        if then == "close":
            turn.close()
        elif then == "reset":
            turn.reset()
        elif then == "end":
            await turn.end()
        else:
            await turn.stall()

    return script


def stall() -> Script:
    """Take the request and never say a word."""

    async def script(turn: Turn) -> None:
        await turn.stall()

    return script


def in_turn(*scripts: Script) -> Script:
    """The first request gets the first script, and so on; the last one gets all others."""

    async def script(turn: Turn) -> None:
        await scripts[min(turn.number, len(scripts)) - 1](turn)

    return script
