"""What is charged: the engine's totals, whoever asked for them, however the request ends."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.gateway.fake_engine import (
    DONE,
    ROLE,
    Turn,
    answer,
    delta,
    event,
    events,
    fake_engine,
    status,
    usage_chunk,
)
from tests.gateway.gateway_in_process import Running, configured, run, serving, until
from tests.gateway.http_client import CHAT, chat, talking

LIMITS = {"tokens_per_minute": 1, "burst_s": 6_000_000}
"""A bucket of 100,000 tokens that flows back so slowly that what is missing is what was charged."""


def missing(gateway: Running) -> int:
    """Tokens that the limit over everything has been charged."""
    bucket = gateway.scope("the fleet").tokens
    assert bucket is not None
    return round(bucket.burst - bucket.available(gateway.service.driver.now()))


def tokens(gateway: Running, kind: str) -> float:
    """The counter of settled tokens of one type."""
    page = gateway.service.metrics.page().decode()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    return sum(
        sample.value
        for sample in families["tidegate_tokens"].samples
        if sample.name.endswith("_total") and sample.labels["type"] == kind
    )


@pytest.mark.parametrize(
    "options, shown",
    [
        ({}, False),
        ({"stream_options": None}, False),
        ({"stream_options": {}}, False),
        ({"stream_options": {"include_usage": False}}, False),
        ({"stream_options": {"include_usage": None, "other": [1, 2]}}, False),
        ({"stream_options": {"include_usage": True}}, True),
        ({"stream_options": {"include_usage": True, "other": {"a": "b"}}}, True),
    ],
    ids=str,
)
def test_usage_is_asked_for_and_shown_only_to_who_asked(options: dict[str, Any], shown: bool) -> None:
    """Every stream is metered by the engine's totals; the chunk that tells them is the client's choice."""

    async def main() -> None:
        async with (
            fake_engine(answer("a", "b", prompt=50, output=20, cached=30)) as engine,
            serving(configured(engine, limits=LIMITS)) as gateway,
        ):
            reply = await gateway.ask(chat(**options))
            asked = engine.requests[0].json()["stream_options"]
            assert asked == (options.get("stream_options") or {}) | {"include_usage": True}
            chunks = [chunk for chunk in reply.data[:-1] if chunk.get("usage")]
            assert [chunk["choices"] for chunk in chunks] == ([[]] if shown else [])
            assert reply.data[-1] == "[DONE]"
            await gateway.settled()
            assert missing(gateway) == 70
            kinds = [tokens(gateway, kind) for kind in ("input", "output", "cached_input")]
            assert kinds == [50, 20, 30]

    run(main())


def test_a_pool_may_leave_usage_alone() -> None:
    """With `inject_usage: false` the body goes on as it is, and what was seen is charged."""

    async def main() -> None:
        async with (
            fake_engine(answer("a", "b", "c")) as engine,
            serving(configured(engine, pool={"inject_usage": False}, limits=LIMITS)) as gateway,
        ):
            body = chat()
            assert (await gateway.ask(body)).status == 200
            assert engine.requests[0].json() == body
            await gateway.settled()
            assert gateway.records[0].output_tokens == 3
            assert missing(gateway) == gateway.records[0].prompt_tokens + 3

    run(main())


@pytest.mark.parametrize("stream", [True, False])
def test_streams_and_whole_answers_are_charged_alike(stream: bool) -> None:
    """After k answers the counter stands at k times the engine's totals, however they were sent."""

    async def main() -> None:
        async with (
            fake_engine(answer("x", prompt=40, output=10)) as engine,
            serving(configured(engine, limits=LIMITS)) as gateway,
        ):
            for count in range(1, 6):
                assert (await gateway.ask(chat(stream))).status == 200
                await gateway.settled()
                assert missing(gateway) == 50 * count

    run(main())


def test_totals_are_never_added_up() -> None:
    """Usage in every chunk is a running total: the last one counts."""

    async def main() -> None:
        def chunk(output: int) -> bytes:
            said = json.loads(delta(f"w{output}")[6:])
            return event(said | {"usage": {"prompt_tokens": 5, "completion_tokens": output}})

        parts = [ROLE, chunk(10), chunk(50), chunk(100), delta("", finish="stop"), DONE]
        async with (
            fake_engine(events(*parts, then="end")) as engine,
            serving(configured(engine, limits=LIMITS)) as gateway,
        ):
            await gateway.ask(chat())
            await gateway.settled()
            assert missing(gateway) == 105

    run(main())


def test_cached_tokens_have_a_weight_of_their_own() -> None:
    """With a weight of 0 for cached tokens only what was computed is charged."""

    async def main() -> None:
        async with fake_engine(answer("x", prompt=9_000, output=1_000, cached=8_000)) as engine:
            weights = {"cached_input": 0}
            async with serving(configured(engine, limits=LIMITS, weights=weights)) as gateway:
                await gateway.ask(chat())
                await gateway.settled()
                assert missing(gateway) == 2_000

    run(main())


ROUTES: list[tuple[str, dict[str, Any], dict[str, Any], int]] = [
    (
        "/v1/completions",
        {"prompt": "Hi"},
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 9}},
        12,
    ),
    (
        "/v1/embeddings",
        {"input": ["a", "b"]},
        {"data": [], "usage": {"prompt_tokens": 6, "total_tokens": 6}},
        6,
    ),
    ("/v1/rerank", {"query": "q", "documents": ["d"]}, {"results": [], "usage": {"total_tokens": 8}}, 8),
    ("/v1/responses", {"input": "Hi"}, {"output": [], "usage": {"input_tokens": 4, "output_tokens": 5}}, 9),
    (
        "/v1/messages",
        {"messages": [], "max_tokens": 5},
        {"content": [], "usage": {"input_tokens": 2, "cache_read_input_tokens": 3, "output_tokens": 4}},
        9,
    ),
]


@pytest.mark.parametrize("path, body, said, charged", ROUTES, ids=[each[0] for each in ROUTES])
def test_every_route_is_metered(path: str, body: dict[str, Any], said: dict[str, Any], charged: int) -> None:
    """Each API tells its usage in its own words, and each is understood."""

    async def main() -> None:
        async with (
            fake_engine(status(200, json.dumps(said).encode())) as engine,
            serving(configured(engine, limits=LIMITS)) as gateway,
        ):
            reply = await gateway.ask(body | {"model": "tide-1"}, path)
            assert reply.json() == said
            assert engine.requests[0].target == path
            await gateway.settled()
            assert missing(gateway) == charged

    run(main())


def test_a_client_that_leaves_pays_for_what_was_produced() -> None:
    """Hanging up in the middle of a stream is charged as prompt plus output so far."""

    async def main() -> None:
        words = [delta(f"word{index}") for index in range(40)]
        async with (
            fake_engine(events(ROLE, *words)) as engine,
            serving(configured(engine, limits=LIMITS)) as gateway,
        ):
            async with talking(gateway.port) as talk:
                talk.request(CHAT, chat())
                await talk.head()
                seen = b""
                while b"word39" not in seen:
                    seen += await talk.chunk()
            await gateway.settled()
            record = gateway.records[0]
            assert (record.reason, record.status) == ("client_gone", 499)
            assert 40 <= record.output_tokens <= 100
            assert record.prompt_tokens > 0
            assert missing(gateway) == record.prompt_tokens + record.output_tokens

    run(main())


def test_a_client_that_leaves_before_its_turn_pays_nothing() -> None:
    """A request that never reached an engine costs no tokens, and no engine ever sees it."""

    async def main() -> None:
        async with fake_engine(events(ROLE, delta("x"))) as engine:
            config = configured(engine, pool={"gate": {"max_concurrency": 1}}, limits=LIMITS)
            async with serving(config) as gateway, talking(gateway.port) as first:
                first.request(CHAT, chat())
                await first.head()
                async with talking(gateway.port) as second:
                    second.request(CHAT, chat(content="never seen"))
                    await until(lambda: gateway.queued == 1)
                await until(lambda: gateway.queued == 0)
                assert gateway.records[0].charged_credits == 0
                first.hang_up()
                await gateway.settled()
                assert len(engine.requests) == 1

    run(main())


def test_listing_models_costs_no_tokens() -> None:
    """What uses no tokens is charged none."""

    async def main() -> None:
        async with (
            fake_engine(answer()) as engine,
            serving(configured(engine, limits=LIMITS)) as gateway,
        ):
            for _ in range(75):
                assert (await gateway.ask(None, "/v1/models")).status == 200
            assert (await gateway.ask(chat())).status == 200
            await gateway.settled()
            assert missing(gateway) == 10

    run(main())


def test_what_a_failed_attempt_cost_is_charged_once() -> None:
    """A retry shares the charge of its request: the answer's totals are settled, not two of them."""

    async def main() -> None:
        async with (
            fake_engine(events(ROLE, then="reset")) as bad,
            fake_engine(answer(prompt=9, output=3)) as good,
        ):
            config = configured(bad, good, pool={"routing": {"policy": "round_robin"}}, limits=LIMITS)
            async with serving(config) as gateway:
                assert (await gateway.ask(chat())).status == 200
                await gateway.settled()
                assert missing(gateway) == 12

    run(main())


def test_three_equal_streams_meet_the_limit() -> None:
    """Of a hundred tokens, two streams of fifty leave none, and the third waits for the exact refill."""

    async def main() -> None:
        async with fake_engine(answer("x", prompt=40, output=10)) as engine:
            limits = {"tokens_per_minute": 100}
            pool = {"prediction": {"output_tokens": 1}}
            async with serving(configured(engine, pool=pool, limits=limits)) as gateway:
                statuses = []
                for _ in range(3):
                    reply = await gateway.ask(chat(content="x" * 120))
                    statuses.append(reply.status)
                    await gateway.settled()
                assert statuses == [200, 200, 429]
                assert reply.error["code"] == "token_quota_exceeded"
                assert 1 <= int(reply.headers["retry-after"]) <= 60

    run(main())


def test_a_chunk_with_many_tokens_is_no_single_token() -> None:
    """Without usage, the bytes of the content count where they say more than the number of chunks."""

    async def main() -> None:
        async def script(turn: Turn) -> None:
            await turn.head()
            for _ in range(5):
                await turn.chunk(delta("word " * 80))
            await turn.chunk(delta("", finish="stop") + DONE)
            await turn.end()

        async with (
            fake_engine(script) as engine,
            serving(configured(engine, limits=LIMITS)) as gateway,
        ):
            await gateway.ask(chat())
            await gateway.settled()
            assert 400 <= gateway.records[0].output_tokens <= 600

    run(main())


def test_a_usage_chunk_with_a_choice_is_passed_once() -> None:
    """An engine that puts usage into its last content chunk is metered by it, and the chunk goes through."""

    async def main() -> None:
        last = json.loads(delta("", finish="stop")[6:]) | {
            "usage": {"prompt_tokens": 8, "completion_tokens": 2}
        }
        async with (
            fake_engine(events(ROLE, delta("a"), event(last), DONE, then="end")) as engine,
            serving(configured(engine, limits=LIMITS)) as gateway,
        ):
            reply = await gateway.ask(chat())
            assert sum("usage" in chunk for chunk in reply.data[:-1]) == 1
            await gateway.settled()
            assert missing(gateway) == 10

    run(main())


def test_usage_that_is_nonsense_counts_as_not_told() -> None:
    """Negative, huge, or no numbers at all: then what was seen is charged."""

    async def main() -> None:
        odd = event({"choices": [], "usage": {"prompt_tokens": -5, "completion_tokens": "9"}})
        parts = [ROLE, delta("a"), delta("b"), delta("", finish="stop"), odd, DONE]
        async with (
            fake_engine(events(*parts, then="end")) as engine,
            serving(configured(engine, limits=LIMITS)) as gateway,
        ):
            await gateway.ask(chat())
            await gateway.settled()
            assert gateway.records[0].output_tokens == 2
            assert missing(gateway) == gateway.records[0].prompt_tokens + 2

    run(main())


def test_usage_comes_even_if_the_stream_breaks_after_it() -> None:
    """Totals that were told before the connection broke are what is settled."""

    async def main() -> None:
        parts = [ROLE, delta("a"), usage_chunk(30, 12)]
        async with (
            fake_engine(events(*parts, then="reset")) as engine,
            serving(configured(engine, limits=LIMITS)) as gateway,
        ):
            reply = await gateway.ask(chat())
            assert "error" in reply.data[-1]
            await gateway.settled()
            assert missing(gateway) == 42

    run(main())


def test_progress_is_told_once_at_each_mark() -> None:
    """At each mark above the 40 tokens reserved, as soon as a look (every eighth read) finds them."""
    told: list[int] = []
    heard = asyncio.Semaphore(0)

    async def script(turn: Turn) -> None:
        await turn.head()
        await turn.chunk(ROLE)
        for _ in range(40):
            await turn.chunk(delta("four" * 4))  # four tokens of four bytes, in a read of its own
            await heard.acquire()
        await turn.chunk(delta("", finish="stop"))
        await turn.chunk(DONE)
        await turn.end()

    def note(line: bytes) -> None:
        said = json.loads(line).get("event") or {}
        if said.get("type") == "Progressed":
            told.append(said["output_tokens"])

    async def main() -> None:
        pool = {"prediction": {"output_tokens": 40}}
        async with (
            fake_engine(script) as engine,
            serving(configured(engine, pool=pool), tape=note) as gateway,
        ):
            async with talking(gateway.port) as talk:
                talk.request(CHAT, chat())
                await talk.head()
                for _ in range(40):
                    while b"four" not in await talk.chunk():
                        pass
                    heard.release()
            await gateway.settled()

    run(main())
    assert told == [68, 132]
