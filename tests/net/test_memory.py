"""Is everything freed by the time it is over, without waiting for the garbage collector?

The gateway freezes and all but stops the collector, so a cycle per request would be a leak.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter

from tests.net.peers import Recorder, Run, Sink, both_loops, connected, serving, until
from tidegate.net.call import Call
from tidegate.net.client import Client
from tidegate.net.connection import Connection
from tidegate.net.exchange import Exchange
from tidegate.net.reader import RequestReader
from tidegate.net.upstream import UpstreamConnection

OURS = (Call, Connection, Exchange, RequestReader, UpstreamConnection)


class Proxying(Recorder):
    """Passes everything to /echo on the same server; keeps nothing."""

    client: Client

    def on_head(self, exchange: Exchange) -> None:
        pass

    def on_request(self, exchange: Exchange) -> None:
        if exchange.path == "/echo":
            exchange.respond(200, [], exchange.body)
            return
        sink = Passing(exchange)
        sink.call = self.client.send(b"GET /echo HTTP/1.1\r\nhost: a\r\n\r\n", b"", sink)
        exchange.on_gone = sink.call.cancel


class Passing(Sink):
    """Answers its exchange with what it hears, and holds its call, as a gateway's would."""

    call: Call

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self.exchange = exchange

    def on_end(self) -> None:
        super().on_end()
        self.exchange.respond(self.status, [], self.body)


@both_loops
def test_nothing_is_left_for_the_collector(run: Run) -> None:
    """Requests, answers, refusals and departures leave no object of ours behind once they are over."""

    async def one(port: int, request: bytes) -> None:
        async with connected(port) as raw:
            raw.send(request)
            await raw.head()

    async def main() -> None:
        handler = Proxying()
        async with serving(handler) as server:
            handler.client = Client("127.0.0.1", server.port)
            for request in (b"GET /pass HTTP/1.1\r\nHost: a\r\n\r\n" * 3, b"nonsense\r\n\r\n"):
                await asyncio.gather(*(one(server.port, request) for _ in range(20)))
            await until(lambda: server.connections == handler.client.idle)
            await handler.client.close()
        await asyncio.sleep(0)
        left = Counter(type(thing).__name__ for thing in gc.get_objects() if isinstance(thing, OURS))
        assert not left

    gc.collect()
    gc.disable()
    try:
        run(main())
    finally:
        gc.enable()
