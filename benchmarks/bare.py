"""The least that a Python proxy can cost: uvloop, httptools, and nothing else.

`python -m benchmarks.bare PORT ENGINE_PORT...`

It reads a request, decodes which model it names, picks the engine with the fewest calls, passes the answer
on as it arrives and counts its events. No key, no limit, no queue, no deadline, no metric, no error handling:
the distance from here to tidegate is what governing costs, the distance to nginx is what Python costs.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import httptools
import msgspec
import uvloop


class Fields(msgspec.Struct):
    model: str
    stream: bool = False


DECODER = msgspec.json.Decoder(Fields)


class Engine(asyncio.Protocol):
    """One connection to an engine."""

    transport: asyncio.Transport
    client: Client

    def __init__(self, port: int, idle: list[Engine]) -> None:
        self.port = port
        self.idle = idle
        self.events = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def begin(self, client: Client, data: bytes) -> None:
        self.client = client
        self.parser = httptools.HttpResponseParser(self)
        self.done = False
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)
        self.events += data.count(b"\n\n")
        self.client.transport.write(data)
        if self.done:
            LOAD[self.port] -= 1
            self.idle.append(self)

    def on_message_complete(self) -> None:
        self.done = True


class Client(asyncio.Protocol):
    """One connection of a client."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.parser = httptools.HttpRequestParser(self)
        self.body = b""

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        body, self.body = self.body, b""
        DECODER.decode(body)
        port = min(LOAD, key=LOAD.__getitem__)
        LOAD[port] += 1
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: engine\r\ncontent-length: %d\r\n\r\n" % len(body)
        idle = IDLE[port]
        if idle:
            idle.pop().begin(self, head + body)
        else:
            task = asyncio.get_running_loop().create_task(self.dial(port, head + body))
            TASKS.add(task)
            task.add_done_callback(TASKS.discard)

    async def dial(self, port: int, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        _, engine = await loop.create_connection(lambda: Engine(port, IDLE[port]), "127.0.0.1", port)
        engine.begin(self, data)


LOAD: dict[int, int] = {}
IDLE: dict[int, list[Engine]] = {}
TASKS: set[asyncio.Task[None]] = set()


async def main(port: int, engines: list[int]) -> None:
    for engine in engines:
        LOAD[engine], IDLE[engine] = 0, []
    await asyncio.get_running_loop().create_server(Client, "127.0.0.1", port, backlog=4096)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), [int(port) for port in sys.argv[2:]]))
