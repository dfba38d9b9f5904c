"""Clients that read slowly or not at all: the engine waits, memory stays bounded, a stall is cut."""

from __future__ import annotations

import asyncio
import json
import socket
import tracemalloc

import pytest

from tests.gateway.fake_engine import DONE, ROLE, Turn, answer, delta, fake_engine
from tests.gateway.gateway_in_process import Running, configured, run, serving, until
from tests.gateway.http_client import CHAT, Talk, chat, talking, text_of, written

PIECE = delta("x" * 10_000)
PIECES = 2_000
"""20 MB: far more than all buffers of the system on the way."""


class Producer:
    """A script that streams as fast as it is read, and counts what left."""

    def __init__(self, pieces: int = PIECES, whole: bool = False) -> None:
        self.sent = 0
        self.pieces = pieces
        self.whole = whole

    async def __call__(self, turn: Turn) -> None:
        if self.whole:
            await turn.head(200, "content-type: application/json")
        else:
            await turn.head()
            await turn.chunk(ROLE)
        for _ in range(self.pieces):
            await turn.chunk(PIECE)
            self.sent += len(PIECE)
        await turn.chunk(delta("", finish="stop") + DONE)
        await turn.end()


async def slow_talk(gateway: Running) -> Talk:
    """A client whose system takes little that it does not read itself."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", gateway.port))
    return Talk(*await asyncio.open_connection(sock=raw, limit=4_096))


async def standstill(producer: Producer) -> int:
    """Wait until the engine cannot send any more; bytes that it has sent by then."""
    before = -1
    while before != producer.sent or not producer.sent:
        before = producer.sent
        await asyncio.sleep(0.1)
    return before


def buffered(gateway: Running) -> int:
    """Bytes that wait in this process for clients to take them."""
    connections = gateway.service.server._open
    return sum(connection._transport.get_write_buffer_size() for connection in connections)


@pytest.mark.parametrize("whole", [False, True], ids=["stream", "whole"])
def test_a_client_that_stops_reading_stops_its_engine(whole: bool) -> None:
    """The engine's writes stall, little is held here, and once the client reads on it gets every byte."""

    async def main() -> None:
        producer = Producer(whole=whole)
        async with fake_engine(producer) as engine, serving(configured(engine)) as gateway:
            talk = await slow_talk(gateway)
            talk.request(CHAT, chat(not whole))
            sent = await standstill(producer)
            assert sent < PIECES * len(PIECE)
            assert buffered(gateway) < 2 * 2**20
            reply = await talk.reply()
            assert reply.whole
            assert reply.body.count(PIECE) == PIECES
            talk.hang_up()

    run(main())


def test_twenty_clients_that_stop_reading() -> None:
    """Each holds no more than its share, others are served meanwhile, and all are cut once they stall."""

    async def main() -> None:
        async with fake_engine(Producer()) as engine:
            config = configured(engine, http={"write_timeout_s": 0.5})
            async with serving(config) as gateway:
                talks = [await slow_talk(gateway) for _ in range(20)]
                for talk in talks:
                    talk.request(CHAT, chat())
                await until(lambda: len(engine.requests) == 20)
                engine.script = answer()
                assert (await gateway.ask(chat())).text == "Hello there."
                most = 0

                def cut() -> bool:
                    nonlocal most
                    most = max(most, buffered(gateway))
                    return engine.running == 0

                await until(cut)
                assert most < 20 * 256 * 2**10
                await gateway.settled()
                assert sum(record.reason == "client_gone" for record in gateway.records) == 20
                for talk in talks:
                    talk.hang_up()

    run(main())


def test_a_client_that_reads_slowly_is_not_cut() -> None:
    """As long as it takes some bytes within the bound, a client may take its time."""

    async def main() -> None:
        producer = Producer(pieces=120)
        async with fake_engine(producer) as engine:
            config = configured(
                engine, http={"write_timeout_s": 0.6}, upstream={"inter_token_timeout_s": 0.2}
            )
            async with serving(config) as gateway:
                talk = await slow_talk(gateway)
                talk.request(CHAT, chat())
                body = b""
                while not body.endswith(b"0\r\n\r\n"):
                    body += await talk.reader.read(60_000)
                    await asyncio.sleep(0.02)
                assert body.count(b"x" * 10_000) == 120
                talk.hang_up()
            assert gateway.records[0].reason is None

    run(main())


def test_pipelined_requests_are_answered_in_order() -> None:
    """Sent all at once, streams and whole answers come back one after the other, each whole."""

    async def main() -> None:
        async def script(turn: Turn) -> None:
            said = turn.request.json()["messages"][0]["content"]
            await answer(said, "!")(turn)

        async with (
            fake_engine(script) as engine,
            serving(configured(engine)) as gateway,
            talking(gateway.port) as talk,
        ):
            batch = b""
            for number in range(40):
                batch += written(CHAT, chat(number % 3 > 0, content=f"number {number}"))
                batch += written("/v1/models")
            talk.send(batch)
            for number in range(40):
                reply = await talk.reply()
                if number % 3:
                    assert reply.text == f"number {number}!"
                else:
                    assert reply.json()["choices"][0]["message"]["content"] == f"number {number}!"
                assert (await talk.reply()).json()["object"] == "list"

    run(main())


def test_leaving_with_requests_in_the_pipe() -> None:
    """A client that leaves is answered nothing more: what was pipelined behind never reaches an engine."""

    async def main() -> None:
        async def script(turn: Turn) -> None:
            await turn.head()
            await turn.chunk(ROLE + delta("x"))
            await turn.stall()

        async with fake_engine(script) as engine, serving(configured(engine)) as gateway:
            async with talking(gateway.port) as talk:
                talk.send(written(CHAT, chat()) * 5)
                await talk.head()
                await talk.chunk()
            await gateway.settled()
            assert len(engine.requests) == 1

    run(main())


def test_expect_100_continue() -> None:
    """The body is asked for only once the head is good; a refusal comes without it."""

    async def main() -> None:
        body = json.dumps(chat()).encode()
        async with fake_engine(answer()) as engine, serving(configured(engine)) as gateway:
            async with talking(gateway.port) as talk:
                headers = {"expect": "100-continue", "content-length": str(len(body))}
                talk.send(written(CHAT, b"", headers))
                assert await talk.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
                assert not engine.requests
                talk.send(body)
                assert (await talk.reply()).text == "Hello there."
            async with talking(gateway.port) as talk:
                talk.send(written("/v1/nowhere", b"", headers))
                assert (await talk.reply()).status == 404
                assert await talk.closed()

    run(main())


def test_an_old_client_gets_a_stream_too() -> None:
    """HTTP/1.0 knows no chunks: its stream ends with the connection, and a broken one breaks it."""

    async def main() -> None:
        async with fake_engine(answer()) as engine, serving(configured(engine)) as gateway:
            body = json.dumps(chat()).encode()
            request = b"POST %b HTTP/1.0\r\ncontent-length: %d\r\n\r\n" % (CHAT.encode(), len(body)) + body
            async with talking(gateway.port) as talk:
                talk.send(request)
                reply = await talk.reply()
                assert "transfer-encoding" not in reply.headers
                assert text_of(reply.data) == "Hello there."
                assert reply.data[-1] == "[DONE]"

    run(main())


def test_a_body_that_comes_byte_by_byte() -> None:
    """However a request is cut, it is one request."""

    async def main() -> None:
        async with fake_engine(answer()) as engine, serving(configured(engine)) as gateway:
            async with talking(gateway.port) as talk:
                for byte in written(CHAT, chat()):
                    talk.send(bytes([byte]))
                    await talk.writer.drain()
                    await asyncio.sleep(0)
                assert (await talk.reply()).text == "Hello there."
            assert engine.requests[0].json()["model"] == "tide-1"

    run(main())


def test_a_long_prompt_is_not_kept_for_a_long_stream() -> None:
    """Once an answer has begun it cannot be tried again, so what was asked is let go."""

    async def main() -> None:
        async def script(turn: Turn) -> None:
            await turn.head()
            turn.request.body = b""  # only what the gateway keeps is looked for
            await turn.chunk(ROLE + delta("x"))
            await turn.stall()

        async with fake_engine(script) as engine, serving(configured(engine)) as gateway:
            tracemalloc.start(6)
            async with talking(gateway.port) as talk:
                talk.request(CHAT, chat(content="x" * 8_000_000))
                await talk.head()
                await talk.chunk()
                traces = tracemalloc.take_snapshot().traces
                tracemalloc.stop()
                held = [trace.traceback.format() for trace in traces if trace.size > 2**20]
                assert not held, held

    run(main())


def test_a_large_prompt_reaches_the_engine_whole() -> None:
    """Eight megabytes of prompt go through, to an engine that takes its time to read them."""

    async def main() -> None:
        async with fake_engine(answer()) as engine, serving(configured(engine)) as gateway:
            content = "x" * 8_000_000
            assert (await gateway.ask(chat(content=content))).status == 200
            assert engine.requests[0].json()["messages"][0]["content"] == content

    run(main())
