"""Refusals by policy: status, when to come back, what is left; and that answers tell it too."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from tests.gateway.fake_engine import ROLE, Script, answer, delta, events, fake_engine, stall
from tests.gateway.gateway_in_process import configured, run, serving, until
from tests.gateway.http_client import CHAT, Reply, chat, talking

DURATION = re.compile(r"(\d+h)?(\d+m)?(\d+s)?|\d+ms")
OPEN = events(ROLE, delta("x"))
"""A stream that begins and goes on until it is left."""


def assert_come_back(reply: Reply, status: int, code: str, error_type: str) -> None:
    """A refusal that a later try can outlive names its wait, twice, and alike."""
    assert (reply.status, reply.error["code"], reply.error["type"]) == (status, code, error_type)
    assert reply.headers["x-should-retry"] == "true"
    seconds, milliseconds = int(reply.headers["retry-after"]), int(reply.headers["retry-after-ms"])
    assert 1 <= seconds <= 120
    assert seconds - 1 < milliseconds / 1000 <= seconds


def test_the_request_quota() -> None:
    """The call above the quota is a 429 with the exact wait; what is left is told on every answer."""

    async def main() -> None:
        async with fake_engine(answer()) as engine:
            limits = {"requests_per_minute": 3, "tokens_per_minute": 60_000}
            async with serving(configured(engine, limits=limits)) as gateway:
                for left in (2, 1, 0):
                    reply = await gateway.ask(chat())
                    assert reply.status == 200
                    assert reply.headers["x-ratelimit-limit-requests"] == "3"
                    assert reply.headers["x-ratelimit-remaining-requests"] == str(left)
                    assert DURATION.fullmatch(reply.headers["x-ratelimit-reset-requests"])
                    assert reply.headers["x-ratelimit-limit-tokens"] == "60000"
                    assert 0 < int(reply.headers["x-ratelimit-remaining-tokens"]) < 60_000
                    assert DURATION.fullmatch(reply.headers["x-ratelimit-reset-tokens"])
                reply = await gateway.ask(chat())
                assert_come_back(reply, 429, "request_quota_exceeded", "rate_limit_error")
                assert reply.headers["x-ratelimit-remaining-requests"] == "0"
                assert 15 <= int(reply.headers["retry-after"]) <= 20
                await gateway.settled()
                assert gateway.records[-1].charged_credits == 0
                assert len(engine.requests) == 3

    run(main())


def test_a_prompt_that_can_never_fit() -> None:
    """More than the burst can hold is a 400 that says so, and no invitation to come back."""

    async def main() -> None:
        async with (
            fake_engine(answer()) as engine,
            serving(configured(engine, limits={"tokens_per_minute": 100})) as gateway,
        ):
            reply = await gateway.ask(chat(content="x" * 10_000))
            assert (reply.status, reply.error["code"]) == (400, "never_fits")
            assert reply.headers["x-should-retry"] == "false"
            assert not engine.requests

    run(main())


@pytest.mark.parametrize("stream", [True, False])
def test_the_concurrency_quota(stream: bool) -> None:
    """While the one slot is taken others get a 429; once it is free the next is served."""

    async def main() -> None:
        async with (
            fake_engine(OPEN if stream else stall()) as engine,
            serving(configured(engine, limits={"max_in_flight": 1})) as gateway,
        ):
            async with talking(gateway.port) as first:
                first.request(CHAT, chat(stream))
                await until(lambda: engine.running == 1)
                reply = await gateway.ask(chat(stream))
                assert_come_back(reply, 429, "concurrency_quota_exceeded", "rate_limit_error")
            await gateway.settled()
            engine.script = answer()
            assert (await gateway.ask(chat(stream))).status == 200

    run(main())


def test_pipelined_requests_share_the_one_slot() -> None:
    """A request that was sent before the answer to the one before it finds the slot free again."""

    async def main() -> None:
        async with (
            fake_engine(answer()) as engine,
            serving(configured(engine, limits={"max_in_flight": 1})) as gateway,
        ):
            async with talking(gateway.port) as talk:
                for index in range(12):
                    talk.request(CHAT, chat(stream=index % 2 == 0))
                replies = [await talk.reply() for _ in range(12)]
            assert [reply.status for reply in replies] == [200] * 12
            assert engine.peak == 1

    run(main())


def one_at_a_time(**more: Any) -> dict[str, Any]:
    """A pool whose one replica takes one request."""
    return {"pool": {"gate": {"max_concurrency": 1}} | more.pop("pool", {})} | more


def test_a_full_queue() -> None:
    """When every place is taken the newcomer gets a 503 with a wait."""

    async def main() -> None:
        async with fake_engine(OPEN) as engine:
            settings = one_at_a_time(pool={"queue": {"max_requests": 2}})
            async with serving(configured(engine, **settings)) as gateway, talking(gateway.port) as first:
                first.request(CHAT, chat())
                await first.head()
                async with talking(gateway.port) as second, talking(gateway.port) as third:
                    second.request(CHAT, chat())
                    third.request(CHAT, chat())
                    await until(lambda: gateway.queued == 2)
                    reply = await gateway.ask(chat())
                    assert_come_back(reply, 503, "queue_full", "server_error")
                first.hang_up()

    run(main())


def test_a_wait_that_is_too_long() -> None:
    """Who has waited for as long as its class may is told when to come back."""

    async def main() -> None:
        async with fake_engine(OPEN) as engine:
            settings = one_at_a_time(classes={"default": {"max_wait_s": 0.2}})
            async with serving(configured(engine, **settings)) as gateway, talking(gateway.port) as first:
                first.request(CHAT, chat())
                await first.head()
                reply = await gateway.ask(chat())
                assert_come_back(reply, 503, "queue_timeout", "server_error")
                assert gateway.queued == 0
                first.hang_up()

    run(main())


def test_a_wait_that_would_be_too_long() -> None:
    """A request whose predicted wait breaks its own deadline is refused at once."""

    async def main() -> None:
        async with (
            fake_engine(answer("x", prompt=10, output=10)) as engine,
            serving(configured(engine, **one_at_a_time())) as gateway,
        ):
            drain = gateway.service.governor.pools["tide-1"].drain
            drain.settled_s = 0.001  # believe the rate after a millisecond of work
            await asyncio.gather(*[gateway.ask(chat()) for _ in range(20)])
            assert drain.tokens_per_s > 0
            engine.script = OPEN
            async with talking(gateway.port) as first, talking(gateway.port) as second:
                first.request(CHAT, chat())
                await first.head()
                second.request(CHAT, chat(content="x" * 8_000_000))
                await until(lambda: gateway.queued == 1)
                reply = await gateway.ask(chat(), headers={"x-tidegate-timeout-ms": "100"})
                assert_come_back(reply, 503, "predicted_wait_too_long", "server_error")

    run(main())


@pytest.mark.parametrize("script", [stall(), events(ROLE)], ids=["silent", "only a role"])
def test_a_callers_own_deadline(script: Script) -> None:
    """`x-tidegate-timeout-ms` ends a request that has no first token yet with a 504, and blames nobody."""

    async def main() -> None:
        async with fake_engine(script) as engine, serving(configured(engine)) as gateway:
            for _ in range(6):
                for stream in (True, False):
                    reply = await gateway.ask(chat(stream), headers={"x-tidegate-timeout-ms": "40"})
                    assert (reply.status, reply.error["code"]) == (504, "total_timeout")
            await until(lambda: engine.running == 0)
            engine.script = answer()
            assert (await gateway.ask(chat())).status == 200

    run(main())


def test_a_model_without_replicas_that_are_up() -> None:
    """Replicas that fail their probes get nothing: 503 with a wait, and service again once they are well."""

    async def main() -> None:
        async with fake_engine(answer()) as engine:
            engine.healthy = False
            health = {"interval_s": 0.05, "fall": 1, "rise": 1}
            async with serving(configured(engine, pool={"health": health})) as gateway:
                reply = await gateway.ask(chat())
                assert_come_back(reply, 503, "no_replica_available", "server_error")
                engine.healthy = True
                await until(lambda: gateway.service.not_ready() is None)
                assert (await gateway.ask(chat())).status == 200

    run(main())


def test_what_waits_is_sent_when_a_replica_comes_back() -> None:
    """With no new arrival as a trigger, a waiting request goes out once a probe succeeds or a pause ends."""

    async def main() -> None:
        async with fake_engine(OPEN) as engine:
            health = {"interval_s": 0.05, "fall": 1, "rise": 1}
            config = configured(engine, **one_at_a_time(pool={"health": health}))
            async with serving(config) as gateway, talking(gateway.port) as first:
                first.request(CHAT, chat())
                await first.head()
                async with talking(gateway.port) as second:
                    second.request(CHAT, chat())
                    await until(lambda: gateway.queued == 1)
                    engine.healthy = False
                    await until(lambda: gateway.service.not_ready() is not None)
                    first.hang_up()
                    engine.script = answer()
                    engine.healthy = True
                    assert (await second.reply()).text == "Hello there."

    run(main())


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_tells_where_its_time_went(stream: bool) -> None:
    """Server-Timing names the time in the queue and at the engine."""

    async def main() -> None:
        async with fake_engine(answer()) as engine, serving(configured(engine)) as gateway:
            reply = await gateway.ask(chat(stream))
            assert re.fullmatch(r"queue;dur=\d+\.\d, upstream;dur=\d+\.\d", reply.headers["server-timing"])
            assert "x-ratelimit-limit-requests" not in reply.headers

    run(main())


def test_an_engines_own_limits_are_not_taken_for_ours() -> None:
    """Headers that only the gateway may say are not passed on from an engine."""

    async def main() -> None:
        async def script(turn: Any) -> None:
            await turn.respond(
                200,
                b"{}",
                "x-ratelimit-remaining-requests: 99",
                "x-ratelimit-limit-tokens: 98",
                "retry-after: 97",
                "retry-after-ms: 96",
                "x-should-retry: true",
                "server-timing: total;dur=95",
                "x-request-id: theirs",
                "set-cookie: a=b",
                "server: uvicorn",
                "keep-alive: timeout=5",
                "connection: x-private",
                "x-private: 1",
                "x-engine: kept",
            )

        async with (
            fake_engine(script) as engine,
            serving(configured(engine, limits={"requests_per_minute": 60})) as gateway,
        ):
            reply = await gateway.ask(chat(False), headers={"x-request-id": "ours"})
            for name in (
                "retry-after",
                "retry-after-ms",
                "x-should-retry",
                "set-cookie",
                "server",
                "x-private",
            ):
                assert name not in reply.headers
            assert "x-ratelimit-limit-tokens" not in reply.headers
            assert reply.headers["x-ratelimit-remaining-requests"] == "59"
            assert reply.headers["x-request-id"] == "ours"
            assert reply.headers["server-timing"].startswith("queue")
            assert reply.headers["x-engine"] == "kept"

    run(main())


@pytest.mark.parametrize("path", ["/v1/messages", CHAT])
def test_a_refusal_speaks_the_language_of_its_route(path: str) -> None:
    """Anthropic's clients get Anthropic's errors, OpenAI's clients OpenAI's."""

    async def main() -> None:
        async with (
            fake_engine(answer()) as engine,
            serving(configured(engine, limits={"requests_per_minute": 1})) as gateway,
        ):
            await gateway.ask(chat())
            reply = await gateway.ask(chat(), path)
            assert reply.status == 429
            said = reply.json()
            assert ("type" in said and said["type"] == "error") is (path == "/v1/messages")
            assert said["error"]["type"] == "rate_limit_error"

    run(main())


def test_a_refused_request_of_many_limits_takes_none_of_them() -> None:
    """Refused for concurrency, a request does not count against the request quota."""

    async def main() -> None:
        async with fake_engine(OPEN) as engine:
            limits = {"requests_per_minute": 2, "max_in_flight": 1}
            async with serving(configured(engine, limits=limits)) as gateway:
                async with talking(gateway.port) as first:
                    first.request(CHAT, chat())
                    await first.head()
                    assert (await gateway.ask(chat())).status == 429
                await gateway.settled()
                engine.script = answer()
                reply = await gateway.ask(chat())
                assert (reply.status, reply.headers["x-ratelimit-remaining-requests"]) == (200, "0")

    run(main())
