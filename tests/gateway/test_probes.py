"""Probes: whatever an engine says of itself, it is probed again, and believed only in what makes sense."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.gateway.fake_engine import Turn, answer, fake_engine
from tests.gateway.gateway_in_process import configured, run, serving, until
from tests.gateway.http_client import chat
from tidegate.gateway.probes import read_metrics
from tidegate.gateway.status import status

OFTEN: dict[str, Any] = {"health": {"interval_s": 0.05, "fall": 2, "rise": 1}, "engine": "auto"}

PAGES: list[tuple[str, dict[str, tuple[int, bytes]]]] = [
    ("models: a number", {"/v1/models": (200, b'{"data":5}')}),
    ("models: text", {"/v1/models": (200, b'{"data":"abc"}')}),
    ("models: a list", {"/v1/models": (200, b"[1,2]")}),
    ("models: no JSON", {"/v1/models": (200, b"<html>")}),
    ("models: not UTF-8", {"/v1/models": (200, b'{"data":[{"id":"\xff"}]}')}),
    ("models: megabytes", {"/v1/models": (200, b'{"data":[' + b'{"id":"a"},' * 200_000 + b'{"id":"z"}]}')}),
    ("models: deep", {"/v1/models": (200, b"[" * 100_000)}),
    ("models: an odd length", {"/v1/models": (200, b'{"data":[{"id":"a","max_model_len":-5}]}')}),
    ("models: a true length", {"/v1/models": (200, b'{"data":[{"id":"a","max_model_len":true}]}')}),
    (
        "props: odd",
        {
            "/v1/models": (200, b'{"data":[{"id":"a","owned_by":"llamacpp"}]}'),
            "/props": (200, b'{"total_slots":"x","default_generation_settings":[]}'),
        },
    ),
    ("metrics: NaN", {"/metrics": (200, b"# x\nvllm:num_requests_running NaN\n")}),
    ("metrics: infinite", {"/metrics": (200, b"# x\nvllm:num_requests_running +Inf\n")}),
    (
        "metrics: beyond any count",
        {"/metrics": (200, b"# x" + b"\nvllm:num_requests_running 1e308" * 2 + b"\n")},
    ),
    ("metrics: negative", {"/metrics": (200, b"# x\nvllm:num_requests_running -5\n")}),
    ("metrics: NaN usage", {"/metrics": (200, b"# x\nvllm:kv_cache_usage_perc NaN\n")}),
    (
        "metrics: no blocks",
        {
            "/metrics": (
                200,
                b'# x\nvllm:cache_config_info{block_size="16",num_gpu_blocks="0"} 1\n',
            )
        },
    ),
    ("metrics: no text", {"/metrics": (200, bytes(range(256)) * 10)}),
    ("metrics: 500", {"/metrics": (500, b"no")}),
]


@pytest.mark.parametrize("pages", [each[1] for each in PAGES], ids=[each[0] for each in PAGES])
def test_an_engine_that_talks_nonsense_of_itself(pages: dict[str, tuple[int, bytes]]) -> None:
    """Health is health: probes go on, and requests are served as if it had said nothing."""

    async def main() -> None:
        async with fake_engine(answer()) as engine:
            engine.pages |= pages
            async with serving(configured(engine, pool=OFTEN)) as gateway:
                await until(lambda: engine.probes >= 4)
                assert gateway.service.not_ready() is None
                assert (await gateway.ask(chat())).status == 200
                shown = status(gateway.service.governor, gateway.service.driver.now(), 0, None)
                json.dumps(shown, allow_nan=False)

    run(main())


@pytest.mark.parametrize("page", ["/health", "/v1/models", "/metrics"])
def test_a_page_that_never_comes(page: str) -> None:
    """A probe that hangs is a bad probe; a page that hangs beside a good one is not."""

    async def main() -> None:
        async def slow(turn: Turn) -> None:
            if turn.request.target == page:
                await turn.stall()
            await turn.respond(200, b"{}")

        async with fake_engine(answer()) as engine:
            engine.on_get = slow
            config = configured(engine, pool=OFTEN | {"probe": {"timeout_s": 0.1}})
            async with serving(config) as gateway:
                await until(lambda: engine.probes >= 2)
                if page == "/health":
                    await until(lambda: gateway.service.not_ready() is not None)
                else:
                    assert gateway.service.not_ready() is None

    run(main())


def test_one_bad_probe_is_no_news() -> None:
    """Good and bad in turn change nothing; as many bad ones in a row as configured do, with one line."""

    async def main() -> None:
        async with fake_engine(answer()) as engine:
            flip = [True]

            async def flicker(turn: Turn) -> None:
                if turn.request.target == "/health":
                    flip[0] = not flip[0]
                await turn.respond(200 if flip[0] else 503, b"")

            engine.on_get = flicker
            async with serving(configured(engine, pool=OFTEN | {"engine": "other"})) as gateway:
                member = next(iter(gateway.service.governor.members.values()))
                states = set()

                def seen() -> bool:
                    states.add(member.replica.up)
                    return engine.probes >= 12

                await until(seen)
                assert states == {True}
                engine.on_get = None
                engine.healthy = False
                await until(lambda: not member.replica.up)
                before = len(gateway.log)
                await until(lambda: engine.probes >= 20)
                assert len(gateway.log) <= before + 1

    run(main())


def test_each_replica_is_probed_by_itself() -> None:
    """One probe at a time to each, and each at its own interval, whatever the others do."""

    async def main() -> None:
        async with fake_engine(answer()) as a, fake_engine(answer()) as b:
            go = asyncio.Event()

            async def hold(turn: Turn) -> None:
                await go.wait()
                await turn.respond(200, b"")

            a.on_get = hold
            pool = OFTEN | {"engine": "other", "probe": {"timeout_s": 60.0}}
            async with serving(configured(a, b, pool=pool)):
                await until(lambda: b.probes >= 6)
                assert a.probes == 1
                go.set()
                await until(lambda: a.probes >= 2)

    run(main())


def test_a_health_path_and_prefix_of_its_own() -> None:
    """The probe asks what the configuration says, below the replica's own path."""

    async def main() -> None:
        async with fake_engine(answer()) as engine:
            seen: list[str] = []

            async def note(turn: Turn) -> None:
                seen.append(turn.request.target)
                await turn.respond(200, b"{}")

            engine.on_get = note
            pool = {"probe": {"path": "/ping"}}
            async with serving(configured(f"{engine.url}/prefix", pool=pool)) as gateway:
                assert (await gateway.ask(chat())).status == 200
                assert seen[0] == "/prefix/ping"
                assert engine.requests[0].target == "/prefix/v1/chat/completions"

    run(main())


def test_the_size_of_a_vllm() -> None:
    """Blocks times their size, by the whole names: a hybrid model tells a size of its other layers too."""
    info = b'vllm:cache_config_info{%b,num_gpu_blocks="100",num_gpu_blocks_override="7"} 1\n'
    for labels, capacity_tokens in [
        (b'block_size="16"', 1_600),
        (b'block_size="16",hash_block_size="32",mamba_block_size="8192"', 1_600),
        (b'mamba_block_size="8192",block_size="16"', 1_600),
        (b'mamba_block_size="8192"', None),
        (b'block_size="%b"' % (b"9" * 5_000), None),
    ]:
        seen = read_metrics("r", b"# x\nvllm:num_requests_running 1\n" + info % labels)
        assert seen is not None
        assert seen.kv_capacity_tokens == capacity_tokens, labels
