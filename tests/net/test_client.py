"""What does a sink hear, and what becomes of the connection, for each way in which an engine answers?"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from tests.net.peers import Engine, Raw, Run, Sink, both_loops, connected, engine, until
from tidegate.core.errors import UpstreamError
from tidegate.core.messages import FailureKind
from tidegate.net.client import Client
from tidegate.net.limits import ClientLimits

ASK = b"GET / HTTP/1.1\r\nhost: e\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\n"
ABC = OK + b"content-length: 3\r\n\r\nabc"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"


Script = Callable[[Engine, Raw], Awaitable[None]]


async def whole(peer: Engine, raw: Raw) -> None:
    """An engine that answers each request with its path, and keeps the connection."""
    while request := await peer.request(raw):
        path = request.split()[1]
        raw.send(OK + b"content-length: %d\r\n\r\n%b" % (len(path), path))


async def silent(peer: Engine, raw: Raw) -> None:
    """An engine that takes requests and says nothing."""
    while await peer.request(raw):
        pass


def saying(answer: bytes, hang_up: bool = False) -> Script:
    """An engine that says the same to everything, one byte after the other."""

    async def script(peer: Engine, raw: Raw) -> None:
        while await peer.request(raw):
            for at in range(len(answer)):
                raw.send(answer[at : at + 1])
                if at % 16 == 0:
                    await asyncio.sleep(0)
            if hang_up:
                return

    return script


async def asked(client: Client, head: bytes = ASK, body: bytes = b"") -> Sink:
    """A call, over."""
    sink = Sink()
    client.send(head, body, sink)
    await until(lambda: sink.over)
    return sink


@pytest.mark.parametrize(
    "answer, status, body, kept",
    [
        (ABC, 200, b"abc", 1),
        (CHUNKED + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", 200, b"abc", 1),
        (CHUNKED + b"3;x=y\r\nabc\r\n0\r\nx-a: b\r\n\r\n", 200, b"abc", 1),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", 1),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n", 304, b"", 1),
        (OK + b"content-length: 0\r\n\r\n", 200, b"", 1),
        (b"HTTP/1.1 503\r\ncontent-length: 0\r\n\r\n", 503, b"", 1),
        (OK + b"Connection: close\r\ncontent-length: 3\r\n\r\nabc", 200, b"abc", 0),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nabc", 200, b"abc", 0),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\nconnection: keep-alive\r\n\r\nabc", 200, b"abc", 1),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + ABC, 200, b"abc", 1),
        (b"HTTP/1.1 102 Processing\r\nx: y\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + ABC, 200, b"abc", 1),
    ],
)
@both_loops
def test_answers_and_their_framing(run: Run, answer: bytes, status: int, body: bytes, kept: int) -> None:
    """Status and body arrive whole; the connection is kept exactly where framing and headers allow it."""

    async def main() -> None:
        async with engine(saying(answer)) as peer:
            client = Client("127.0.0.1", peer.port)
            for _ in range(3):
                sink = await asked(client)
                assert (sink.status, sink.body, sink.ends) == (status, body, 1)
            assert (client.active, client.idle) == (0, kept)
            assert peer.connections == (1 if kept else 3)
            await client.close()

    run(main())


@both_loops
def test_headers_as_the_sink_sees_them(run: Run) -> None:
    """Lower-case names, bare values, repeated fields apart, none of an interim answer nor of the trailers."""
    answer = (
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
        + OK
        + b"X-A:  1 \r\nx-a: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx-t: 3\r\n\r\n"
    )

    async def main() -> None:
        async with engine(saying(answer)) as peer:
            client = Client("127.0.0.1", peer.port)
            sink = await asked(client)
            assert sink.headers == [(b"x-a", b"1"), (b"x-a", b"2"), (b"transfer-encoding", b"chunked")]
            await client.close()

    run(main())


@pytest.mark.parametrize(
    "answer, kind",
    [
        (b"", FailureKind.RESET),
        (OK, FailureKind.RESET),
        (OK + b"content-length: 4\r\n\r\nabc", FailureKind.RESET),
        (CHUNKED + b"3\r\nabc\r\n", FailureKind.RESET),
        (CHUNKED + b"3\r\nabc\r\n0\r\n", FailureKind.RESET),
        (b"HTTP/1.1 100 Continue\r\n\r\n", FailureKind.RESET),
        (b"SSH-2.0-OpenSSH\r\n", FailureKind.GARBAGE),
        (b"\x15\x03\x03\x00\x02\x02\x46", FailureKind.GARBAGE),
        (b"HTTP/1.1 200 OK\nbare: lf\n\n", FailureKind.GARBAGE),
        (b"HTTP/1.1 abc\r\n\r\n", FailureKind.GARBAGE),
        (OK + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\nabc", FailureKind.GARBAGE),
        (OK + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabc", FailureKind.GARBAGE),
        (OK + b"transfer-encoding: gzip\r\n\r\nabc", FailureKind.GARBAGE),
        (CHUNKED + b"zz\r\nabc\r\n", FailureKind.GARBAGE),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
            FailureKind.GARBAGE,
        ),
        (OK + b"x: " + b"y" * 70_000, FailureKind.GARBAGE),
        (OK + b"x: y\r\n" * 20_000, FailureKind.GARBAGE),
        (CHUNKED + b"3\r\nabc\r\n0\r\n" + b"x: y\r\n" * 100_000, FailureKind.GARBAGE),
    ],
)
@both_loops
def test_answers_that_are_none(run: Run, answer: bytes, kind: FailureKind) -> None:
    """One failure of the right kind, whatever had arrived before it, and the connection is not kept."""

    async def script(peer: Engine, raw: Raw) -> None:
        await peer.request(raw)
        raw.send(answer)
        await raw.writer.drain()

    async def main() -> None:
        async with engine(script) as peer:
            client = Client("127.0.0.1", peer.port)
            sink = await asked(client)
            assert sink.kinds == [kind], sink.failures
            assert (client.active, client.idle) == (0, 0)
            assert peer.connections == 1
            await client.close()

    run(main())


@both_loops
def test_an_answer_that_ends_with_its_connection(run: Run) -> None:
    """Without framing the end of the file is the end of the answer, and the call says so; a reset is not."""

    async def main() -> None:
        async with engine(saying(OK + b"\r\nabc", hang_up=True)) as peer:
            client = Client("127.0.0.1", peer.port)
            sink = Sink()
            call = client.send(ASK, b"", sink)
            await until(lambda: sink.over)
            assert (sink.body, sink.ends, call.close_delimited) == (b"abc", 1, True)
            assert client.idle == 0
            await client.close()

        async def cut(peer: Engine, raw: Raw) -> None:
            await peer.request(raw)
            raw.send(OK + b"\r\nabc")
            await until(lambda: sink.body)
            _reset(raw)

        async with engine(cut) as peer:
            client = Client("127.0.0.1", peer.port)
            sink = Sink()
            client.send(ASK, b"", sink)
            await until(lambda: sink.over)
            assert sink.kinds == [FailureKind.RESET]
            await client.close()

    run(main())


def _reset(raw: Raw) -> None:
    raw.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    raw.reset()


@both_loops
def test_answers_to_head(run: Run) -> None:
    """An answer to HEAD has no body whatever its length says, and leaves the connection good for the next."""

    async def script(peer: Engine, raw: Raw) -> None:
        while request := await peer.request(raw):
            raw.send(OK + b"content-length: 5\r\n\r\n" + (b"" if request.startswith(b"HEAD") else b"12345"))

    async def main() -> None:
        async with engine(script) as peer:
            client = Client("127.0.0.1", peer.port)
            for head, body in [(b"HEAD", b""), (b"GET", b"12345"), (b"HEAD", b""), (b"GET", b"12345")]:
                sink = await asked(client, ASK.replace(b"GET", head))
                assert (sink.body, sink.ends) == (body, 1)
            assert peer.connections == 1
            await client.close()

    run(main())


@both_loops
def test_a_body_in_the_answer_to_head_spoils_the_connection(run: Run) -> None:
    """An engine that sends the body nonetheless is not believed: its bytes are nobody's answer."""

    async def script(peer: Engine, raw: Raw) -> None:
        while await peer.request(raw):
            raw.send(ABC)

    async def main() -> None:
        async with engine(script) as peer:
            client = Client("127.0.0.1", peer.port)
            for _ in range(2):
                sink = await asked(client, ASK.replace(b"GET", b"HEAD"))
                assert (sink.status, sink.body, sink.ends) == (200, b"", 1)
            assert peer.connections == 2
            await client.close()

    run(main())


@pytest.mark.parametrize("excess", [b"x", b"HTTP/1.1 ", ABC])
@both_loops
def test_a_byte_too_many_spoils_the_connection(run: Run, excess: bytes) -> None:
    """What follows an answer is nobody's: the call is complete, the next one goes elsewhere."""

    async def script(peer: Engine, raw: Raw) -> None:
        while await peer.request(raw):
            raw.send(ABC + excess)

    async def main() -> None:
        async with engine(script) as peer:
            client = Client("127.0.0.1", peer.port)
            for _ in range(2):
                sink = await asked(client)
                assert (sink.body, sink.ends) == (b"abc", 1)
            assert peer.connections == 2
            assert client.idle == 0
            await client.close()

    run(main())


@both_loops
def test_an_answer_nobody_asked_for(run: Run) -> None:
    """Bytes on an idle connection take it out of the pool; they never answer the next call."""

    async def script(peer: Engine, raw: Raw) -> None:
        await peer.request(raw)
        raw.send(ABC)
        await asyncio.sleep(0.05)
        raw.send(OK + b"content-length: 6\r\n\r\nforged")
        await silent(peer, raw)

    async def main() -> None:
        async with engine(script) as peer:
            client = Client("127.0.0.1", peer.port)
            await asked(client)
            assert client.idle == 1
            await until(lambda: client.idle == 0)
            assert (await asked(client)).body == b"abc"
            await client.close()

    run(main())


@both_loops
def test_one_read_is_at_most_one_body_call(run: Run) -> None:
    """Many chunks that arrive together reach the sink joined, and so do the bytes of a split character."""
    chunks = "".join(f"{len(c.encode()):x}\r\n{c}\r\n" for c in ["潮門 ", "🌊", "x" * 50]) + "0\r\n\r\n"

    async def script(peer: Engine, raw: Raw) -> None:
        while await peer.request(raw):
            raw.send(CHUNKED + chunks.encode())

    async def main() -> None:
        async with engine(script) as peer:
            client = Client("127.0.0.1", peer.port)
            sink = await asked(client)
            assert sink.reads == [("潮門 🌊" + "x" * 50).encode()]
            await client.close()

    run(main())


@pytest.mark.parametrize("size", [20_000, 100_000])
@both_loops
def test_a_long_request_overtakes_none(run: Run, size: int) -> None:
    """Over connections that are open, requests reach an engine in the order in which they were sent."""
    began: list[bytes] = []

    async def noting(peer: Engine, raw: Raw) -> None:
        while head := await raw.head():
            began.append(head.split()[1])
            await raw.reader.readexactly(int(head.split(b"content-length: ")[1].split()[0]))
            raw.send(ABC)

    def send(client: Client, name: bytes, size: int) -> Sink:
        sink = Sink()
        client.send(b"POST %b HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % (name, size), b"x" * size, sink)
        return sink

    async def main() -> None:
        async with engine(noting) as peer:
            client = Client("127.0.0.1", peer.port)
            for names in (b"abc", b"def"):  # the first three connect
                sinks = [
                    send(client, b"/%c" % name, size if place == 1 else 3) for place, name in enumerate(names)
                ]
                await until(lambda: all(sink.over for sink in sinks))  # noqa: B023 - awaited here
            assert (peer.connections, began[3:]) == (3, [b"/d", b"/e", b"/f"])
            await client.close()

    run(main())


@both_loops
def test_the_most_recently_used_connection_is_taken_first(run: Run) -> None:
    """Last in, first out, so that the rest grows old and is closed; no more than `max_idle` are kept."""

    async def main() -> None:
        async with engine(whole) as peer:
            client = Client("127.0.0.1", peer.port, ClientLimits(idle_timeout_s=0.4, max_idle=3))
            sinks = [Sink() for _ in range(5)]
            for sink in sinks:
                client.send(ASK, b"", sink)
            assert client.active == 5
            await until(lambda: all(sink.over for sink in sinks))
            assert (client.active, client.idle, peer.connections) == (0, 3, 5)
            while client.idle > 1:
                await asked(client)
                await asyncio.sleep(0.02)
            assert peer.connections == 5
            await until(lambda: client.idle == 0)
            await client.close()

    run(main())


@both_loops
def test_an_engine_that_hangs_up_is_forgotten_at_once(run: Run) -> None:
    """A FIN on an idle connection takes it out of the pool before anything is sent on it."""

    async def main() -> None:
        async with engine(saying(ABC, hang_up=True)) as peer:
            client = Client("127.0.0.1", peer.port)
            for _ in range(3):
                assert (await asked(client)).body == b"abc"
                await until(lambda: client.idle == 0)
            assert peer.requests == peer.connections == 3
            await client.close()

    run(main())


@both_loops
def test_a_dead_connection_is_replaced_once(run: Run) -> None:
    """A reused connection that breaks before any byte of the answer costs nothing but a new connection."""

    async def script(peer: Engine, raw: Raw) -> None:
        await peer.request(raw)
        raw.send(ABC)
        await raw.head()  # the next request is read, and the connection closed instead of an answer

    async def main() -> None:
        async with engine(script) as peer:
            client = Client("127.0.0.1", peer.port)
            for at in range(5):
                sink = await asked(client, ASK.replace(b"/", b"/%d" % at, 1), b"")
                assert (sink.body, sink.failures) == (b"abc", [])
            assert client.active == 0
            assert peer.requests == peer.connections == 5
            await client.close()

    run(main())


@pytest.mark.parametrize("first_bytes", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n", OK])
@both_loops
def test_nothing_is_sent_twice_after_a_byte_of_an_answer(run: Run, first_bytes: bytes) -> None:
    """Once the engine has begun to answer, a break is a failure: the request may have been carried out."""

    async def script(peer: Engine, raw: Raw) -> None:
        await peer.request(raw)
        raw.send(ABC)
        await peer.request(raw)
        raw.send(first_bytes)

    async def main() -> None:
        async with engine(script) as peer:
            client = Client("127.0.0.1", peer.port)
            await asked(client)
            assert (await asked(client)).kinds == [FailureKind.RESET]
            assert peer.requests == 2
            await client.close()

    run(main())


@both_loops
def test_the_replacement_is_not_replaced(run: Run) -> None:
    """A fresh connection that breaks is a failure, even if it stands in for a dead one."""

    async def script(peer: Engine, raw: Raw) -> None:
        await peer.request(raw)
        if peer.connections == 1:
            raw.send(ABC)
            await raw.head()

    async def main() -> None:
        async with engine(script) as peer:
            client = Client("127.0.0.1", peer.port)
            await asked(client)
            assert (await asked(client)).kinds == [FailureKind.RESET]
            assert peer.connections == 2
            await client.close()

    run(main())


@both_loops
def test_reuse_at_the_moment_of_closing(run: Run) -> None:
    """An engine that closes idle connections just as they are used: every call succeeds, each runs once."""

    async def script(peer: Engine, raw: Raw) -> None:
        while True:
            try:
                request = await asyncio.wait_for(peer.request(raw), 0.01)
            except TimeoutError:
                return
            if not request:
                return
            raw.send(ABC)

    async def main() -> None:
        rng = Random(7)
        async with engine(script) as peer:
            client = Client("127.0.0.1", peer.port)
            for _ in range(30):
                sink = await asked(client, ASK.replace(b"GET", b"POST"))
                assert (sink.body, sink.failures) == (b"abc", [])
                await asyncio.sleep(0.01 + rng.gauss(0, 0.001))
            assert peer.requests == 30
            await client.close()

    run(main())


@both_loops
def test_reuse_can_be_forbidden(run: Run) -> None:
    """A caller that distrusts an answer keeps its connection out of the pool."""

    async def main() -> None:
        async with engine(whole) as peer:
            client = Client("127.0.0.1", peer.port)
            sink = Sink()
            client.send(ASK, b"", sink).reusable = False
            await until(lambda: sink.over)
            assert (sink.ends, client.idle) == (1, 0)
            await client.close()

    run(main())


@both_loops
def test_no_connection(run: Run) -> None:
    """A refusal and a host that does not exist are CONNECT failures."""

    async def main() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # bound and not listening
            for host in ("127.0.0.1", "no.such.host.invalid"):
                client = Client(host, taken.getsockname()[1])
                assert (await asked(client)).kinds == [FailureKind.CONNECT]
                assert client.active == 0
                await client.close()

    run(main())


@both_loops
@pytest.mark.parametrize("host", ["a" * 64 + ".test", "a..test"])
def test_a_name_that_cannot_be_looked_up(run: Run, host: str) -> None:
    """A host that no name service has a form for is no connection, and the call hears so."""

    async def main() -> None:
        client = Client(host, 80)
        sink = Sink()
        client.send(ASK, b"", sink)
        await until(lambda: sink.over)
        assert sink.kinds == [FailureKind.CONNECT]
        await client.close()

    run(main())


@both_loops
def test_a_connection_that_takes_too_long(run: Run) -> None:
    """A listener whose backlog is full never completes the handshake: CONNECT at the deadline."""

    async def main() -> None:
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            port = full.getsockname()[1]
            async with connected(port):
                client = Client("127.0.0.1", port, ClientLimits(connect_timeout_s=0.1))
                sinks = [Sink() for _ in range(3)]  # the kernel lets one or two past the backlog
                for sink in sinks:
                    client.send(ASK, b"", sink).expect_within(0.5)
                await until(lambda: all(sink.over for sink in sinks))
                assert FailureKind.CONNECT in {kind for sink in sinks for kind in sink.kinds}
                assert client.active == 0
                await client.close()

    run(main())


@both_loops
def test_an_engine_that_stalls(run: Run) -> None:
    """No byte for the time allowed is STALLED; each byte begins it anew; the connection is closed."""
    left = asyncio.Event()

    async def script(peer: Engine, raw: Raw) -> None:
        await peer.request(raw)
        raw.send(CHUNKED)
        for _ in range(6):
            await asyncio.sleep(0.05)
            raw.send(b"1\r\nx\r\n")
        assert await raw.rest() == b""
        left.set()

    async def main() -> None:
        async with engine(script) as peer:
            client = Client("127.0.0.1", peer.port)
            sink = Sink()
            client.send(ASK, b"", sink).expect_within(0.25)
            await until(lambda: sink.over)
            assert (sink.body, sink.kinds) == (b"x" * 6, [FailureKind.STALLED])
            await left.wait()
            assert client.active == 0
            await client.close()

    run(main())


@both_loops
def test_stalls_are_not_counted_while_paused_or_off(run: Run) -> None:
    """A caller that does not read cannot blame the engine; None waits for ever."""

    async def main() -> None:
        async with engine(silent) as peer:
            client = Client("127.0.0.1", peer.port)
            sink = Sink()
            call = client.send(ASK, b"", sink)
            call.expect_within(0.05)
            call.pause()
            await asyncio.sleep(0.3)
            assert not sink.over
            call.expect_within(None)
            call.resume()
            await asyncio.sleep(0.2)
            assert not sink.over
            call.expect_within(0.05)
            await until(lambda: sink.over)
            assert sink.kinds == [FailureKind.STALLED]
            await client.close()

    run(main())


@both_loops
def test_a_pause_holds_the_engine_back(run: Run) -> None:
    """While paused hardly anything is read, so the engine's writes stall; afterwards every byte comes."""
    answer_bytes = 32 * 2**20
    sent = 0

    async def script(peer: Engine, raw: Raw) -> None:
        nonlocal sent
        await peer.request(raw)
        raw.send(OK + b"content-length: %d\r\n\r\n" % answer_bytes)
        while sent < answer_bytes:
            raw.send(b"x" * 65_536)
            sent += 65_536
            await raw.writer.drain()
        await silent(peer, raw)

    async def main() -> None:
        async with engine(script) as peer:
            client = Client("127.0.0.1", peer.port)
            sink = Sink()
            call = client.send(ASK, b"", sink)
            call.pause()
            before = -1
            while not sent or before != sent:
                before = sent
                await asyncio.sleep(0.05)
            assert sent < answer_bytes
            assert not sink.reads
            call.resume()
            await until(lambda: sink.reads)
            call.pause()
            read = len(sink.body)
            await asyncio.sleep(0.05)
            assert len(sink.body) == read
            call.resume()
            await until(lambda: sink.over)
            assert len(sink.body) == answer_bytes
            assert client.idle == 1
            await client.close()

    run(main())


@pytest.mark.parametrize("state", ["connecting", "sent", "begun", "over"])
@both_loops
def test_cancel(run: Run, state: str) -> None:
    """The engine sees the connection close at once, the sink hears nothing more, cancelling twice is fine."""
    left = asyncio.Event()

    async def script(peer: Engine, raw: Raw) -> None:
        await peer.request(raw)
        if state == "over":
            raw.send(ABC)
        elif state == "begun":
            raw.send(CHUNKED + b"1\r\nx\r\n")
        await peer.request(raw)
        left.set()

    async def main() -> None:
        async with engine(script) as peer:
            client = Client("127.0.0.1", peer.port)
            sink = Sink()
            call = client.send(ASK, b"", sink)
            if state != "connecting":
                await until(lambda: peer.requests)
            if state in ("begun", "over"):
                await until(lambda: sink.body)
            heard = (sink.reads, sink.over)
            call.cancel()
            call.cancel()
            call.pause()
            call.resume()
            call.expect_within(0.01)
            assert client.active == 0
            if state in ("sent", "begun"):
                await left.wait()
            await asyncio.sleep(0.05)
            assert heard == (sink.reads, sink.over)
            assert client.idle == (1 if state == "over" else 0)
            await client.close()

    run(main())


@pytest.mark.parametrize("moment", ["on_head", "on_body"])
@both_loops
def test_a_sink_may_cancel_from_inside(run: Run, moment: str) -> None:
    """A sink that cancels in a callback hears nothing after it, though the whole answer had arrived."""

    class Cancelling(Sink):
        def on_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
            super().on_head(status, headers)
            if moment == "on_head":
                calls[0].cancel()

        def on_body(self, data: bytes) -> None:
            super().on_body(data)
            calls[0].cancel()

    calls = []

    async def main() -> None:
        async with engine(whole) as peer:
            client = Client("127.0.0.1", peer.port)
            sink = Cancelling()
            calls.append(client.send(ASK, b"", sink))
            await until(lambda: client.active == 0)
            await asyncio.sleep(0.02)
            assert not sink.over
            assert len(sink.reads) == (1 if moment == "on_body" else 0)
            assert client.idle == 0
            await client.close()

    run(main())


@both_loops
def test_a_sink_may_send_again_from_inside(run: Run) -> None:
    """A call made in `on_end` finds the connection in the pool already."""

    class Chaining(Sink):
        def on_end(self) -> None:
            super().on_end()
            clients[0].send(ASK, b"", second)

    clients: list[Client] = []
    second = Sink()

    async def main() -> None:
        async with engine(whole) as peer:
            clients.append(Client("127.0.0.1", peer.port))
            clients[0].send(ASK, b"", Chaining())
            await until(lambda: second.over)
            assert peer.connections == 1
            await clients[0].close()

    run(main())


@pytest.mark.parametrize("seed", range(3))
@both_loops
def test_cancels_at_random_leave_nothing_behind(run: Run, seed: int) -> None:
    """After a storm of calls, cancels, resets and garbage the accounts are at 0 and the pool still works."""
    rng = Random(seed)
    answers = [
        ABC,
        ABC,
        CHUNKED + b"3\r\nabc\r\n0\r\n\r\n",
        b"garbage\r\n",
        OK + b"content-length: 9\r\n\r\nabc",
    ]

    async def script(peer: Engine, raw: Raw) -> None:
        while request := await peer.request(raw):
            answer = ABC if b"/last" in request else rng.choice(answers)
            await asyncio.sleep(rng.expovariate(500))
            raw.send(answer)
            if answer not in answers[:3] or rng.randrange(4) == 0:
                return

    async def one(client: Client) -> None:
        sink = Sink()
        call = client.send(ASK, b"", sink)
        call.expect_within(0.15)
        for action in rng.choices([call.cancel, call.pause, call.resume, None], k=2):
            await asyncio.sleep(rng.expovariate(300))
            if action is not None:
                action()
        call.resume()
        if rng.randrange(2):
            call.cancel()
        else:
            await until(lambda: sink.over or client.active == 0)

    async def main() -> None:
        async with engine(script) as peer:
            client = Client("127.0.0.1", peer.port)
            for _ in range(10):
                await asyncio.gather(*(one(client) for _ in range(20)))
            await until(lambda: client.active == 0)
            for _ in range(10):
                sink = await asked(client, ASK.replace(b"/", b"/last", 1))
                assert (sink.body, sink.failures) == (b"abc", [])
            assert client.active == 0
            await client.close()
            assert client.idle == 0

    run(main())


def test_a_sink_that_raises_costs_its_own_call() -> None:
    """Whatever a sink raises, its call ends once and the deadlines of the others are still kept."""

    class Raising(Sink):
        def on_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
            super().on_head(status, headers)
            raise RuntimeError("on purpose")

        def on_failure(self, kind: FailureKind, detail: str) -> None:
            super().on_failure(kind, detail)
            raise RuntimeError("on purpose")

    async def main() -> None:
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
        async with engine(whole) as talking, engine(silent) as mute:
            for peer in (talking, mute):
                client = Client("127.0.0.1", peer.port)
                raising, sink = Raising(), Sink()
                for one in (raising, sink):
                    client.send(ASK, b"", one).expect_within(0.05)
                await until(lambda: raising.over and sink.over)  # noqa: B023 - awaited in this turn
                assert client.active == 0
                await client.close()
            assert (sink.kinds, raising.kinds) == ([FailureKind.STALLED], [FailureKind.STALLED])
        assert len(reported) == 3

    asyncio.run(main())


@both_loops
def test_close_fails_what_is_under_way(run: Run) -> None:
    """Every call hears of the closing, those that still connect too, and nothing stays open."""

    async def main() -> None:
        async with engine(silent) as peer:
            client = Client("127.0.0.1", peer.port)
            sinks = [Sink() for _ in range(3)]
            for sink in sinks[:2]:
                client.send(ASK, b"", sink)
            await until(lambda: peer.requests == 2)
            client.send(ASK, b"", sinks[2])
            await client.close()
            assert [sink.kinds for sink in sinks] == [[FailureKind.RESET]] * 3
            assert (client.active, client.idle) == (0, 0)

    run(main())


@both_loops
def test_large_bodies_go_out_whole(run: Run) -> None:
    """A body far beyond what the kernel buffers is sent, untouched."""
    body = Random(1).randbytes(8 * 2**20)

    async def main() -> None:
        async with engine(whole) as peer:
            client = Client("127.0.0.1", peer.port)
            head = b"POST /x HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body)
            assert (await asked(client, head, body)).body == b"/x"
            assert peer.seen == head + body
            await client.close()

    run(main())


@both_loops
def test_request(run: Run) -> None:
    """A whole answer in one go; every failure, lateness included, is an UpstreamError; nothing leaks."""

    async def main() -> None:
        async with engine(whole) as peer:
            client = Client("127.0.0.1", peer.port)
            response = await client.request("POST", "/p?q", [(b"x-a", b"b")], b"body")
            assert (response.status, response.body) == (200, b"/p?q")
            assert response.headers == [(b"content-length", b"4")]
            head = b"POST /p?q HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nx-a: b\r\ncontent-length: 4\r\n\r\nbody"
            assert peer.seen == head % peer.port
            await client.request("GET", "/")
            assert (client.active, client.idle, peer.connections) == (0, 1, 1)
            await client.close()
        async with engine(silent) as peer:
            client = Client("127.0.0.1", peer.port)
            with pytest.raises(UpstreamError, match="within"):
                await client.request("GET", "/", timeout_s=0.05)
            waiting = asyncio.ensure_future(client.request("GET", "/"))
            await until(lambda: client.active)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert client.active == 0
            await client.close()
        with pytest.raises(UpstreamError, match="connect"):
            await client.request("GET", "/")
        await client.close()

    run(main())
