"""Clients that hang up: the engine is stopped within a second, and every count comes back to zero."""

from __future__ import annotations

import asyncio
from random import Random
from typing import NamedTuple

import pytest

from tests.gateway.fake_engine import DONE, ROLE, FakeEngine, Turn, answer, delta, fake_engine, stall
from tests.gateway.gateway_in_process import Running, configured, run, serving, until
from tests.gateway.http_client import CHAT, Talk, chat, talking

WITHIN_S = 1.0
"""From the client's hanging up to the end of the engine's connection."""


async def by_what_is_asked(turn: Turn) -> None:
    """Stream for ever, say only a role, or say nothing at all, as the prompt demands."""
    said = turn.request.json()["messages"][0]["content"]
    if "silent" not in said:
        await turn.head()
        await turn.chunk(ROLE)
        if "talk" in said:
            await turn.chunk(delta("word"))
    await turn.stall()


class Left(NamedTuple):
    """One client that hung up, and when."""

    at: float
    marker: str


async def leave(gateway: Running, kind: str, number: int, go: asyncio.Event) -> Left:
    """Ask, wait for the point at which to leave, and hang up once all are there."""
    marker = f"{kind} number {number}."
    async with talking(gateway.port) as talk:
        talk.request(CHAT, chat(stream=kind != "whole silent", content=marker))
        if kind == "talk":
            await talk.head()
            await talk.chunk()
        await go.wait()
        talk.hang_up()
        return Left(asyncio.get_running_loop().time(), marker)


def test_a_thousand_clients_hang_up() -> None:
    """In the middle of a stream, before the first token and in the queue: no trace is left of any."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with fake_engine(by_what_is_asked) as engine:
            config = configured(
                engine,
                pool={"gate": {"max_concurrency": 750}},
                limits={"tokens_per_minute": 600_000_000, "max_in_flight": 1_000},
            )
            async with serving(config) as gateway:
                go = asyncio.Event()
                kinds = ["talk"] * 450 + ["role"] * 100 + ["silent"] * 100 + ["whole silent"] * 100
                clients = [
                    asyncio.create_task(leave(gateway, kind, number, go)) for number, kind in enumerate(kinds)
                ]
                await until(lambda: len(engine.requests) == 750)
                queued = [
                    asyncio.create_task(leave(gateway, "talk", 1_000 + n, asyncio.Event()))
                    for n in range(250)
                ]
                await until(lambda: gateway.queued == 250)
                # Those that wait leave first, or their places would be taken by those behind them.
                for task in queued:
                    task.cancel()
                await asyncio.wait(queued)
                await until(lambda: gateway.queued == 0)
                assert (gateway.in_flight, len(engine.requests)) == (750, 750)
                go.set()
                left = {one.marker: one.at for one in await asyncio.gather(*clients)}
                began_at = min(left.values())
                await until(lambda: engine.running == 0 and not gateway.in_flight)
                zero_at = loop.time()
                waits = []
                for seen in engine.requests:
                    closed_at = seen.connection.closed_at
                    assert closed_at is not None
                    waits.append(closed_at - left[seen.json()["messages"][0]["content"]])
                assert max(waits) < WITHIN_S, max(waits)
                assert len(gateway.records) == 1_000
                assert {record.reason for record in gateway.records} == {"client_gone"}
                await asyncio.wait_for(until(lambda: gateway.service.server.connections == 0), 5)
                waits.sort()
                print(
                    f"\n1000 clients hung up (450 streaming, 200 before a token, 100 whole, 250 queued): "
                    f"engine connections closed after p50 {waits[375] * 1e3:.1f} ms, "
                    f"p99 {waits[742] * 1e3:.1f} ms, max {waits[-1] * 1e3:.1f} ms; "
                    f"all counts at zero {(zero_at - began_at) * 1e3:.0f} ms after the first"
                )

    run(main())


def test_one_slot_and_a_hundred_clients_that_leave() -> None:
    """With one slot, a client that leaves after its first chunk frees it for the next, every time."""

    async def main() -> None:
        async with fake_engine(by_what_is_asked) as engine:
            config = configured(engine, limits={"max_in_flight": 1}, pool={"gate": {"max_concurrency": 1}})
            async with serving(config) as gateway:
                for number in range(100):
                    async with talking(gateway.port) as talk:
                        talk.request(CHAT, chat(content="talk"))
                        assert (await talk.head()).status == 200, number
                        await talk.chunk()
                    await until(lambda: not gateway.in_flight)
                await until(lambda: engine.running == 0)
                assert engine.peak == 1

    run(main())


def test_leaving_around_the_moment_of_dispatch() -> None:
    """Whether a client leaves before, at or after its dispatch, nothing stays held and the next is served."""

    async def main() -> None:
        rng = Random(7)
        async with fake_engine(answer()) as engine:
            config = configured(engine, limits={"max_in_flight": 1}, pool={"gate": {"max_concurrency": 1}})
            async with serving(config) as gateway:
                for _ in range(200):
                    async with talking(gateway.port) as talk:
                        talk.request(CHAT, chat(stream=rng.random() < 0.5))
                        await asyncio.sleep(rng.choice([0, 0, 0.0005, 0.001, 0.002]))
                    await until(lambda: not gateway.in_flight)
                    gateway.service.governor.check()
                assert (await gateway.ask(chat())).status == 200

    run(main())


def test_five_that_wait_and_leave() -> None:
    """The queue is empty at once when those that wait leave, and the engine never sees them."""

    async def main() -> None:
        async with fake_engine(by_what_is_asked) as engine:
            config = configured(engine, pool={"gate": {"max_concurrency": 1}})
            async with serving(config) as gateway, talking(gateway.port) as holder:
                holder.request(CHAT, chat(content="talk"))
                await holder.head()
                waiting = [await open_and_ask(gateway) for _ in range(5)]
                await until(lambda: gateway.queued == 5)
                for talk in waiting:
                    talk.hang_up()
                await asyncio.wait_for(until(lambda: gateway.queued == 0), WITHIN_S)
                assert gateway.in_flight == 1
                holder.hang_up()
                await gateway.settled()
                assert len(engine.requests) == 1

    run(main())


async def open_and_ask(gateway: Running) -> Talk:
    """A client that has asked and waits."""
    talk = Talk(*await asyncio.open_connection("127.0.0.1", gateway.port))
    talk.request(CHAT, chat())
    return talk


@pytest.mark.parametrize("how", ["reset", "close", "half close"])
@pytest.mark.parametrize("content", ["silent", "role", "talk"])
def test_every_way_of_leaving_is_noticed(how: str, content: str) -> None:
    """A reset, an ordinary close, and a client that only says that it will send no more."""

    async def main() -> None:
        async with fake_engine(by_what_is_asked) as engine, serving(configured(engine)) as gateway:
            async with talking(gateway.port) as talk:
                talk.request(CHAT, chat(content=content))
                await until(lambda: engine.running == 1)
                if how == "reset":
                    talk.hang_up()
                elif how == "close":
                    talk.writer.close()
                else:
                    talk.writer.write_eof()
                await asyncio.wait_for(until(lambda: engine.running == 0), WITHIN_S)
                await gateway.settled()
            assert gateway.records[0].reason == "client_gone"
            # No second attempt for somebody who has left, and the replica is not to blame.
            assert len(engine.requests) == 1
            assert gateway.service.governor.members[str(engine.url)[7:]].breaker.state == "closed"

    run(main())


def test_leaving_while_a_failed_attempt_is_being_replaced() -> None:
    """A client that leaves between two attempts is not tried again, and leaves nothing behind."""

    async def main() -> None:
        async with fake_engine(busy) as engine, serving(configured(engine)) as gateway:
            async with talking(gateway.port) as talk:
                talk.request(CHAT, chat())
                await until(lambda: len(gateway.service.governor.pools["tide-1"].retrying) == 1)
            await gateway.settled()
            assert len(engine.requests) == 1

    run(main())


async def busy(turn: Turn) -> None:
    """Refuse for a while."""
    await turn.respond(503, b"{}", "retry-after: 5")


def test_leaving_during_the_connect() -> None:
    """A client that leaves before its engine has taken the connection leaves no call behind."""

    async def main() -> None:
        async with fake_engine(stall()) as engine, serving(configured(engine)) as gateway:
            for _ in range(50):
                async with talking(gateway.port) as talk:
                    talk.request(CHAT, chat())
                    await until(lambda: gateway.in_flight == 1)
                await gateway.settled()

    run(main())


def test_leaving_at_the_very_end() -> None:
    """Around the last event, either the answer counts as given or as left: never both, never neither."""

    async def main() -> None:
        async with fake_engine(short) as engine, serving(configured(engine)) as gateway:
            for number in range(100):
                async with talking(gateway.port) as talk:
                    talk.request(CHAT, chat())
                    await talk.reader.readuntil(b"[DONE]" if number % 2 else b"ends")
                await gateway.settled()
            assert len(gateway.records) == len(engine.requests) == 100
            assert {record.reason for record in gateway.records} <= {None, "client_gone"}

    run(main())


async def short(turn: Turn) -> None:
    """A stream in two writes."""
    await turn.head()
    await turn.chunk(ROLE + delta("ends"))
    await turn.chunk(delta("", finish="stop") + DONE)
    await turn.end()


def test_abandoned_streams_leave_room_in_the_pool() -> None:
    """Ten clients leave ten streams; the eleventh is served at once by a pool of ten."""

    async def main() -> None:
        async with (
            fake_engine(by_what_is_asked) as engine,
            serving(configured(engine, pool={"gate": {"max_concurrency": 10}})) as gateway,
        ):
            go = asyncio.Event()
            clients = [asyncio.create_task(leave(gateway, "talk", n, go)) for n in range(10)]
            await until(lambda: engine.running == 10)
            go.set()
            await asyncio.gather(*clients)
            engine.script = answer()
            assert (await gateway.ask(chat())).text == "Hello there."
            assert client_calls(gateway, engine) == 0

    run(main())


def client_calls(gateway: Running, engine: FakeEngine) -> int:
    """Calls that the gateway's pool of connections believes to be under way."""
    return gateway.service.upstreams[engine.url.removeprefix("http://")].client.active
