"""Engines and gateway in one process, from files that users may copy."""

from __future__ import annotations

import asyncio
import socket
from random import Random

import pytest

from tidegate.config import digest_of
from tidegate.demo import show
from tidegate.demo.neighbours import scenario
from tidegate.demo.stage import Stage, configured, shipped
from tidegate.sim.profiles import named


@pytest.mark.parametrize(
    ("name", "keys"), [(show.CONFIG, {**show.KEYS, "you": show.YOUR_KEY}), (scenario.CONFIG, scenario.KEYS)]
)
def test_the_shipped_keys_are_those_of_the_file(name: str, keys: dict[str, str]) -> None:
    """Each tenant of a shipped file is known by the key that its comment, and the demo, give it."""
    tenants = shipped(name).tenants

    assert {tenant: each.keys["demo"].sha256 for tenant, each in tenants.items()} == {
        tenant: digest_of(key.encode()) for tenant, key in keys.items()
    }


def test_a_port_that_is_taken() -> None:
    """Where the wanted ports are taken, any others do, for engines as for the gateway."""
    config = configured(show.CONFIG)
    (pool,) = config.pools.values()
    with socket.socket() as taken, socket.socket() as engine:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        engine.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            engine.bind(("127.0.0.1", pool.replicas[2].url.port))
            engine.listen()
        except OSError:
            pass  # somebody else has it, which is as good

        async def main() -> None:
            stage = Stage(configured(show.CONFIG, port), named("demo"), Random(0))
            await stage.start()
            try:
                assert stage.service.not_ready() is None
                assert stage.service.server.port not in (0, port)
                assert list(stage.engines) == [replica.name for replica in pool.replicas]
                assert pool.replicas[2].url.port not in [each.port for each in stage.engines.values()]
            finally:
                await stage.stop()

        asyncio.run(asyncio.wait_for(main(), 30))
