"""What does a client read for each way in which a handler answers?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.net.peers import Raw, Recorder, Run, both_loops, connected, serving, told, until
from tidegate.core.errors import CallerError
from tidegate.net.exchange import Exchange
from tidegate.net.headers import Headers

HOLD = b"GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"
OLD = b"GET /hold HTTP/1.0\r\n\r\n"
OLD_KEPT = b"GET /hold HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
HEAD = b"HEAD /hold HTTP/1.1\r\nHost: a\r\n\r\n"
CLOSING = b"GET /hold HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def whole(exchange: Exchange) -> None:
    exchange.respond(200, [], b"abc")


def empty(exchange: Exchange) -> None:
    exchange.respond(204, [], b"")


def unchanged(exchange: Exchange) -> None:
    exchange.respond(304, [], b"")


def streamed(exchange: Exchange) -> None:
    exchange.start(200, [])
    exchange.write(b"ab")
    exchange.end(b"c")


def sized(exchange: Exchange) -> None:
    exchange.start(200, [], 3)
    exchange.write(b"ab")
    exchange.end(b"c")


def unfinished(exchange: Exchange) -> None:
    exchange.start(200, [])
    exchange.write(b"ab")
    exchange.abort()


OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"content-length: 3\r\n"
CHUNKS = b"transfer-encoding: chunked\r\n"
CLOSE = b"connection: close\r\n"
KEPT = b"connection: keep-alive\r\n"
END = b"\r\n"
ABC = b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "request_bytes, answer, expected, closes",
    [
        (HOLD, whole, OK + LENGTH + END + b"abc", False),
        (HOLD, streamed, OK + CHUNKS + END + ABC, False),
        (HOLD, sized, OK + LENGTH + END + b"abc", False),
        (HOLD, empty, b"HTTP/1.1 204 No Content\r\n\r\n", False),
        (HOLD, unchanged, b"HTTP/1.1 304 Not Modified\r\n\r\n", False),
        (HOLD, unfinished, OK + CHUNKS + END + b"2\r\nab\r\n", True),
        (HEAD, whole, OK + LENGTH + END, False),
        (HEAD, streamed, OK + CHUNKS + END, False),
        (HEAD, sized, OK + LENGTH + END, False),
        (CLOSING, whole, OK + LENGTH + CLOSE + END + b"abc", True),
        (CLOSING, streamed, OK + CHUNKS + CLOSE + END + ABC, True),
        (OLD, whole, OK + LENGTH + CLOSE + END + b"abc", True),
        (OLD, streamed, OK + CLOSE + END + b"abc", True),
        (OLD_KEPT, whole, OK + LENGTH + KEPT + END + b"abc", False),
        (OLD_KEPT, streamed, OK + CLOSE + END + b"abc", True),
    ],
)
@both_loops
def test_framing_suits_version_and_method(
    run: Run, request_bytes: bytes, answer: Callable[[Exchange], None], expected: bytes, closes: bool
) -> None:
    """Each answer is framed so that this client can tell its end, and the connection kept where it can be."""

    async def main() -> None:
        handler = Recorder()
        async with serving(handler) as server, connected(server.port) as raw:
            raw.send(request_bytes)
            await until(lambda: handler.held)
            answer(handler.held[0])
            assert await raw.reader.readexactly(len(expected)) == expected
            assert handler.held[0].ended
            if closes:
                assert await raw.rest() == b""
            else:
                raw.send(b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\n")
                assert await raw.answer() == (200, b"GET /echo? ")

    run(main())


@both_loops
def test_a_broken_answer_without_framing_is_a_reset(run: Run) -> None:
    """Where an end of file would look like the end of the answer, the client sees a reset instead."""

    async def main() -> None:
        handler = Recorder()
        async with serving(handler) as server, connected(server.port) as raw:
            raw.send(OLD)
            await until(lambda: handler.held)
            handler.held[0].start(200, [])
            handler.held[0].write(b"ab")
            await raw.head()
            handler.held[0].abort()
            with pytest.raises(ConnectionResetError):
                await raw.rest()

    run(main())


@both_loops
def test_the_head_waits_for_the_first_byte(run: Run) -> None:
    """Head and first event arrive in one piece; a write of nothing sends the head alone."""

    async def main() -> None:
        handler = Recorder()
        async with serving(handler) as server, connected(server.port) as raw:
            raw.send(HOLD)
            await until(lambda: handler.held)
            exchange = handler.held[0]
            exchange.start(200, [(b"x", b"y")])
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(raw.reader.read(1), 0.05)
            exchange.write(b"")
            assert (await raw.head()).endswith(b"x: y\r\n" + CHUNKS + END)
            exchange.write(b"")
            exchange.end()
            assert await raw.reader.readexactly(5) == b"0\r\n\r\n"

    run(main())


@pytest.mark.parametrize(
    "headers",
    [
        [(b"x", b"a\r\nset-cookie: b")],
        [(b"x", b"a\nb")],
        [(b"x", b"a\rb")],
        [(b"x", b"a\0b")],
        [(b"x\r\ny", b"a")],
        [(b"x", b"a\r"), (b"y", b"\nb")],
    ],
)
@both_loops
def test_no_header_can_be_injected(run: Run, headers: Headers) -> None:
    """A value with CR, LF or NUL is a broken contract, and the client gets a plain 500."""

    class Injecting(Recorder):
        def on_request(self, exchange: Exchange) -> None:
            with pytest.raises(CallerError):
                exchange.start(200, headers)
            with pytest.raises(CallerError):
                exchange.respond(200, headers, b"")
            exchange.respond(500, [], b"")

    async def main() -> None:
        async with serving(Injecting()) as server:
            assert await told(server.port, CLOSING) == (
                b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            )

    run(main())


@both_loops
def test_lines_follow_the_headers_as_they_are(run: Run) -> None:
    """Header lines written beforehand come after the headers and before the framing in any answer."""
    lines = b"X-A: b\r\nx-c: d\r\n"

    class Answering(Recorder):
        def on_request(self, exchange: Exchange) -> None:
            if exchange.path == "/whole":
                exchange.respond(200, [(b"x", b"y")], b"abc", lines)
            else:
                exchange.start(200, [(b"x", b"y")], 3, lines=lines)
                exchange.end(b"abc")

    async def main() -> None:
        async with serving(Answering()) as server:
            for path in (b"/whole", b"/parts"):
                assert await told(server.port, CLOSING.replace(b"/hold", path)) == (
                    OK + b"x: y\r\n" + lines + LENGTH + CLOSE + END + b"abc"
                )

    run(main())


@both_loops
def test_a_handler_keeps_what_it_likes_with_an_exchange(run: Run) -> None:
    """What a handler notes at the head is there at the body, and nothing is there before."""

    class Noting(Recorder):
        def on_head(self, exchange: Exchange) -> None:
            assert exchange.context is None
            exchange.context = exchange.path

        def on_request(self, exchange: Exchange) -> None:
            exchange.respond(200, [], f"{exchange.context}".encode())

    async def main() -> None:
        async with serving(Noting()) as server, connected(server.port) as raw:
            for path in (b"/a", b"/b"):
                raw.send(HOLD.replace(b"/hold", path))
                assert await raw.answer() == (200, path)

    run(main())


@both_loops
def test_framing_is_the_servers_own(run: Run) -> None:
    """Framing that a handler passes on from an engine does not reach the client."""

    async def main() -> None:
        handler = Recorder()
        async with serving(handler) as server, connected(server.port) as raw:
            raw.send(HOLD)
            await until(lambda: handler.held)
            theirs = [
                (b"Content-Length", b"7"),
                (b"transfer-encoding", b"gzip"),
                (b"connection", b"x"),
                (b"a", b"b"),
            ]
            handler.held[0].respond(200, theirs, b"abc")
            assert await raw.head() == OK + b"a: b\r\n" + LENGTH + END

    run(main())


@both_loops
def test_contracts_of_an_exchange(run: Run) -> None:
    """Answering twice, writing outside of an answer, and missing the announced length are errors of ours."""

    async def main() -> None:
        handler = Recorder()
        async with serving(handler) as server, connected(server.port) as raw:
            raw.send(HOLD * 2)
            await until(lambda: handler.held)
            exchange = handler.held[0]
            with pytest.raises(CallerError):
                exchange.write(b"x")
            exchange.respond(200, [], b"abc")
            with pytest.raises(CallerError):
                exchange.respond(200, [], b"")
            with pytest.raises(CallerError):
                exchange.end()
            await raw.answer()
            await until(lambda: len(handler.held) == 2)
            exchange = handler.held[1]
            exchange.start(200, [], 2)
            with pytest.raises(CallerError):
                exchange.write(b"abc")
            with pytest.raises(CallerError):
                exchange.end(b"a")
            assert await raw.rest() == b""

    run(main())


def test_a_handler_that_raises_costs_one_answer() -> None:
    """A 500 where nothing was said yet, a broken answer where it had begun; the loop's handler is told."""

    class Raising(Recorder):
        def on_request(self, exchange: Exchange) -> None:
            if exchange.query:
                exchange.start(200, [])
                exchange.write(b"ab")
            raise RuntimeError("on purpose")

    async def main() -> None:
        told_errors: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told_errors.append(context))
        async with serving(Raising()) as server:
            assert (await told(server.port, HOLD)).startswith(b"HTTP/1.1 500 ")
            broken = await told(server.port, HOLD.replace(b"/hold", b"/hold?begun"))
            assert broken == OK + CHUNKS + END + b"2\r\nab\r\n"
        assert len(told_errors) == 2

    asyncio.run(main())


@both_loops
def test_pipelined_requests_are_answered_in_order_one_at_a_time(run: Run) -> None:
    """The second request is not shown to the handler before the first is answered."""

    async def main() -> None:
        handler = Recorder()
        async with serving(handler) as server, connected(server.port) as raw:
            raw.send(b"".join(HOLD.replace(b"/hold", b"/hold?%d" % at) for at in range(5)))
            for at in range(5):
                await until(lambda: len(handler.held) > at)  # noqa: B023 - awaited in this turn
                assert [exchange.query for exchange in handler.heads] == [str(n) for n in range(at + 1)]
                handler.held[at].respond(200, [], b"%d" % at)
                assert await raw.answer() == (200, b"%d" % at)

    run(main())


@both_loops
def test_a_thousand_pipelined_requests(run: Run) -> None:
    """What arrives in one read is answered in order, without recursion and with reading paused between."""

    async def main() -> None:
        async with serving(Recorder()) as server, connected(server.port) as raw:
            raw.send(b"".join(b"GET /echo?%d HTTP/1.1\r\nHost: a\r\n\r\n" % at for at in range(5_000)))
            for at in range(5_000):
                assert await raw.answer() == (200, b"GET /echo?%d " % at)

    run(main())


@both_loops
def test_a_refusal_waits_its_turn(run: Run) -> None:
    """What is malformed behind an active request is refused after that one's answer."""

    async def main() -> None:
        handler = Recorder()
        async with serving(handler) as server, connected(server.port) as raw:
            raw.send(HOLD + b"nonsense\r\n\r\n")
            await until(lambda: handler.held)
            await asyncio.sleep(0.02)
            assert not handler.gone
            handler.held[0].respond(200, [], b"first")
            assert await raw.answer() == (200, b"first")
            assert (await raw.answer())[0] == 400
            assert await raw.rest() == b""

    run(main())


@both_loops
def test_what_follows_a_last_request_is_not_read(run: Run) -> None:
    """After `Connection: close` nothing more is a request, and the answer is whole."""

    async def main() -> None:
        handler = Recorder()
        async with serving(handler) as server, connected(server.port) as raw:
            raw.send(CLOSING + HOLD)
            await until(lambda: handler.held)
            raw.send(HOLD)
            handler.held[0].respond(200, [], b"abc")
            assert await raw.answer() == (200, b"abc")
            assert await raw.rest() == b""
        assert len(handler.heads) == 1

    run(main())


UPLOAD = b"POST /%b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n%b\r\n"


async def _continues(raw: Raw) -> None:
    assert await raw.head() == b"HTTP/1.1 100 Continue\r\n\r\n"


@both_loops
def test_expectations(run: Run) -> None:
    """100 is said when the head is accepted, not when it is refused, nor when the body is here already."""
    expecting = b"Expect: 100-continue\r\n"

    async def main() -> None:
        handler = Recorder()
        async with serving(handler) as server:
            async with connected(server.port) as raw:
                raw.send(UPLOAD % (b"echo", expecting))
                await _continues(raw)
                assert not handler.requests
                raw.send(b"abcde")
                assert await raw.answer() == (200, b"POST /echo? abcde")
                raw.send(UPLOAD % (b"echo", expecting) + b"abcde")
                assert await raw.answer() == (200, b"POST /echo? abcde")
            said = await told(server.port, UPLOAD % (b"refuse", expecting))
            assert said.startswith(b"HTTP/1.1 401 ")
            assert b"connection: close\r\n" in said

    run(main())


@both_loops
def test_an_answer_at_the_head(run: Run) -> None:
    """An early answer leaves the body unread and ends the connection, unless the body is here or absent."""

    async def main() -> None:
        handler = Recorder()
        async with serving(handler) as server, connected(server.port) as raw:
            raw.send(b"GET /refuse HTTP/1.1\r\nHost: a\r\n\r\n")
            assert await raw.answer() == (401, b"no")
            raw.send(UPLOAD % (b"refuse", b"") + b"abcde")
            assert await raw.answer() == (401, b"no")
            raw.send(UPLOAD % (b"refuse", b"") + b"abc")
            assert await raw.answer() == (401, b"no")
            raw.send(b"de" + HOLD)
            assert await raw.rest() == b""
        assert not handler.requests

    run(main())
