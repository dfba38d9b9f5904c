"""Everything at once: engines that come, go and misbehave, clients that stay or leave. All of it must end."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

import pytest

from tests.gateway.fake_engine import (
    DONE,
    ROLE,
    FakeEngine,
    Script,
    Turn,
    answer,
    delta,
    event,
    events,
    fake_engine,
    raw,
    stall,
    status,
    usage_chunk,
)
from tests.gateway.gateway_in_process import Running, configured, run, serving
from tests.gateway.http_client import CHAT, chat, talking
from tidegate.core.messages import DrainAsked
from tidegate.gateway.upstream import Upstream

FINE: tuple[Script, ...] = (answer(), answer("a", "b", prompt=30, output=9), answer("x" * 5_000))
FAULTY: tuple[Script, ...] = (
    raw(b"", then="reset"),
    raw(b"HTTP/1.1 200 OK\r\ncontent-le", then="close"),
    raw(b"garbage\r\n\r\n"),
    stall(),
    events(ROLE),
    events(ROLE, then="reset"),
    events(ROLE, delta("a"), then="reset"),
    events(ROLE, delta("a"), then="stall"),
    events(ROLE, delta("a"), event({"error": {"message": "no"}})),
    events(ROLE, delta("a"), delta("", finish="stop"), usage_chunk(5, 1), DONE, then="close"),
    status(500),
    status(503, b"{}", "retry-after: 0"),
    status(429),
    status(401),
    status(400),
)


def moody(rng: Random, faults: float) -> Script:
    """An engine that is well or ill by the throw of a die, after a moment."""

    async def script(turn: Turn) -> None:
        await turn.connection.closed_or_after(rng.choice([0.0, 0.001, 0.01]))
        await rng.choice(FAULTY if rng.random() < faults else FINE)(turn)

    return script


async def client(gateway: Running, rng: Random, outcomes: Counter[str]) -> None:
    """Ask once, in one of many ways, and stay to the end or leave at some point."""
    headers = rng.choice([{}, {}, {"x-tidegate-timeout-ms": str(rng.randint(1, 400))}])
    body: Any = rng.choice([b"{", chat(False), chat(False), *[chat(True)] * 4])
    patience_s = rng.choice([None, None, None, 0.0, 0.002, 0.02, 0.1])
    async with talking(gateway.port) as talk:
        talk.request(CHAT, body, headers)
        try:
            async with asyncio.timeout(patience_s):
                reply = await talk.reply()
        except (TimeoutError, asyncio.IncompleteReadError):
            outcomes["left"] += 1
        else:
            outcomes[str(reply.status) if reply.whole else "broken"] += 1


@pytest.mark.parametrize("seed", range(3))
def test_every_call_ends(seed: int) -> None:
    """Hundreds of calls under churn: each has one outcome within its deadlines, and nothing stays held."""

    async def main() -> None:
        rng = Random(seed)
        outcomes: Counter[str] = Counter()
        async with (
            fake_engine(moody(rng, 0.1)) as a,
            fake_engine(moody(rng, 0.5)) as b,
            fake_engine(moody(rng, 0.9)) as c,
            fake_engine(answer()) as gone,
        ):
            engines = [a, b, c, gone]
            config = configured(
                *engines,
                pool={
                    "gate": {"max_concurrency": 12},
                    "queue": {"max_requests": 30},
                    "deadlines": {"ttft_s": 0.3, "total_s": 0.8},
                    "breaker": {"open_s": 0.05, "open_max_s": 0.1},
                    "health": {"interval_s": 0.05, "fall": 1, "rise": 1},
                    "retry": {"budget_ratio": 1.0},
                },
                upstream={"inter_token_timeout_s": 0.3, "idle_timeout_s": 0.2},
                classes={"default": {"max_wait_s": 0.3}},
                limits={"tokens_per_minute": 60_000_000, "max_in_flight": 150},
            )
            async with serving(config) as gateway:
                trouble = asyncio.create_task(churn(gateway, engines, rng))
                rounds = 0
                # While all engines are ill at once, hundreds are refused before one is well again.
                while rounds < 8 or outcomes["200"] <= 20:
                    await asyncio.gather(*[client(gateway, rng, outcomes) for _ in range(50)])
                    gateway.service.governor.check()
                    rounds += 1
                trouble.cancel()
                await gateway.settled()
                assert outcomes.total() == 50 * rounds
                assert set(outcomes) <= {"200", "400", "429", "502", "503", "504", "left", "broken"}

    run(main())


async def churn(gateway: Running, engines: list[FakeEngine], rng: Random) -> None:
    """Make engines ill and well, and drain and restore them, all the time."""
    while True:
        engine = rng.choice(engines)
        engine.healthy = rng.random() < 0.7
        if rng.random() < 0.3:
            for connection in engine.connections:
                if connection.closed_at is None and rng.random() < 0.5:
                    connection.transport.abort()
        name = engine.url.removeprefix("http://")
        gateway.service.driver.tell(DrainAsked(replica=name, drain=rng.random() < 0.3))
        await asyncio.sleep(0.01)


def test_calls_while_the_chosen_replica_is_gone() -> None:
    """Half the replicas take no connection: every call is served by the others."""

    async def main() -> None:
        async with fake_engine(answer()) as gone, fake_engine(answer()) as away:
            pass
        async with fake_engine(answer()) as a, fake_engine(answer()) as b:
            # Probes have not found them dead yet.
            pool = {"retry": {"budget_ratio": 1.0}}
            async with serving(configured(gone, a, away, b, pool=pool)) as gateway:
                for _ in range(10):
                    replies = await asyncio.gather(*[gateway.ask(chat()) for _ in range(50)])
                    assert {reply.status for reply in replies} == {200}

    run(main())


class Stuck:
    """A transport that closes, and then says that it could not."""

    def __init__(self, transport: Any) -> None:
        self.transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def abort(self) -> None:
        self.transport.abort()
        raise OSError("cannot close")


def test_a_close_that_raises() -> None:
    """When closing the engine's connection fails, the client's slot is given back all the same."""
    faults: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))
        async with (
            fake_engine(events(ROLE, delta("x"))) as engine,
            serving(configured(engine, limits={"max_in_flight": 1})) as gateway,
        ):
            (upstream,) = gateway.service.upstreams.values()
            async with talking(gateway.port) as talk:
                talk.request(CHAT, chat())
                await talk.head()
                for call in upstream.client.calls:
                    assert call.connection is not None
                    call.connection._transport = Stuck(call.connection._transport)  # type: ignore[assignment]
            await gateway.settled()
            engine.script = answer()
            assert (await gateway.ask(chat())).status == 200
            assert [record.reason for record in gateway.records] == ["client_gone", None]

    run(main())
    assert len(faults) == 1


class Faulty(dict[str, Upstream]):
    """The replicas, of which every third look-up fails."""

    looked_up = 0

    def __getitem__(self, name: str) -> Upstream:
        self.looked_up += 1
        if self.looked_up % 3 == 0:
            raise RuntimeError("a fault of ours")
        return super().__getitem__(name)


def test_an_exception_of_ours_costs_one_request() -> None:
    """A fault inside the gateway is told to the loop, answered, and leaves no slot and no command undone."""
    faults: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))
        async with fake_engine(answer()) as engine:
            config = configured(
                engine,
                pool={"gate": {"max_concurrency": 1}, "breaker": {"consecutive_failures": 100}},
                limits={"max_in_flight": 10},
            )
            async with serving(config) as gateway:
                gateway.service.gateway.upstreams = Faulty(gateway.service.upstreams)
                replies = await asyncio.gather(*[gateway.ask(chat()) for _ in range(9)])
                assert Counter(reply.status for reply in replies) == {200: 6, 502: 3}

    run(main())
    assert len(faults) == 3
