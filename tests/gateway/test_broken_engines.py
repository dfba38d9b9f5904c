"""Engines that break, stall or talk nonsense: what the client sees, and what is retried unseen."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import Counter
from typing import Any

import pytest
from openai import AsyncOpenAI, InternalServerError

from tests.gateway.fake_engine import (
    DONE,
    ROLE,
    Script,
    Turn,
    answer,
    completion,
    delta,
    event,
    events,
    fake_engine,
    in_turn,
    raw,
    stall,
    status,
    usage_chunk,
)
from tests.gateway.gateway_in_process import configured, run, serving, until
from tests.gateway.http_client import CHAT, Reply, chat, talking

OK_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
QUICK: dict[str, Any] = {
    "upstream": {"inter_token_timeout_s": 0.15, "connect_timeout_s": 0.3},
    "pool": {"deadlines": {"ttft_s": 0.4, "total_s": 5}, "retry": {"max_attempts": 1}},
}
"""Short deadlines and no second attempt, so that one engine's fault is what the client is told of."""


def chunked(data: bytes) -> bytes:
    """One chunk on the wire."""
    return b"%x\r\n%b\r\n" % (len(data), data)


BEFORE_THE_FIRST_TOKEN: list[tuple[str, Script, int, str]] = [
    ("not HTTP", raw(b"\x00\x01garbage\r\n\r\n"), 502, "upstream_error"),
    ("an SSH banner", raw(b"SSH-2.0-OpenSSH_9.9\r\n"), 502, "upstream_error"),
    ("closed at once", raw(b""), 502, "upstream_error"),
    ("reset at once", raw(b"", then="reset"), 502, "upstream_error"),
    ("closed inside the head", raw(b"HTTP/1.1 200 OK\r\ncontent-ty"), 502, "upstream_error"),
    ("an endless head", raw(b"HTTP/1.1 200 OK\r\nx-a: " + b"a" * 200_000), 502, "upstream_error"),
    ("a slow head", raw(b"HTTP/1.1 200 OK\r\nx-a: 1", then="stall"), 504, "first_token_timeout"),
    ("no head", stall(), 504, "first_token_timeout"),
    ("a head and no more", raw(OK_HEAD, then="stall"), 504, "first_token_timeout"),
    ("a head and the end", raw(OK_HEAD + b"0\r\n\r\n"), 502, "upstream_error"),
    ("a head and a reset", raw(OK_HEAD, then="reset"), 502, "upstream_error"),
    ("a role and silence", events(ROLE), 504, "first_token_timeout"),
    ("a role and a reset", events(ROLE, then="reset"), 502, "upstream_error"),
    ("a role and the end", events(ROLE, then="end"), 502, "upstream_error"),
    ("comments and the end", events(b": hi\n\n", b": hi\n\n", then="end"), 502, "upstream_error"),
    ("an error event", events(ROLE, event({"error": {"message": "out of memory"}})), 502, "upstream_error"),
    ("a broken chunk", raw(OK_HEAD + b"zz\r\n" + ROLE), 502, "upstream_error"),
    ("500", status(500), 502, "upstream_error"),
    ("502", status(502, b"<html>bad gateway</html>"), 502, "upstream_error"),
    ("500 without an end", raw(b"HTTP/1.1 500 No\r\ncontent-length: 9\r\n\r\nno"), 502, "upstream_error"),
    (
        "501 and silence",
        raw(b"HTTP/1.1 501 No\r\ncontent-length: 9\r\n\r\nno", then="stall"),
        504,
        "upstream_timeout",
    ),
    ("401", status(401), 502, "upstream_error"),
    ("403", status(403), 502, "upstream_error"),
    ("429", status(429), 503, "upstream_busy"),
    ("503", status(503), 503, "upstream_busy"),
]


@pytest.mark.parametrize(
    "script, code, reason",
    [each[1:] for each in BEFORE_THE_FIRST_TOKEN],
    ids=[each[0] for each in BEFORE_THE_FIRST_TOKEN],
)
def test_a_stream_that_never_began(script: Script, code: int, reason: str) -> None:
    """Whatever goes wrong before the first token is told as a status, in OpenAI's form."""

    async def main() -> None:
        async with fake_engine(script) as engine, serving(configured(engine, **QUICK)) as gateway:
            reply = await gateway.ask(chat())
            assert (reply.status, reply.error["code"]) == (code, reason)
            assert reply.error["type"] == "server_error"
            assert ("retry-after" in reply.headers) is (code == 503)
            assert (reply.headers["x-should-retry"] == "true") is (code == 503)
            await until(lambda: engine.running == 0)

    run(main())


AFTER_THE_FIRST_TOKEN: list[tuple[str, Script]] = [
    ("closed", events(ROLE, delta("One"), delta(" two"), then="close")),
    ("reset", events(ROLE, delta("One"), delta(" two"), then="reset")),
    ("ended without finish reason", events(ROLE, delta("One"), delta(" two"), then="end")),
    ("stalled", events(ROLE, delta("One"), delta(" two"), then="stall")),
    ("garbage", raw(OK_HEAD + chunked(ROLE + delta("One") + delta(" two")) + b"zz\r\n")),
    (
        "closed by the end of the connection",
        raw(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
            + ROLE
            + delta("One")
            + delta(" two")
        ),
    ),
    (
        "closed inside an event",
        events(ROLE, delta("One"), delta(" two"), delta(" three")[:-20], then="close"),
    ),
    ("an event without end", events(ROLE, delta("One"), delta(" two"), b"data: " + b"x" * (2**20 + 1))),
]


@pytest.mark.parametrize(
    "script", [each[1] for each in AFTER_THE_FIRST_TOKEN], ids=[each[0] for each in AFTER_THE_FIRST_TOKEN]
)
def test_a_stream_that_breaks_off(script: Script) -> None:
    """What was sent stays, an error event ends it, and nothing is tried again elsewhere."""

    async def main() -> None:
        async with fake_engine(script) as first, fake_engine(answer()) as second:
            config = configured(
                first, second, upstream=QUICK["upstream"], pool={"routing": {"policy": "round_robin"}}
            )
            async with serving(config) as gateway:
                replies = [await gateway.ask(chat()), await gateway.ask(chat())]
                broken = next(reply for reply in replies if "error" in reply.data[-1])
                assert broken.status == 200
                assert broken.whole
                assert broken.text == "One two"
                assert broken.data[-1]["error"]["code"] == "upstream_error"
                assert "[DONE]" not in broken.data
                assert (len(first.requests), len(second.requests)) == (1, 1)
                await gateway.settled()
                failed = next(record for record in gateway.records if record.reason)
                assert (failed.reason, failed.attempts, failed.output_tokens) == ("upstream_error", 1, 2) or (
                    failed.reason == "upstream_timeout"
                )
                assert failed.prompt_tokens > 0
                assert sum("failed" in line for line in gateway.lines) == 1

    run(main())


@pytest.mark.parametrize("then", ["stall", "close", "end"])
def test_an_error_event_in_the_middle(then: str) -> None:
    """The engine's own error event is passed on, once, and ends the stream at once, whatever follows."""

    async def main() -> None:
        seen = asyncio.Event()

        async def script(turn: Turn) -> None:
            await turn.head()
            await turn.chunk(ROLE + delta("One"))
            await seen.wait()
            await events(event({"error": {"message": "the KV cache is gone"}}) + DONE, then=then, head=False)(
                turn
            )

        async with fake_engine(script) as engine, serving(configured(engine)) as gateway:
            async with talking(gateway.port) as talk:
                talk.request(CHAT, chat())
                await talk.head()
                assert await talk.chunk() == ROLE + delta("One")
                seen.set()
                assert json.loads((await talk.chunk())[6:])["error"]["message"] == "the KV cache is gone"
                assert await talk.chunk() == b""
            await until(lambda: engine.running == 0)
            assert (gateway.records[0].reason, gateway.records[0].output_tokens) == ("upstream_error", 1)

    run(main())


UNSEEN: list[tuple[str, Script]] = [
    ("a reset", raw(b"", then="reset")),
    ("a role, then a reset", events(ROLE, then="reset")),
    ("a role, then an error event", events(ROLE, event({"error": {"message": "no"}}))),
    ("a role, then the end", events(ROLE, then="end")),
    ("garbage", raw(b"nonsense\r\n\r\n")),
    ("500", status(500)),
    ("503", status(503, b"{}", "retry-after: 1")),
    ("429", status(429)),
    ("401", status(401)),
]


@pytest.mark.parametrize(
    "stream, script",
    [
        pytest.param(stream, script, id=f"{name}, {'stream' if stream else 'whole'}")
        for name, script in UNSEEN
        for stream in (True, False)
        if stream or not name.startswith("a role")
    ],
)
def test_a_failed_attempt_is_replaced_unseen(stream: bool, script: Script) -> None:
    """Before the first token another replica takes over, and the client sees one clean answer."""

    async def main() -> None:
        async with fake_engine(script) as bad, fake_engine(answer("Fine", ".")) as good:
            config = configured(bad, good, pool={"routing": {"policy": "round_robin"}})
            async with serving(config) as gateway:
                for _ in range(2):
                    reply = await gateway.ask(chat(stream))
                    assert reply.status == 200
                    if stream:
                        assert reply.text == "Fine."
                        assert reply.body.count(b"[DONE]") == reply.body.count(b'"role"') == 1
                    else:
                        assert reply.json()["choices"][0]["message"]["content"] == "Fine."
                assert bad.requests
                assert len(good.requests) == 2
                assert max(record.attempts for record in gateway.records) == 2
                assert all(record.reason is None for record in gateway.records)

    run(main())


def test_a_replica_that_refuses_connections_is_replaced_unseen() -> None:
    """The connection that nobody takes costs an attempt, and the client nothing."""

    async def main() -> None:
        async with fake_engine(answer()) as gone:
            pass
        async with fake_engine(answer()) as engine:
            config = configured(gone, engine, pool={"routing": {"policy": "round_robin"}})
            async with serving(config) as gateway:
                for _ in range(4):
                    assert (await gateway.ask(chat())).text == "Hello there."
                assert len(engine.requests) == 4

    run(main())


def test_no_replica_takes_connections() -> None:
    """With nobody there the answer is a 502 or a 503, never a wait."""

    async def main() -> None:
        async with fake_engine(answer()) as gone:
            pass
        async with serving(configured(gone)) as gateway:
            for _ in range(8):
                reply = await gateway.ask(chat())
                assert (reply.status, reply.error["code"]) in [
                    (502, "upstream_error"),
                    (503, "no_replica_available"),
                ]
            assert reply.status == 503  # the breaker is open by now
            assert int(reply.headers["retry-after"]) >= 1

    run(main())


def test_a_request_that_crashes_its_engine_is_not_tried_on_all() -> None:
    """A query of death takes two replicas at most."""

    async def main() -> None:
        killer = raw(b"", then="reset")
        async with (
            fake_engine(killer) as a,
            fake_engine(killer) as b,
            fake_engine(killer) as c,
            fake_engine(killer) as d,
        ):
            config = configured(a, b, c, d, pool={"retry": {"max_attempts": 4}})
            async with serving(config) as gateway:
                assert (await gateway.ask(chat())).status == 502
                assert gateway.records[0].attempts == 2
                assert sum(bool(engine.requests) for engine in (a, b, c, d)) == 2

    run(main())


def test_a_busy_engine_says_when_to_come_back() -> None:
    """The Retry-After of a 503 goes on to the client, and what the engine said of it too."""

    async def main() -> None:
        busy = status(503, b'{"error":{"message":"the queue is\\r\\nlong"}}', "retry-after: 7")
        async with fake_engine(busy) as engine, serving(configured(engine, **QUICK)) as gateway:
            reply = await gateway.ask(chat())
            assert (reply.status, reply.headers["retry-after"]) == (503, "7")
            assert "the queue is" in reply.error["message"]
            assert "retry-after" not in (await gateway.ask({"model": "tide-1"}, "/v1/nothing")).headers

    run(main())


@pytest.mark.parametrize("code", [400, 404, 413, 422])
def test_an_engines_refusal_is_passed_on_untouched(code: int) -> None:
    """A 4xx is the engine's answer: bytes and type go through, no second attempt, no tokens charged."""

    async def main() -> None:
        body = b'{"object":"error","message":"too  long","code":400}'
        async with (
            fake_engine(status(code, body, "content-type: application/problem+json")) as engine,
            serving(configured(engine, limits={"tokens_per_minute": 600_000})) as gateway,
        ):
            reply = await gateway.ask(chat())
            assert (reply.status, reply.body) == (code, body)
            assert reply.headers["content-type"] == "application/problem+json"
            assert len(engine.requests) == 1
            await gateway.settled()
            assert gateway.records[0].charged_credits == 0
            assert (await gateway.ask(chat())).status == code  # the breaker is closed

    run(main())


def clean_stream(end: bytes = b"\n\n", done: int = 1, usage: bool = True) -> bytes:
    """A whole stream as one piece."""
    parts = ROLE + b": ping\n\n" + delta("Hallo") + delta(" Welt — 潮 🌊") + delta("", finish="stop")
    parts += usage_chunk(5, 2) if usage else b""
    return (parts + DONE * done).replace(b"\n\n", end)


@pytest.mark.parametrize("done", [0, 1, 2])
@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"], ids=["LF", "CRLF", "CR"])
def test_one_terminator_whatever_the_engine_sends(done: int, end: bytes) -> None:
    """Exactly one `[DONE]`, and last; the same events and the same usage with every line ending."""

    async def main() -> None:
        async with (
            fake_engine(events(clean_stream(end, done), then="end")) as engine,
            serving(configured(engine)) as gateway,
        ):
            reply = await gateway.ask(chat())
            assert reply.data.count("[DONE]") == 1
            assert reply.data[-1] == "[DONE]"
            assert reply.text == "Hallo Welt — 潮 🌊"
            assert not any(chunk.get("usage") for chunk in reply.data[:-1])
            await gateway.settled()
            assert (gateway.records[0].prompt_tokens, gateway.records[0].output_tokens) == (5, 2)

    run(main())


@pytest.mark.parametrize("then", ["stall", "close", "reset"])
def test_an_engine_that_is_done_but_does_not_end(then: str) -> None:
    """After the terminator the answer is whole: how the connection ends adds nothing."""

    async def main() -> None:
        async with (
            fake_engine(events(clean_stream(), then=then)) as engine,
            serving(configured(engine, **QUICK)) as gateway,
        ):
            reply = await gateway.ask(chat())
            assert reply.whole
            assert reply.data[-1] == "[DONE]"
            assert not any("error" in chunk for chunk in reply.data[:-1])
            await gateway.settled()
            assert (gateway.records[0].reason, gateway.records[0].output_tokens) == (None, 2)

    run(main())


def test_characters_split_at_every_byte() -> None:
    """An event that is cut into reads anywhere arrives byte for byte."""

    async def main() -> None:
        stream = clean_stream(usage=False)

        async def script(turn: Turn) -> None:
            await turn.head()
            at = turn.number
            await turn.chunk(stream[:at])
            await turn.connection.closed_or_after(0.001)
            await turn.chunk(stream[at:])
            await turn.end()

        async with (
            fake_engine(script) as engine,
            serving(configured(engine)) as gateway,
            talking(gateway.port) as talk,
        ):
            for _ in range(len(stream) - 1):
                talk.request(CHAT, chat())
                assert (await talk.reply()).body == stream

    run(main())


@pytest.mark.parametrize("size, fits", [(2**20 - 400, True), (2**20 + 400, False)])
def test_a_line_of_a_mebibyte(size: int, fits: bool) -> None:
    """Up to the bound an event passes byte for byte; beyond it the stream ends with an error event."""

    async def main() -> None:
        long = delta("x" * size)

        async def script(turn: Turn) -> None:
            await turn.head()
            await turn.chunk(ROLE + delta("One"))
            await turn.chunk(long)
            await turn.chunk(delta("", finish="stop") + DONE)
            await turn.end()

        async with fake_engine(script) as engine, serving(configured(engine)) as gateway:
            reply = await gateway.ask(chat())
            assert (long in reply.body) is fits
            assert (reply.data[-1] == "[DONE]") is fits
            if not fits:
                assert reply.data[-1]["error"]["code"] == "upstream_error"

    run(main())


def test_compression_is_never_asked_for() -> None:
    """The client's Accept-Encoding stays here: the engine is asked for identity, and usage can be read."""

    async def main() -> None:
        async with fake_engine(answer()) as engine, serving(configured(engine)) as gateway:
            reply = await gateway.ask(chat(), headers={"accept-encoding": "gzip, br, zstd"})
            assert reply.text == "Hello there."
            assert engine.requests[0].headers["accept-encoding"] == "identity"
            assert "content-encoding" not in reply.headers

    run(main())


def test_an_engine_that_compresses_all_the_same() -> None:
    """Header and body agree: what cannot be read is passed on as it is."""

    async def main() -> None:
        packed = gzip.compress(clean_stream())

        async def script(turn: Turn) -> None:
            await turn.head(200, "content-encoding: gzip")
            await turn.chunk(packed)
            await turn.end()

        async with fake_engine(script) as engine, serving(configured(engine)) as gateway:
            reply = await gateway.ask(chat())
            assert (reply.status, reply.headers["content-encoding"], reply.body) == (200, "gzip", packed)

    run(main())


WHOLE: list[tuple[str, Script, int, str]] = [
    ("closed", raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"), 502, "upstream_error"),
    ("reset", raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", then="reset"), 502, "upstream_error"),
    (
        "stalled",
        raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", then="stall"),
        504,
        "upstream_timeout",
    ),
    ("no head", stall(), 504, "total_timeout"),
]


@pytest.mark.parametrize(
    "script, code, reason", [each[1:] for each in WHOLE], ids=[each[0] for each in WHOLE]
)
def test_a_whole_answer_that_breaks_off(script: Script, code: int, reason: str) -> None:
    """Nothing of it is sent before it is whole, so that its failure has a status."""

    async def main() -> None:
        quick = QUICK | {"pool": {"deadlines": {"ttft_s": 0.4, "total_s": 0.4}, "retry": {"max_attempts": 1}}}
        async with fake_engine(script) as engine, serving(configured(engine, **quick)) as gateway:
            reply = await gateway.ask(chat(False))
            assert (reply.status, reply.error["code"]) == (code, reason)

    run(main())


@pytest.mark.parametrize("then", ["close", "reset", "stall"])
def test_a_long_answer_that_breaks_off(then: str) -> None:
    """What has been sent in part is broken off, so that no client can take it for the whole."""

    async def main() -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2000000\r\n\r\n"
        script = raw(head, b'{"a":"' + b"x" * 1_000_000, then=then)
        async with fake_engine(script) as engine, serving(configured(engine, **QUICK)) as gateway:
            reply = await gateway.ask(chat(False))
            assert reply.status == 200
            assert not reply.whole

    run(main())


@pytest.mark.parametrize("framed", [True, False])
@pytest.mark.parametrize("early", [True, False])
def test_a_long_answer_is_passed_on_and_still_metered(framed: bool, early: bool) -> None:
    """Two megabytes go through as they are; the engine's totals at their start or end are what is settled."""

    async def main() -> None:
        said = completion('with "usage": {"prompt_tokens": 5} in it ' + "x" * 2_000_000, 11, 222, 3)
        if early:
            said = {"usage": said.pop("usage")} | said
        body = json.dumps(said).encode()

        async def script(turn: Turn) -> None:
            if framed:
                await turn.respond(200, body)
            else:
                await turn.head(200, "content-type: application/json")
                for start in range(0, len(body), 7_001):
                    await turn.chunk(body[start : start + 7_001])
                await turn.end()

        async with (
            fake_engine(script) as engine,
            serving(configured(engine, limits={"tokens_per_minute": 60_000})) as gateway,
        ):
            reply = await gateway.ask(chat(False))
            assert reply.body == body
            await gateway.settled()
            record = gateway.records[0]
            assert (record.prompt_tokens, record.output_tokens, record.cached_tokens) == (11, 222, 3)

    run(main())


def test_a_whole_answer_without_usage_is_charged_by_its_size() -> None:
    """An engine that does not count must not be free."""

    async def main() -> None:
        said = completion("word " * 400, 0, 0)
        del said["usage"]
        async with (
            fake_engine(status(200, json.dumps(said).encode())) as engine,
            serving(configured(engine, limits={"tokens_per_minute": 60_000})) as gateway,
        ):
            assert (await gateway.ask(chat(False))).status == 200
            await gateway.settled()
            assert 400 <= gateway.records[0].output_tokens <= 700
            assert gateway.records[0].prompt_tokens > 0

    run(main())


def test_a_connection_that_closes_while_it_is_used_again() -> None:
    """A kept connection that is dead at the very moment of sending costs the client nothing."""

    async def main() -> None:
        async def script(turn: Turn) -> None:
            if turn.connection.requests > 1:
                turn.reset()  # closed before a byte of the answer: sent again once
            else:
                await answer()(turn)

        async with fake_engine(script) as engine, serving(configured(engine)) as gateway:
            replies: list[Reply] = [await gateway.ask(chat()) for _ in range(6)]
            assert [reply.text for reply in replies] == ["Hello there."] * 6
            assert all(record.attempts == 1 for record in gateway.records)

    run(main())


@pytest.mark.parametrize("code", [500, 503])
def test_retries_do_not_multiply(code: int) -> None:
    """When every engine fails, the gateway adds its retry budget to what clients send, and no more."""

    async def main() -> None:
        pool = {
            "breaker": {"consecutive_failures": 10_000, "min_samples": 10_000},
            "retry": {"floor": 3, "budget_ratio": 0.2, "window_s": 600},
            "deadlines": {"ttft_s": 0.5, "total_s": 0.5},
        }
        script = status(code, b"{}", "retry-after: 0")
        async with (
            fake_engine(script) as a,
            fake_engine(script) as b,
            serving(configured(a, b, pool=pool)) as gateway,
        ):
            replies: list[Reply] = []
            for _ in range(20):
                replies += await asyncio.gather(*[gateway.ask(chat()) for _ in range(20)])
            assert {reply.status for reply in replies} <= {502, 503, 504}
            assert all("x-should-retry" in reply.headers for reply in replies)
            assert len(a.requests) + len(b.requests) <= 400 * 1.2 + 3

    run(main())


def test_the_retries_of_sdks_and_ours_do_not_multiply() -> None:
    """An SDK with two retries before a gateway with two before engines that always answer 503 (nanobot#2760).

    SDKs obey `x-should-retry` before anything else. Whoever was retried here, or could not be for the
    budget, is told not to come back; so no call is tried more often than one of the two would have alone.
    """

    async def main() -> None:
        pool = {"retry": {"max_attempts": 3, "floor": 3, "budget_ratio": 0.2, "window_s": 600}}
        script = status(503, b"{}", "retry-after: 0")
        async with (
            fake_engine(script) as a,
            fake_engine(script) as b,
            serving(configured(a, b, pool=pool)) as gateway,
            AsyncOpenAI(base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key="x", max_retries=2) as sdk,
        ):
            for number in range(60):
                with pytest.raises(InternalServerError) as raised:
                    await sdk.chat.completions.create(**chat(False, content=f"call {number}"))
                assert raised.value.response.headers["x-should-retry"] == "false"
                assert float(raised.value.response.headers["retry-after"]) >= 1
            sent = Counter(each.json()["messages"][0]["content"] for each in (*a.requests, *b.requests))
            assert max(sent.values()) == 3
            assert sent.total() <= 60 * 1.2 + 3

    run(main())


def test_an_engine_that_does_not_know_the_model() -> None:
    """Where its peer answers, one that says 404 to all draws no more than a row of requests."""

    async def main() -> None:
        missing = status(404, b'{"error": {"message": "The model does not exist.", "code": 404}}')
        async with (
            fake_engine(missing) as wrong,
            fake_engine(answer()) as right,
            serving(configured(wrong, right)) as gateway,
        ):
            replies = [await gateway.ask(chat(number % 2 == 0)) for number in range(80)]
            assert {reply.status for reply in replies[40:]} == {200}
            assert len(wrong.requests) <= 15
            assert len(right.requests) >= 65
            (member, _) = gateway.service.governor.members.values()
            assert member.state(gateway.service.driver.now()) == "open"

    run(main())


def test_an_error_without_end() -> None:
    """An engine that goes on and on about its error is not listened to."""

    async def main() -> None:
        async def script(turn: Turn) -> None:
            await turn.head(500, "content-type: text/plain")
            while True:
                await turn.chunk(b"error " * 1_000)

        async with fake_engine(script) as engine, serving(configured(engine, **QUICK)) as gateway:
            reply = await gateway.ask(chat())
            assert (reply.status, reply.error["code"]) == (502, "upstream_error")
            assert len(reply.body) < 2_000
            await until(lambda: engine.running == 0)

    run(main())


def test_the_breaker_closes_again() -> None:
    """Five failures open the breaker; once the engine is well it is used again without being told to."""

    async def main() -> None:
        pool = {"breaker": {"open_s": 0.2, "open_max_s": 0.2}, "retry": {"max_attempts": 1}}
        async with fake_engine(status(500)) as engine, serving(configured(engine, pool=pool)) as gateway:
            for _ in range(5):
                assert (await gateway.ask(chat())).status == 502
            engine.script = in_turn(answer())
            assert (
                await gateway.ask(chat())
            ).status == 200  # waits in the queue until the breaker lets it try

    run(main())
