"""How does a test speak to the gateway, down to the byte?

`ask` sends one request over a connection of its own. `Talk` is a connection on which a test writes
what it likes and reads answers as they come.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

CHAT = "/v1/chat/completions"


class Reply(NamedTuple):
    """One answer; names of headers are lower-case."""

    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool = True
    """False if the connection broke before the answer's framing said that it ends."""

    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error object, in OpenAI's form."""
        found: dict[str, Any] = self.json()["error"]
        return found

    @property
    def data(self) -> list[Any]:
        """What the `data:` lines of a stream hold; `[DONE]` as text."""
        lines = [line[5:].strip() for line in self.body.splitlines() if line.startswith(b"data:")]
        return [line.decode() if line == b"[DONE]" else json.loads(line) for line in lines]

    @property
    def text(self) -> str:
        """What the model said in a stream of chat chunks."""
        return text_of(self.data)


def text_of(data: list[Any]) -> str:
    """The content of chat chunks, joined."""
    chunks = [chunk for chunk in data if isinstance(chunk, dict)]
    choices = [choice for chunk in chunks for choice in chunk.get("choices", [])]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


class Talk:
    """One connection to the gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        """Write raw bytes."""
        self.writer.write(data)

    def request(
        self,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        method: str | None = None,
    ) -> None:
        """Write one request; `body` is sent as JSON unless it is bytes."""
        self.send(written(path, body, headers, method))

    async def head(self) -> Reply:
        """Read a response head."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
        pairs = [line.partition(":") for line in lines[1:]]
        return Reply(
            int(lines[0].split(" ")[1]), {name.lower(): value.strip() for name, _, value in pairs}, b""
        )

    async def chunk(self) -> bytes:
        """Read one chunk of a chunked answer; empty at its end. IncompleteReadError if it breaks off."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        data = await self.reader.readexactly(size)
        await self.reader.readexactly(2)
        return data

    async def reply(self, method: str = "POST") -> Reply:
        """Read a whole answer."""
        head = await self.head()
        body, whole = b"", True
        try:
            if method == "HEAD" or head.status in (204, 304):
                pass
            elif head.headers.get("transfer-encoding") == "chunked":
                while data := await self.chunk():
                    body += data
            elif "content-length" in head.headers:
                body = await self.reader.readexactly(int(head.headers["content-length"]))
            else:
                body = await self.reader.read()
        except asyncio.IncompleteReadError as error:
            body, whole = body + error.partial, False
        except ConnectionError:
            whole = False
        return head._replace(body=body, whole=whole)

    async def closed(self) -> bool:
        """Wait for the end of the connection; True if nothing came before it."""
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True

    def hang_up(self) -> None:
        """Break the connection."""
        self.writer.transport.abort()


def written(
    path: str, body: Any = None, headers: Mapping[str, str] | None = None, method: str | None = None
) -> bytes:
    """One request as bytes."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    method = method or ("GET" if body is None else "POST")
    lines = [f"{method} {path} HTTP/1.1"]
    fields = {"host": "gateway.test"} | ({} if body is None else {"content-length": str(len(data))})
    lines += [f"{name}: {value}" for name, value in (fields | dict(headers or {})).items()]
    return "\r\n".join((*lines, "", "")).encode("latin-1") + data


@asynccontextmanager
async def talking(port: int, buffer_bytes: int = 2**16) -> AsyncIterator[Talk]:
    """A connection, closed at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=buffer_bytes)
    try:
        yield Talk(reader, writer)
    finally:
        writer.transport.abort()


async def ask(
    port: int,
    path: str = CHAT,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    method: str | None = None,
) -> Reply:
    """One request on a connection of its own."""
    async with talking(port) as talk:
        talk.request(path, body, headers, method)
        return await talk.reply(method or "POST")


async def ask_raw(port: int, data: bytes) -> Reply:
    """What is answered to raw bytes."""
    async with talking(port) as talk:
        talk.send(data)
        return await talk.reply()


def chat(stream: bool = True, content: str = "Hello?", **more: Any) -> dict[str, Any]:
    """A chat request for the usual model."""
    return {"model": "tide-1", "messages": [{"role": "user", "content": content}], "stream": stream} | more
