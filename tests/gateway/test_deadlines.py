"""Deadlines of a whole request: a stream is cut well-formed, a whole answer that is late is a 504."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.gateway.engine_streams import anthropic_messages
from tests.gateway.fake_engine import (
    ROLE,
    Script,
    Turn,
    answer,
    delta,
    events,
    fake_engine,
    stall,
    usage_chunk,
)
from tests.gateway.gateway_in_process import configured, run, serving, until
from tests.gateway.http_client import CHAT, chat, talking
from tidegate.core.messages import Cancelled

SOON: dict[str, Any] = {"deadlines": {"ttft_s": 0.2, "total_s": 0.2}}


@pytest.mark.parametrize("usage", [False, True])
def test_a_stream_that_takes_too_long_ends_as_if_at_its_bound(usage: bool) -> None:
    """What was produced stays, the finish reason is `length`, `[DONE]` comes last, the engine is stopped."""

    async def main() -> None:
        words = [delta(f"word{number} ") for number in range(5)]
        async with (
            fake_engine(events(ROLE, *words)) as engine,
            serving(configured(engine, pool=SOON, limits={"tokens_per_minute": 6_000_000})) as gateway,
        ):
            reply = await gateway.ask(chat(stream_options={"include_usage": usage}))
            assert (reply.status, reply.whole, reply.data[-1]) == (200, True, "[DONE]")
            assert reply.text == "word0 word1 word2 word3 word4 "
            chunks = reply.data[:-1]
            told = [chunk for chunk in chunks if chunk.get("usage")]
            assert len(told) == usage
            last = [chunk for chunk in chunks if chunk["choices"]][-1]
            assert last["choices"][0]["finish_reason"] == "length"
            assert {chunk["id"] for chunk in chunks} == {"chatcmpl-7f"}
            await until(lambda: engine.running == 0)
            record = gateway.records[0]
            assert (record.reason, record.status) == ("total_timeout", 200) or record.status == 504
            assert record.output_tokens >= 5

    run(main())


def test_every_choice_is_ended() -> None:
    """With two choices, each that is still open gets its finish reason, and only those."""

    async def main() -> None:
        def chunk(index: int, finish: str | None = None) -> bytes:
            said = json.loads(delta("x", finish=finish)[6:])
            said["choices"][0]["index"] = index
            return b"data: " + json.dumps(said).encode() + b"\n\n"

        script = events(chunk(0), chunk(1), chunk(2), chunk(1, "stop"))
        async with fake_engine(script) as engine, serving(configured(engine, pool=SOON)) as gateway:
            reply = await gateway.ask(chat(n=3))
            finishes = [
                (choice["index"], choice["finish_reason"])
                for chunk in reply.data[:-1]
                for choice in chunk["choices"]
                if choice["finish_reason"]
            ]
            assert sorted(finishes) == [(0, "length"), (1, "stop"), (2, "length")]

    run(main())


def test_a_message_stream_is_ended_in_its_own_form() -> None:
    """Anthropic's stream ends with its open blocks closed, `max_tokens`, and `message_stop`."""

    async def main() -> None:
        whole = anthropic_messages()
        cut = whole[: whole.index(b"event: content_block_stop")]
        async with fake_engine(events(cut)) as engine, serving(configured(engine, pool=SOON)) as gateway:
            reply = await gateway.ask(chat(), "/v1/messages")
            assert reply.body.startswith(cut)
            types = [each["type"] for each in reply.data[-3:]]
            assert types == ["content_block_stop", "message_delta", "message_stop"]
            assert reply.data[-2]["delta"]["stop_reason"] == "max_tokens"

    run(main())


def test_an_event_that_is_half_here_is_left_out() -> None:
    """A stream is cut between events, never inside of one."""

    async def main() -> None:
        script = events(ROLE, delta("one"), delta("two")[:-15])
        async with fake_engine(script) as engine, serving(configured(engine, pool=SOON)) as gateway:
            reply = await gateway.ask(chat())
            assert reply.text == "one"
            assert reply.data[-1] == "[DONE]"

    run(main())


LATE: list[tuple[str, Script, bool]] = [
    ("a whole answer", stall(), False),
    ("a stream without a token", events(ROLE), True),
    ("a stream without a head", stall(), True),
]


@pytest.mark.parametrize("script, stream", [each[1:] for each in LATE], ids=[each[0] for each in LATE])
def test_what_has_not_begun_is_a_504(script: Script, stream: bool) -> None:
    """Where nothing was sent yet, the total deadline is told as a status."""

    async def main() -> None:
        async with fake_engine(script) as engine, serving(configured(engine, pool=SOON)) as gateway:
            reply = await gateway.ask(chat(stream))
            assert (reply.status, reply.error["code"]) == (504, "total_timeout")
            await until(lambda: engine.running == 0)

    run(main())


def test_a_long_whole_answer_that_is_late_is_broken_off() -> None:
    """What was begun and is no stream cannot be ended well: the connection breaks."""

    async def main() -> None:
        async def script(turn: Turn) -> None:
            await turn.head(200, "content-type: application/json")
            await turn.chunk(b"x" * 500_000)
            await turn.stall()

        async with fake_engine(script) as engine, serving(configured(engine, pool=SOON)) as gateway:
            reply = await gateway.ask(chat(False))
            assert not reply.whole

    run(main())


def test_a_clients_own_deadline_cuts_a_stream() -> None:
    """`x-tidegate-timeout-ms` is a total deadline too, and the tighter one counts."""

    async def main() -> None:
        async with fake_engine(events(ROLE, delta("x"))) as engine, serving(configured(engine)) as gateway:
            reply = await gateway.ask(chat(), headers={"x-tidegate-timeout-ms": "150"})
            assert reply.data[-2]["choices"][0]["finish_reason"] == "length"
            await gateway.settled()
            # The caller's haste says nothing about the replica.
            member = next(iter(gateway.service.governor.members.values()))
            assert member.breaker._in_a_row == 0

    run(main())


def test_the_deadline_passes_while_the_client_does_not_read() -> None:
    """A stalled client's stream is still ended, and nothing stays behind."""

    async def main() -> None:
        async def script(turn: Turn) -> None:
            await turn.head()
            while True:
                await turn.chunk(delta("x" * 10_000))

        http = {"write_timeout_s": 0.5}
        async with (
            fake_engine(script) as engine,
            serving(configured(engine, http=http)) as gateway,
            talking(gateway.port) as talk,
        ):
            talk.request(CHAT, chat())
            server, driver = gateway.service.server, gateway.service.driver
            await until(lambda: any(each._writing_paused for each in server._open))
            driver.now = lambda: time.monotonic() + 3_600  # however long it took to fill all buffers
            driver.tell(Cancelled(request_id=0))  # there is none: the driver looks at its clock
            assert [record.reason for record in gateway.records] == ["total_timeout"]
            await until(lambda: server.connections == 0)

    run(main())


def test_usage_that_came_before_the_cut_is_kept() -> None:
    """If the engine has told its totals by then, they are what is settled."""

    async def main() -> None:
        script = events(ROLE, delta("a"), usage_chunk(100, 50))
        async with fake_engine(script) as engine, serving(configured(engine, pool=SOON)) as gateway:
            await gateway.ask(chat())
            await gateway.settled()
            assert (gateway.records[0].prompt_tokens, gateway.records[0].output_tokens) == (100, 50)

    run(main())


def test_a_deadline_that_is_kept_costs_nothing() -> None:
    """An answer within its time is untouched, and no timer of it fires later."""

    async def main() -> None:
        async with fake_engine(answer()) as engine, serving(configured(engine, pool=SOON)) as gateway:
            for _ in range(3):
                assert (await gateway.ask(chat())).data[-2]["choices"][0]["finish_reason"] == "stop"

    run(main())
