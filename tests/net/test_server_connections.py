"""How long is a client waited for, and what happens when it leaves, stops reading or never comes?

Deadlines are set to fractions of a second; nothing here depends on how fast anything is.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable

import pytest

from tests.net.peers import Raw, Recorder, Run, both_loops, connected, serving, until
from tidegate.net.exchange import Exchange
from tidegate.net.limits import ServerLimits
from tidegate.net.server import Server

HOLD = b"GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"
ECHO = b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"
ANSWER_BYTES = 64 * 2**20
"""More than the kernel buffers on the way."""
SLOW = ServerLimits(head_timeout_s=0.1, body_timeout_s=0.1, idle_timeout_s=0.5, write_timeout_s=0.1)
"""Idle for longer, because that deadline already runs before a test's first byte is there."""


@pytest.mark.parametrize(
    "sent, status",
    [
        (b"", None),
        (b"\r\n", None),
        (b"G", 408),
        (b"GET /echo HTTP/1.1\r\nHost:", 408),
        (b"POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab", 408),
        (b"POST /hold HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab", 408),
        (ECHO, 200),
        (ECHO + b"G", 200),
    ],
)
@both_loops
def test_half_a_request_is_not_waited_for(run: Run, sent: bytes, status: int | None) -> None:
    """Head and body have deadlines, which are answered with 408; an idle client is just closed."""

    async def main() -> None:
        async with serving(Recorder(), SLOW) as server, connected(server.port) as raw:
            raw.send(sent)
            if status is not None:
                assert (await raw.answer())[0] == status
            if sent == ECHO + b"G":
                assert (await raw.answer())[0] == 408
            assert await raw.rest() == b""

    run(main())


@both_loops
def test_a_trickle_does_not_extend_the_deadline(run: Run) -> None:
    """A client that sends its head byte by byte for ever gets 408 all the same, and its neighbours none."""

    async def main() -> None:
        handler = Recorder()
        async with (
            serving(handler, SLOW) as server,
            connected(server.port) as raw,
            connected(server.port) as neighbour,
        ):
            neighbour.send(HOLD)
            raw.send(b"GET /echo HTTP/1.1\r\nX: ")
            answer = asyncio.ensure_future(raw.answer())
            while not answer.done():
                raw.send(b"y")
                await asyncio.sleep(0.02)
            assert (await answer)[0] == 408
            handler.held[0].respond(200, [], b"")
            assert (await neighbour.answer())[0] == 200

    run(main())


@both_loops
def test_an_active_request_has_no_deadline_here(run: Run) -> None:
    """While the handler takes its time, neither idle nor head deadline runs, even with half a head behind."""

    async def main() -> None:
        handler = Recorder()
        async with serving(handler, SLOW) as server, connected(server.port) as raw:
            raw.send(HOLD + b"GET /ec")
            await asyncio.sleep(0.3)
            assert not handler.gone
            handler.held[0].respond(200, [], b"late")
            raw.send(b"ho HTTP/1.1\r\nHost: a\r\n\r\n")
            assert await raw.answer() == (200, b"late")
            assert await raw.answer() == (200, b"GET /echo? ")

    run(main())


@pytest.mark.parametrize("leave", [Raw.close, Raw.reset, lambda raw: raw.writer.write_eof()])
@pytest.mark.parametrize("begun", [False, True])
@both_loops
def test_a_client_that_leaves_is_noticed_while_nothing_is_written(
    run: Run, leave: Callable[[Raw], None], begun: bool
) -> None:
    """FIN, reset and half-close end the active exchange once, without waiting for a write to fail."""

    async def main() -> None:
        handler = Recorder()
        async with serving(handler) as server, connected(server.port) as raw:
            raw.send(HOLD)
            await until(lambda: handler.held)
            exchange = handler.held[0]
            if begun:
                exchange.start(200, [])
                exchange.write(b"data: 1\n\n")
                await raw.head()
            leave(raw)
            await until(lambda: handler.gone)
            assert exchange.gone
            _no_call_harms(exchange)
            await until(lambda: server.connections == 0)
            assert handler.gone == [exchange]

    run(main())


def _no_call_harms(exchange: Exchange) -> None:
    if not exchange.started:
        exchange.start(200, [])
    exchange.write(b"more")
    exchange.end()
    exchange.abort()


@both_loops
def test_a_client_that_leaves_with_requests_behind(run: Run) -> None:
    """Only the active exchange is told; those behind it were never shown to the handler."""

    async def main() -> None:
        handler = Recorder()
        async with serving(handler) as server, connected(server.port) as raw:
            raw.send(HOLD * 5)
            await until(lambda: handler.held)
            raw.close()
            await until(lambda: server.connections == 0)
            assert handler.gone == handler.heads == handler.held[:1]

    run(main())


@both_loops
def test_a_client_that_leaves_in_its_body(run: Run) -> None:
    """An exchange whose head was shown is told, and its body never is."""

    async def main() -> None:
        handler = Recorder()
        async with serving(handler) as server, connected(server.port) as raw:
            raw.send(b"POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab")
            await until(lambda: handler.heads)
            raw.close()
            await until(lambda: server.connections == 0)
            assert handler.gone == handler.heads
            assert not handler.requests

    run(main())


@pytest.mark.parametrize("rest", [b"zz\r\n", b"1388\r\n" + b"y" * 5_000])
@both_loops
def test_a_body_that_turns_out_bad(run: Run, rest: bytes) -> None:
    """The handler that saw the head is told to forget it, and the client is answered."""

    async def main() -> None:
        handler = Recorder()
        async with serving(handler, ServerLimits(body_bytes=1_000)) as server, connected(server.port) as raw:
            raw.send(b"POST /hold HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
            await until(lambda: handler.heads)
            raw.send(rest)
            assert (await raw.answer())[0] in (400, 413)
            assert handler.gone == handler.heads
            assert not handler.requests
            handler.heads[0].respond(200, [], b"")  # a handler that has not noticed does no harm
            _no_call_harms(handler.heads[0])

    run(main())


@both_loops
def test_an_answer_begun_at_the_head_has_its_time(run: Run) -> None:
    """A handler that starts to answer before the body is here is not cut by the body's deadline."""

    class Early(Recorder):
        def on_head(self, exchange: Exchange) -> None:
            super().on_head(exchange)
            exchange.start(200, [])
            exchange.write(b"a")

    async def main() -> None:
        handler = Early()
        async with serving(handler, SLOW) as server, connected(server.port) as raw:
            raw.send(b"POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab")
            await raw.head()
            await asyncio.sleep(0.3)
            assert not handler.gone
            raw.send(b"cde")
            await asyncio.sleep(0.02)
            handler.heads[0].end()
            assert await raw.rest() == b"1\r\na\r\n0\r\n\r\n"
            assert not handler.requests

    run(main())


@both_loops
def test_a_slow_reader_pauses_its_producer(run: Run) -> None:
    """Above the high-water mark the producer is asked to pause, below it to go on; every byte arrives."""

    async def main() -> None:
        handler = Recorder()
        async with serving(handler) as server, connected(server.port) as raw:
            raw.send(HOLD)
            await until(lambda: handler.held)
            exchange = handler.held[0]
            exchange.start(200, [], ANSWER_BYTES)
            taken = written = 0
            while taken < ANSWER_BYTES:
                while written < ANSWER_BYTES and not exchange.paused:
                    exchange.write(b"x" * 65_536)
                    written += 65_536
                    await asyncio.sleep(0)  # else the first writes go into the buffer, not to the socket
                if not taken:
                    assert written < ANSWER_BYTES, "nothing was paused"
                    await raw.head()
                taken += len(await raw.reader.read(2**20))
            exchange.end()
            assert handler.pauses[:3] == [True, False, True]
            raw.send(ECHO)
            assert (await raw.answer())[0] == 200

    run(main())


@both_loops
def test_a_reader_that_stops_is_cut(run: Run) -> None:
    """A client that takes no byte for the write timeout is cut, in an answer (which is told) or after it."""

    async def main() -> None:
        handler = Recorder()
        async with serving(handler, SLOW) as server:
            async with connected(server.port, 1_024) as raw:
                raw.send(HOLD)
                await until(lambda: handler.held)
                exchange = handler.held[0]
                exchange.start(200, [])
                while not exchange.paused:
                    exchange.write(b"x" * 65_536)
                    await asyncio.sleep(0)
                await until(lambda: server.connections == 0)
                assert handler.gone == [exchange]
            async with connected(server.port, 1_024) as raw:
                raw.send(HOLD)
                await until(lambda: len(handler.held) == 2)
                handler.held[1].respond(200, [], b"x" * 32 * 2**20)
                await until(lambda: server.connections == 0)
                assert handler.gone == [exchange]

    run(main())


@both_loops
def test_a_reader_that_is_only_slow_is_not_cut(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes taken now and then keep a connection, for many times the write timeout."""
    now, looks = 0.0, 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        return now

    async def swept() -> None:
        before = looks
        await until(lambda: looks >= before + 2)

    async def main() -> None:
        nonlocal now
        handler = Recorder()
        limits = ServerLimits(write_timeout_s=30.0)
        body_bytes = 16 * 2**20
        async with serving(handler, limits) as server:
            server.now = clock  # time passes here only when the test says so
            async with connected(server.port) as raw:
                raw.send(HOLD)
                await until(lambda: handler.held)
                handler.held[0].respond(200, [], b"x" * body_bytes)
                await raw.head()
                for _ in range(8):
                    await raw.reader.readexactly(body_bytes // 8)
                    await swept()
                    now += 20.0
                    await swept()

    monkeypatch.setattr("tidegate.net.server.SWEEP_S", 0.005)

    run(main())


@both_loops
def test_answers_do_not_pile_up_for_one_that_does_not_read(run: Run) -> None:
    """With answers waiting to be taken, the next pipelined request is not begun, and reading stops."""

    async def main() -> None:
        handler = Recorder()
        async with serving(handler) as server, connected(server.port, 1_024) as raw:
            body = b"y" * 100_000
            request = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + body
            writing = asyncio.ensure_future(_send_all(raw, request, 400))
            before = -1
            while before != len(handler.requests):
                before = len(handler.requests)
                await asyncio.sleep(0.1)
            assert before < 400
            assert not writing.done()
            for _ in range(400):
                assert await raw.answer() == (200, b"POST /echo? " + body)
            await writing

    run(main())


async def _send_all(raw: Raw, data: bytes, times: int) -> None:
    for _ in range(times):
        raw.send(data)
        await raw.writer.drain()


@both_loops
def test_stop_accepting(run: Run) -> None:
    """Idle clients are closed, new ones refused; the busy get their answer and are told to close."""

    async def main() -> None:
        handler = Recorder()
        async with (
            serving(handler) as server,
            connected(server.port) as idle,
            connected(server.port) as busy,
            connected(server.port) as streaming,
            connected(server.port) as sending,
        ):
            idle.send(ECHO)
            await idle.answer()
            busy.send(HOLD)
            streaming.send(HOLD)
            await until(lambda: len(handler.held) == 2)
            sending.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n")
            await until(lambda: len(handler.heads) == 4)
            first, second = handler.held
            second.start(200, [])
            second.write(b"a")

            server.stop_accepting()

            assert await idle.rest() == b""
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", server.port)
            first.respond(200, [], b"")
            second.end(b"b")
            sending.send(b"x")
            answers = [await raw.rest() for raw in (busy, streaming, sending)]
            assert sum(b"connection: close" in answer for answer in answers) == 2
            assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
            assert sum(answer.endswith(b"0\r\n\r\n") for answer in answers) == 1

    run(main())


@both_loops
def test_close_tells_exchanges_under_way(run: Run) -> None:
    """Closing the server aborts what is open, and their handlers hear of it."""

    async def main() -> None:
        handler = Recorder()
        server = Server(handler)
        await server.listen("127.0.0.1", 0)
        async with connected(server.port) as raw:
            raw.send(HOLD)
            await until(lambda: handler.held)
            await server.close()
            assert handler.gone == handler.held
            assert server.connections == 0

    run(main())


@both_loops
def test_a_client_that_is_accepted_when_the_server_closes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection ends with the others, although it had not been taken up yet."""
    accepted: list[socket.socket] = []
    accept = socket.socket.accept

    def watched(self: socket.socket) -> tuple[socket.socket, object]:
        taken, address = accept(self)
        accepted.append(taken)
        return taken, address

    async def main() -> None:
        server = Server(Recorder())
        await server.listen("127.0.0.1", 0)
        monkeypatch.setattr(socket.socket, "accept", watched)
        with socket.create_connection(("127.0.0.1", server.port)):
            server._accept()
            await server.close()
        assert [each.fileno() for each in accepted] == [-1]

    run(main())


@both_loops
def test_running_out_of_descriptors_pauses_accepting(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accepting is tried again after a pause instead of in a spin, and nobody is lost."""
    failures = 3
    calls = 0
    accept = socket.socket.accept

    def failing(self: socket.socket) -> tuple[socket.socket, object]:
        nonlocal calls
        calls += 1
        if calls <= failures:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return accept(self)

    async def main() -> None:
        async with serving(Recorder()) as server:
            monkeypatch.setattr(socket.socket, "accept", failing)
            async with connected(server.port) as raw:
                raw.send(ECHO)
                await asyncio.sleep(0.05)
                assert calls == 1
                assert await raw.answer() == (200, b"GET /echo? ")

    run(main())


@both_loops
def test_many_clients_at_once(run: Run) -> None:
    """Several hundred connections that arrive together are all served."""

    async def one(port: int) -> None:
        async with connected(port) as raw:
            raw.send(ECHO)
            assert await raw.answer() == (200, b"GET /echo? ")

    async def main() -> None:
        async with serving(Recorder()) as server:
            await asyncio.gather(*(one(server.port) for _ in range(400)))
            await until(lambda: server.connections == 0)

    run(main())


@both_loops
def test_a_port_that_is_taken(run: Run) -> None:
    """Listening where another does is an OSError at once."""

    async def main() -> None:
        async with serving(Recorder()) as server:
            with pytest.raises(OSError, match="in use"):
                await Server(Recorder()).listen("127.0.0.1", server.port)

    run(main())
