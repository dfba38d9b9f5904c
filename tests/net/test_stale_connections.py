"""A reused connection that breaks: was it stale, or had the engine taken the request?"""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.net.peers import Engine, Raw, Run, Sink, both_loops, engine, until
from tidegate.core.messages import FailureKind
from tidegate.net.client import STALE_WITHIN_S, Client
from tidegate.net.limits import ClientLimits

ASK = b"POST / HTTP/1.1\r\nhost: e\r\n\r\n"
ABC = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"


async def asked(client: Client) -> Sink:
    """A call, over."""
    sink = Sink()
    client.send(ASK, b"", sink)
    await until(lambda: sink.over)
    return sink


@pytest.mark.parametrize("dial", ["refused", "late"])
@both_loops
def test_an_engine_that_dies_of_a_request_had_been_sent_it(run: Run, dial: str) -> None:
    """Sent over a reused connection, then no new one to be had: RESET, for the engine may have computed."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1)
    blockers: list[socket.socket] = []

    async def script(peer: Engine, raw: Raw) -> None:
        await peer.request(raw)
        raw.send(ABC)
        await peer.request(raw)
        port = listener.getsockname()[1]
        if dial == "refused":
            listener.close()
        else:
            block(port)

    def block(port: int) -> None:
        """Fill the backlog: further handshakes are never completed."""
        for _ in range(8):
            blocker = socket.socket()
            blocker.setblocking(False)
            blocker.connect_ex(("127.0.0.1", port))
            blockers.append(blocker)

    async def main() -> None:
        peer = Engine(script)
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        limits = ClientLimits(connect_timeout_s=0.2)
        client = Client("127.0.0.1", listener.getsockname()[1], limits)
        first = Sink()
        client.send(ASK, b"", first)
        accepted, _ = await loop.sock_accept(listener)
        reader, writer = await asyncio.open_connection(sock=accepted)
        serving = asyncio.create_task(peer.serve(reader, writer))
        await until(lambda: first.over)

        assert (await asked(client)).kinds == [FailureKind.RESET]
        assert (peer.requests, peer.connections, client.active) == (2, 1, 0)
        # The next one was never sent to anybody.
        assert (await asked(client)).kinds == [FailureKind.CONNECT]
        await serving
        await client.close()

    try:
        run(main())
    finally:
        listener.close()
        for blocker in blockers:
            blocker.close()


@pytest.mark.parametrize(
    ("silent_s", "replayed"),
    [(0.0, True), (STALE_WITHIN_S, True), (STALE_WITHIN_S + 0.1, False), (20.0, False)],
)
@both_loops
def test_only_what_breaks_at_once_was_stale(run: Run, silent_s: float, replayed: bool) -> None:
    """A connection that was silent for long had taken the request: it fails, and is not sent again."""
    hang_up = asyncio.Event()

    async def script(peer: Engine, raw: Raw) -> None:
        await peer.request(raw)
        raw.send(ABC)
        if peer.connections == 1:
            await peer.request(raw)
            await hang_up.wait()

    async def main() -> None:
        async with engine(script) as peer:
            client = Client("127.0.0.1", peer.port)
            await asked(client)
            sent_at = client.now()
            client.now = lambda: sent_at  # the clock stands still, however slow this machine is
            sink = Sink()
            client.send(ASK, b"", sink)
            await until(lambda: peer.requests == 2)
            client.now = lambda: sent_at + silent_s
            hang_up.set()
            await until(lambda: sink.over)

            assert sink.kinds == ([] if replayed else [FailureKind.RESET])
            assert sink.body == (b"abc" if replayed else b"")
            assert (peer.requests, peer.connections) == ((3, 2) if replayed else (2, 1))
            await client.close()

    run(main())
