"""A real server on a loopback port whose answers a test scripts, request by request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvloop

from tidegate.core.reasons import Reason
from tidegate.net.exchange import Exchange
from tidegate.net.server import Server

Headers = list[tuple[bytes, bytes]]
Script = Callable[[Exchange, dict[str, Any]], None]
JSON: Headers = [(b"content-type", b"application/json")]
SSE: Headers = [(b"content-type", b"text/event-stream")]
DONE = b"data: [DONE]\n\n"


def delta(**fields: Any) -> bytes:
    """A chunk with one delta."""
    return event({"choices": [{"index": 0, "delta": fields}], "usage": None})


def usage(prompt: int, output: int, cached: int = 0) -> bytes:
    """The chunk that tells what was used."""
    details = {"cached_tokens": cached}
    tokens = {"prompt_tokens": prompt, "completion_tokens": output, "prompt_tokens_details": details}
    return event({"choices": [], "usage": tokens})


def event(content: object) -> bytes:
    """Any JSON as an event."""
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def stream(*events: bytes) -> Script:
    """Answer with these events, all at once."""

    def script(exchange: Exchange, body: dict[str, Any]) -> None:
        exchange.start(200, SSE)
        exchange.end(b"".join(events))

    return script


def whole(status: int, content: object, *headers: tuple[bytes, bytes]) -> Script:
    """Answer with JSON."""

    def script(exchange: Exchange, body: dict[str, Any]) -> None:
        exchange.respond(status, [*JSON, *headers], json.dumps(content).encode())

    return script


def complete(exchange: Exchange, body: dict[str, Any]) -> None:
    """Answer as an engine that fills `max_tokens`, one token per delta."""
    tokens = body["max_tokens"]
    prompt = len(body["messages"][0]["content"]) // 4
    if body.get("stream"):
        tokens_one_by_one = [delta(content="x")] * tokens
        stream(delta(role="assistant"), *tokens_one_by_one, usage(prompt, tokens), DONE)(exchange, body)
    else:
        spent = {"prompt_tokens": prompt, "completion_tokens": tokens}
        whole(200, {"choices": [{"message": {"content": "x"}}], "usage": spent})(exchange, body)


def silent(exchange: Exchange, body: dict[str, Any]) -> None:
    """Never answer."""


@dataclass
class Scripted:
    """A handler that plays `scripts` in order of arrival, the last one for all that follow."""

    scripts: list[Script]
    models: object = field(default_factory=lambda: {"data": [{"id": "tiny"}, {"id": "other"}]})
    models_status: int = 200
    seen: list[tuple[Exchange, dict[str, Any]]] = field(default_factory=list)
    server: Server | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self.server is not None
        return f"http://127.0.0.1:{self.server.port}"

    def on_head(self, exchange: Exchange) -> None:
        """Nothing is refused at the head."""

    def on_request(self, exchange: Exchange) -> None:
        """Play the next script."""
        if exchange.path == "/v1/models":
            whole(self.models_status, self.models)(exchange, {})
            return
        body = json.loads(exchange.body or b"{}")
        script = self.scripts[min(len(self.seen), len(self.scripts) - 1)]
        self.seen.append((exchange, body))
        script(exchange, body)

    def refusal(self, reason: Reason, detail: str) -> tuple[int, Headers, bytes]:
        """Only a test that sends nonsense sees this."""
        return 400, JSON, detail.encode()


@asynccontextmanager
async def serving(*scripts: Script) -> AsyncIterator[Scripted]:
    """A server that plays these scripts."""
    scripted = Scripted(list(scripts))
    scripted.server = Server(scripted)
    await scripted.server.listen("127.0.0.1", 0)
    try:
        yield scripted
    finally:
        await scripted.server.close()


async def until(condition: Callable[[], bool]) -> None:
    """Return once it holds; the bound of `run` ends a wait in vain."""
    while not condition():  # noqa: ASYNC110 - what is awaited lies on the other side of a socket
        await asyncio.sleep(0.005)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a test body on uvloop, as the bench does; a hang ends as an error."""

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await main

    uvloop.run(bounded())
