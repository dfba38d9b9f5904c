"""Which bytes are a request, and which are refused?

Each refusal closes the connection: after bytes that two parsers could read in two ways, nothing that
follows can be trusted.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.net.peers import Recorder, Run, both_loops, connected, serving, told
from tidegate.net.limits import ServerLimits

HOST = b"Host: a\r\n"
CHUNKED = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"


def post(*lines: bytes, version: bytes = b"1.1") -> bytes:
    return b"\r\n".join([b"POST /echo HTTP/" + version, b"Host: a", *lines, b"", b""])


def get(target: bytes = b"/echo", *lines: bytes) -> bytes:
    return b"\r\n".join([b"GET " + target + b" HTTP/1.1", *(lines or (b"Host: a",)), b"", b""])


REFUSED = {
    "both framings": post(b"Content-Length: 5", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "both framings, reversed": post(b"Transfer-Encoding: chunked", b"Content-Length: 5") + b"0\r\n\r\n",
    "two lengths": post(b"Content-Length: 3", b"Content-Length: 4") + b"abcd",
    "the same length twice": post(b"Content-Length: 3", b"Content-Length: 3") + b"abc",
    "a list of lengths": post(b"Content-Length: 3, 3") + b"abc",
    "signed length": post(b"Content-Length: +3") + b"abc",
    "negative length": post(b"Content-Length: -3") + b"abc",
    "hexadecimal length": post(b"Content-Length: 0x3") + b"abc",
    "empty length": post(b"Content-Length: ") + b"abc",
    "length overflow": post(b"Content-Length: 99999999999999999999999") + b"abc",
    "blank in length": post(b"Content-Length: 1 0") + b"abc",
    "unknown coding": post(b"Transfer-Encoding: xchunked") + b"0\r\n\r\n",
    "compressed coding": post(b"Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n",
    "chunked not last": post(b"Transfer-Encoding: chunked, identity") + b"0\r\n\r\n",
    "chunked twice": post(b"Transfer-Encoding: chunked, chunked") + b"0\r\n\r\n",
    "two codings": post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity") + b"0\r\n\r\n",
    "control before coding": post(b"Transfer-Encoding: \x0bchunked") + b"0\r\n\r\n",
    "quoted coding": post(b'Transfer-Encoding: "chunked"') + b"0\r\n\r\n",
    "blank before colon": post(b"Transfer-Encoding : chunked") + b"0\r\n\r\n",
    "coding in HTTP/1.0": post(b"Transfer-Encoding: chunked", version=b"1.0") + b"0\r\n\r\n",
    "folded line": get(b"/echo", b"Host: a", b"X: b\r\n folded"),
    "folded coding": post(b"Transfer-Encoding:\r\n chunked") + b"0\r\n\r\n",
    "blank before the first line": get(b"/echo", b" Host: a"),
    "bare LF": b"GET /echo HTTP/1.1\nHost: a\n\n",
    "bare LF after one header": b"GET /echo HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
    "bare CR in a value": get(b"/echo", b"Host: a", b"X: a\rb"),
    "NUL in a value": get(b"/echo", b"Host: a", b"X: a\0b"),
    "control in a value": get(b"/echo", b"Host: a", b"X: a\x01b"),
    "empty name": get(b"/echo", b"Host: a", b": b"),
    "no colon": get(b"/echo", b"Host: a", b"nonsense"),
    "no Host": get(b"/echo", b"X: y"),
    "two Hosts": get(b"/echo", b"Host: a", b"Host: a"),
    "two Hosts in HTTP/1.0": b"GET /echo HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
    "empty Host": get(b"/echo", b"Host: "),
    "slash in Host": get(b"/echo", b"Host: a/admin"),
    "hash in Host": get(b"/echo", b"Host: a#b"),
    "question mark in Host": get(b"/echo", b"Host: a?b"),
    "at in Host": get(b"/echo", b"Host: u@b"),
    "blank in Host": get(b"/echo", b"Host: a b"),
    "comma in Host": get(b"/echo", b"Host: a,b"),
    "obs-text in Host": get(b"/echo", b"Host: \xe4"),
    "absolute target with user": get(b"http://u@h/echo"),
    "absolute target without host": get(b"http:///echo"),
    "absolute target of another scheme": get(b"ftp://h/echo"),
    "fragment": get(b"/echo#x"),
    "asterisk": get(b"*"),
    "target without slash": get(b"echo"),
    "control in the target": get(b"/a\tb"),
    "blank in the target": get(b"/a b"),
    "obs-text in the target": get(b"/\xe4"),
    "blank after the version": b"GET /echo HTTP/1.1 \r\nHost: a\r\n\r\n",
    "HTTP/0.9": b"GET /echo\r\n\r\n",
    "HTTP/2.0": b"GET /echo HTTP/2.0\r\nHost: a\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/1.2": b"GET /echo HTTP/1.2\r\nHost: a\r\n\r\n",
    "unknown method": b"BREW /echo HTTP/1.1\r\nHost: a\r\n\r\n",
    "lower-case method": b"get /echo HTTP/1.1\r\nHost: a\r\n\r\n",
    "TLS on a plain port": b"\x16\x03\x01\x02\x00\x01\x00\x01",
    "unknown expectation": post(b"Expect: 200-maybe", b"Content-Length: 0"),
    "chunk size not hexadecimal": CHUNKED + b"zz\r\nabc\r\n0\r\n\r\n",
    "negative chunk size": CHUNKED + b"-1\r\n\r\n",
    "chunk size with 0x": CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n",
    "blank after chunk size": CHUNKED + b"3 \r\nabc\r\n0\r\n\r\n",
    "chunk size overflow": CHUNKED + b"fffffffffffffffff\r\nabc",
    "empty chunk size": CHUNKED + b"\r\nabc\r\n0\r\n\r\n",
    "chunk not ended": CHUNKED + b"3\r\nabcXX0\r\n\r\n",
    "bare LF after chunk size": CHUNKED + b"3\nabc\r\n0\r\n\r\n",
    "bare LF in chunk extension": CHUNKED + b"3;a\nabc\r\n0\r\n\r\n",
    "bare LF after chunk": CHUNKED + b"3\r\nabc\n0\r\n\r\n",
    "a length among the trailers": CHUNKED + b"3\r\nabc\r\n0\r\nContent-Length: 9\r\n\r\n",
    "bare LF at the end": CHUNKED + b"3\r\nabc\r\n0\n\n",
}


@pytest.mark.parametrize("name", REFUSED)
@both_loops
def test_what_is_not_plainly_a_request_is_refused(run: Run, name: str) -> None:
    """Refused with a 400, closed, and what is smuggled behind it is never read."""

    async def main() -> None:
        handler = Recorder()
        async with serving(handler) as server:
            said = await told(server.port, REFUSED[name] + SMUGGLED)
        assert said.startswith(b"HTTP/1.1 400 Bad Request\r\n"), said
        assert said.count(b"HTTP/1.1") == 1
        assert b"connection: close\r\n" in said
        assert not handler.requests

    run(main())


@pytest.mark.parametrize(
    "line",
    [b"CONNECT a:1 HTTP/1.1", b"PURGE /echo HTTP/1.1", b"DESCRIBE /echo RTSP/1.0", b"SOURCE /echo ICE/1.0"],
)
@both_loops
def test_methods_that_only_the_parser_knows(run: Run, line: bytes) -> None:
    """A method of another protocol never reaches the handler, nor opens a tunnel."""

    async def main() -> None:
        handler = Recorder()
        async with serving(handler) as server:
            said = await told(server.port, line + b"\r\nHost: a\r\n\r\n" + SMUGGLED)
        assert said.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n"), said
        assert said.count(b"HTTP/1.1") == 1
        assert not handler.heads

    run(main())


ACCEPTED = {
    "absolute target": (get(b"http://other:80/echo?q=1"), b"GET /echo?q=1 "),
    "absolute target, upper case": (get(b"HTTPS://other/echo"), b"GET /echo? "),
    "query kept raw": (get(b"/echo?a=%0d%0a&b=?"), b"GET /echo?a=%0d%0a&b=? "),
    "length": (post(b"Content-Length: 3") + b"abc", b"POST /echo? abc"),
    "no body": (post(), b"POST /echo? "),
    "names of any case": (post(b"cOnTeNt-LeNgTh:3") + b"abc", b"POST /echo? abc"),
    "chunks": (CHUNKED + b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n", b"POST /echo? abc0123456789"),
    "chunk extensions": (CHUNKED + b'3;a=b;c="d"\r\nabc\r\n0;x\r\n\r\n', b"POST /echo? abc"),
    "trailers": (CHUNKED + b"3\r\nabc\r\n0\r\nX-A: b\r\n\r\n", b"POST /echo? abc"),
    "blank lines before": (b"\r\n\r\n" + get(), b"GET /echo? "),
    "an offer of h2c": (
        post(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"Content-Length: 3") + b"abc",
        b"POST /echo? abc",
    ),
    "an offer of h2c, chunked": (
        post(b"Connection: Upgrade", b"Upgrade: h2c", b"Transfer-Encoding: chunked")
        + b"3\r\nabc\r\n0\r\n\r\n",
        b"POST /echo? abc",
    ),
    "an offer without a body": (
        get(b"/echo", b"Host: a", b"Connection: Upgrade", b"Upgrade: x"),
        b"GET /echo? ",
    ),
    "Host with port": (get(b"/echo", b"Host: [::1]:8080"), b"GET /echo? "),
}


@pytest.mark.parametrize("name", ACCEPTED)
@both_loops
def test_what_is_a_request_is_read_whole_or_byte_by_byte(run: Run, name: str) -> None:
    """The request is answered, and the connection is good for another behind it, however it was cut."""
    request, expected = ACCEPTED[name]

    async def main() -> None:
        async with serving(Recorder()) as server, connected(server.port) as raw:
            raw.send(request + get(b"/echo?next"))
            assert await raw.answer() == (200, expected)
            assert await raw.answer() == (200, b"GET /echo?next ")
            for at in range(len(request)):
                raw.send(request[at : at + 1])
                await raw.writer.drain()
            assert await raw.answer() == (200, expected)

    run(main())


@both_loops
def test_trailers_are_never_headers(run: Run) -> None:
    """A trailer that names a credential or a host changes nothing."""

    async def main() -> None:
        handler = Recorder()
        async with serving(handler) as server, connected(server.port) as raw:
            raw.send(CHUNKED + b"1\r\nx\r\n0\r\nAuthorization: Bearer k\r\nHost: b\r\n\r\n")
            assert await raw.answer() == (200, b"POST /echo? x")
        assert handler.requests[0].headers == [(b"host", b"a"), (b"transfer-encoding", b"chunked")]

    run(main())


@both_loops
def test_headers_as_the_handler_sees_them(run: Run) -> None:
    """Names are lower-case, blanks around values are gone, repeated fields stay apart and in order."""

    async def main() -> None:
        handler = Recorder()
        async with serving(handler) as server, connected(server.port) as raw:
            raw.send(get(b"/echo", b"Host: a \t", b"X-A:  1 ", b"x-a: \xe4", b"Empty:"))
            await raw.answer()
        exchange = handler.requests[0]
        assert exchange.headers == [(b"host", b"a"), (b"x-a", b"1"), (b"x-a", b"\xe4"), (b"empty", b"")]
        assert exchange.header(b"x-a") == b"1"
        assert exchange.header(b"absent") is None
        assert exchange.client == "127.0.0.1"

    run(main())


LIMITS = ServerLimits(head_bytes=2_000, headers=10, target_bytes=100, body_bytes=1_000)


@pytest.mark.parametrize(
    "fits, request_bytes, status",
    [
        (True, get(b"/echo", b"Host: a", *[b"X: y"] * 9), 200),
        (False, get(b"/echo", b"Host: a", *[b"X: y"] * 10), 431),
        (True, get(b"/echo", b"Host: a", b"X: " + b"y" * 1_960), 200),
        (False, get(b"/echo", b"Host: a", b"X: " + b"y" * 2_000), 431),
        (True, get(b"/echo?" + b"q" * 94), 200),
        (False, get(b"/echo?" + b"q" * 95), 431),
        (True, post(b"Content-Length: 1000") + b"b" * 1_000, 200),
        (False, post(b"Content-Length: 1001"), 413),
        (True, CHUNKED + b"3e8\r\n" + b"b" * 1_000 + b"\r\n0\r\n\r\n", 200),
        (False, CHUNKED + b"3e9\r\n" + b"b" * 1_001, 413),
        (False, CHUNKED + b"1\r\nb\r\n" * 1_001, 413),
        (True, CHUNKED + b"1\r\nb\r\n" * 1_000 + b"0\r\n\r\n", 200),
    ],
)
@both_loops
def test_bounds_are_exact(run: Run, fits: bool, request_bytes: bytes, status: int) -> None:
    """Exactly at the bound passes; one more does not, in one read or byte by byte."""

    async def main() -> None:
        async with serving(Recorder(), LIMITS) as server:
            async with connected(server.port) as raw:
                raw.send(request_bytes)
                assert (await raw.answer())[0] == status
            async with connected(server.port) as raw:
                for at in range(0, len(request_bytes), 7):
                    raw.send(request_bytes[at : at + 7])
                    await raw.writer.drain()
                assert (await raw.answer())[0] == status

    run(main())


ENDLESS = {
    "one header of 100 MB": (b"GET /echo HTTP/1.1\r\nHost: a\r\nX: ", b"y" * 65_536, 431),
    "headers without number": (b"GET /echo HTTP/1.1\r\nHost: a\r\n", b"X: y\r\n" * 10_000, 431),
    "a header name": (b"GET /echo HTTP/1.1\r\n", b"y" * 65_536, 431),
    "a target of 1 MB": (b"GET /", b"y" * 65_536, 431),
    "a method": (b"", b"G" * 65_536, 400),
    "trailers without number": (CHUNKED + b"0\r\n", b"X: y\r\n" * 10_000, 431),
    "one trailer": (CHUNKED + b"0\r\nX: ", b"y" * 65_536, 431),
    "a chunk extension": (CHUNKED + b"3;", b"y" * 65_536, 431),
    "chunks of extensions": (CHUNKED, (b"1;" + b"y" * 1_000 + b"\r\nx\r\n") * 60, 431),
    "a body": (CHUNKED, b"10000\r\n" + b"y" * 65_536 + b"\r\n", 413),
}


@pytest.mark.parametrize("name", ENDLESS)
@both_loops
def test_what_never_ends_is_cut(run: Run, name: str) -> None:
    """Endless heads, extensions, trailers and bodies are refused at their bound, with little held."""
    start, more, status = ENDLESS[name]

    async def main() -> None:
        async with (
            serving(Recorder(), ServerLimits(body_bytes=2**18)) as server,
            connected(server.port) as raw,
        ):
            raw.send(start)
            answer = asyncio.ensure_future(raw.answer())
            sent = 0
            while not answer.done() and sent < 1_600:
                raw.send(more)
                sent += 1
                await raw.writer.drain()
                await asyncio.sleep(0)
            assert (await answer)[0] == status
            assert sent < 100, "not refused in time"
            assert await raw.rest() == b""

    run(main())


@both_loops
def test_a_refused_client_that_goes_on_sending_still_reads_the_answer(run: Run) -> None:
    """The answer to a body that is refused at its head is not lost to a reset."""

    async def main() -> None:
        async with serving(Recorder(), ServerLimits(body_bytes=10)) as server, connected(server.port) as raw:
            raw.send(post(b"Content-Length: 5000000"))
            for _ in range(50):
                raw.send(b"y" * 100_000)
                await raw.writer.drain()
            assert (await raw.answer()) == (413, b"request_too_large")
            assert await raw.rest() == b""

    run(main())
