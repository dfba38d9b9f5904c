"""How do emulated engines and a real gateway come together in one process?

The gateway is the one that `tidegate serve` runs, from a configuration of the same form. Only the ports may
differ from what the file says, for a demo must not fail because one is taken.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from importlib.resources import files
from random import Random

import msgspec

from tidegate.config import Address, Config, parse
from tidegate.config.addresses import Origin
from tidegate.core.records import RequestRecord
from tidegate.emulator.replica_server import Options, ReplicaServer
from tidegate.emulator.server import Emulator
from tidegate.gateway.service import Service
from tidegate.sim.profiles import Profile

ANY_PORT = 0
GOODBYE_S = 0.05
READY_WITHIN_S = 10.0


def shipped(name: str) -> Config:
    """A configuration that lies beside this file, as it says."""
    return parse((files("tidegate.demo") / name).read_text(encoding="utf-8"), name)


class Stage:
    """A gateway and the replicas of its one pool, made inside a running event loop."""

    def __init__(
        self,
        config: Config,
        profile: Profile,
        rng: Random,
        options: Options | None = None,
        *,
        on_record: Callable[[RequestRecord], None] | None = None,
    ) -> None:
        """`on_record` is told of each request that has ended at the gateway."""
        (self.pool,) = config.pools
        self.service: Service
        self._config = config
        self._profile = profile
        self._rng = rng
        self._options = options or Options(model=self.pool)
        self._on_record = on_record
        self._emulator = Emulator()
        self._engines: dict[str, ReplicaServer] = {}

    @property
    def url(self) -> str:
        """Where clients go."""
        return f"http://{self._config.listen.host}:{self.service.server.port}"

    @property
    def admin_url(self) -> str | None:
        """Where operators go."""
        admin, port = self._config.admin, self.service.admin_port
        return None if admin is None or port is None else f"http://{admin.listen.host}:{port}"

    @property
    def engines(self) -> dict[str, ReplicaServer]:
        """What the gateway has no say in: the replicas' own side, by their names."""
        return self._engines

    async def start(self) -> None:
        """Raises OSError if not even free ports can be had."""
        replicas = self._config.pools[self.pool].replicas
        wanted = [replica.url.port for replica in replicas]
        try:
            await self._emulator.start(wanted, self._profile, self._options)
        except OSError:
            await self._emulator.start(len(wanted), self._profile, self._options)
        ports = self._emulator.ports
        self._engines = {
            replica.name: self._emulator.replica(port) for replica, port in zip(replicas, ports, strict=True)
        }
        self.service = Service(_placed(self._config, ports), self._rng, on_record=self._on_record)
        await self.service.start()
        await self._ready()

    async def _ready(self) -> None:
        """Until it takes traffic, as the first probes decide; if that takes long, the show begins anyway."""
        give_up_at = self.service.driver.now() + READY_WITHIN_S
        while self.service.not_ready() is not None and self.service.driver.now() < give_up_at:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """End both sides at once; answers under way break off."""
        # What clients have dropped reaches the gateway first: the less it has to cut.
        await asyncio.sleep(GOODBYE_S)
        await self.service.stop(grace_s=0.0)
        await self._emulator.close()


def configured(name: str, port: int | None = None) -> Config:
    """A shipped configuration, to listen on `port`; on a free one if that, or what it says, is taken."""
    config = shipped(name)
    listen = config.listen if port is None else Address(config.listen.host, port)
    admin = config.admin
    if admin is not None:
        admin = msgspec.structs.replace(admin, listen=_free(admin.listen))
    return msgspec.structs.replace(config, listen=_free(listen), admin=admin)


def _placed(config: Config, ports: list[int]) -> Config:
    """The configuration with its replicas on these ports."""
    (name,) = config.pools
    pool = config.pools[name]
    replicas = tuple(
        msgspec.structs.replace(replica, url=Origin("http", replica.url.host, port))
        for replica, port in zip(pool.replicas, ports, strict=True)
    )
    return msgspec.structs.replace(config, pools={name: msgspec.structs.replace(pool, replicas=replicas)})


def _free(address: Address) -> Address:
    """The address, or any free port of its host if its own is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError:
            return Address(address.host, ANY_PORT)
    return address
