"""Is a request's memory freed as it ends, without waiting for the collector, which has all but stopped?"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter

import pytest

from tests.gateway.fake_engine import Script, answer, fake_engine, stall, status
from tests.gateway.gateway_in_process import configured, run, serving, until
from tests.gateway.http_client import CHAT, chat, talking
from tidegate.gateway.assembly import Assembly
from tidegate.gateway.attempt import Attempt
from tidegate.gateway.bodies import Body
from tidegate.gateway.flight import Flight
from tidegate.gateway.streams import Relay

OURS = (Assembly, Attempt, Body, Flight, Relay)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("script", [answer(), status(500), status(400)])
def test_nothing_is_left_for_the_collector(script: Script, stream: bool) -> None:
    """Answers, errors after retries and what a client walked away from leave no object of ours behind."""

    async def main() -> None:
        async with fake_engine(script) as engine, fake_engine(stall()) as silent:
            async with serving(configured(engine)) as running:
                await asyncio.gather(*(running.ask(chat(stream=stream)) for _ in range(10)))
            async with serving(configured(silent)) as running, talking(running.port) as client:
                client.request(CHAT, chat(stream=stream))
                await until(lambda: running.in_flight)
        left = Counter(type(thing).__name__ for thing in gc.get_objects() if isinstance(thing, OURS))
        assert not left

    gc.collect()
    gc.disable()
    try:
        run(main())
    finally:
        gc.enable()
