"""How does a gateway start, and how does it stop? Everything put together, for one process.

Start: listen for clients, then for operators. Stop: say so to whoever asks for readiness, and serve on for
the delay that balancers need to hear of it; then no new connection, what waits is refused, what runs may
finish within the grace and is then ended well; nothing is cut without a word.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import uvicorn

from tidegate.config import Address, Config
from tidegate.core.messages import ReplicaAdded, ShutdownAsked
from tidegate.core.records import RequestRecord
from tidegate.gateway.admin import admin_app
from tidegate.gateway.app import Gateway
from tidegate.gateway.driver import Driver
from tidegate.gateway.metrics import Metrics
from tidegate.gateway.probes import Prober
from tidegate.gateway.tallies import RequestTally
from tidegate.gateway.upstream import upstreams
from tidegate.gateway.watch import LOOK_S, Watch
from tidegate.net.descriptors import raise_descriptor_limit
from tidegate.net.server import Server
from tidegate.net.tls import server_context
from tidegate.policy.governor import Governor
from tidegate.policy.tape import Recorder

log = logging.getLogger("tidegate")

AFTER_GRACE_S = 1.0
"""What a truncated answer has to leave the process by."""
FEW_DESCRIPTORS = 4_096
ADMIN_SILENCE_S = 5.0
"""How long a connection of an operator may take to its first whole request."""


class AdminServer(uvicorn.Server):
    """uvicorn, but signals are this process's to take, and connections that ask nothing are closed."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._silent_since: dict[Any, float] = {}

    @contextmanager
    def capture_signals(self) -> Any:
        yield

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second. uvicorn has no deadline for a head, and its places are bounded."""
        now = asyncio.get_running_loop().time()
        silent: list[Any] = [each for each in self.server_state.connections if each.cycle is None]  # type: ignore[union-attr]
        self._silent_since = {each: self._silent_since.get(each, now) for each in silent}
        for connection, since in self._silent_since.items():
            if now - since > ADMIN_SILENCE_S:
                connection.transport.close()
        return await super().on_tick(counter)


class Service:
    """A running gateway. Made inside a running event loop."""

    def __init__(
        self,
        config: Config,
        rng: Random | None = None,
        tape: Callable[[bytes], None] | None = None,
        on_record: Callable[[RequestRecord], None] | None = None,
    ) -> None:
        """`tape` is given each line of a tape of all that is decided, `on_record` each request's record."""
        self.config = config
        self._on_record = on_record
        seed = (rng or Random()).getrandbits(64)
        self.governor = Governor(config.governor_settings(), Random(seed))
        self.upstreams = upstreams(config)
        policy = Recorder(self.governor, seed, tape) if tape else self.governor
        self.driver = Driver(policy, self._probe, self._record)
        self.tally = RequestTally({name: each.budgets for name, each in config.classes.items()})
        self.metrics = Metrics(self.governor, self.tally, self.driver.now)
        self.watch = Watch(self.governor, self.driver.now)
        self._watching: asyncio.TimerHandle | None = None
        self.prober = Prober(config, self.upstreams, self.driver.tell, self._in_flight)
        self.gateway = Gateway(config, self.driver, self.upstreams, self.prober, self.tally.refused)
        self.server = Server(
            self.gateway,
            config.http,
            ssl=server_context(str(config.tls.certificate), str(config.tls.private_key))
            if config.tls
            else None,
        )
        self.admin_port: int | None = None
        self._admin: AdminServer | None = None
        self._admin_task: asyncio.Task[None] | None = None
        self._stopping = False

    # -- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, and begin to probe. Raises OSError if an address cannot be had."""
        _raise_descriptor_limit()
        for replica_id, upstream in self.upstreams.items():
            gate = upstream.config.gate
            self.driver.tell(
                ReplicaAdded(
                    pool=upstream.pool_name,
                    replica=replica_id,
                    weight=upstream.config.weight,
                    max_concurrency=gate.max_concurrency if gate else None,
                    kv_capacity_tokens=gate.kv_tokens if gate else None,
                    max_prefill_tokens=gate.max_prefill_tokens if gate else None,
                )
            )
        address = self.config.listen
        try:
            await self.server.listen(address.host, address.port)
        except OSError as error:
            raise _cannot_listen(address, error) from error
        if self.config.admin is not None:
            await self._start_admin()  # last: readiness is asked here, and must not be early
        self._watch()

    async def stop(self, grace_s: float | None = None) -> None:
        """End within `grace_s` and a second, at once; by default after the delay and grace configured."""
        self._stopping = True
        if grace_s is None:
            grace_s = self.config.shutdown_grace_s
            await asyncio.sleep(self.config.shutdown_delay_s)
        self.server.stop_accepting()
        self.driver.tell(ShutdownAsked(grace_s=grace_s))
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s + AFTER_GRACE_S):
                await self._quiet()
        await self.server.close()
        await self.prober.close()
        for upstream in self.upstreams.values():
            await upstream.client.close()
        self.driver.close()
        if self._watching is not None:
            self._watching.cancel()
        if self._admin is not None and self._admin_task is not None:
            self._admin.should_exit = True
            await self._admin_task

    async def _quiet(self) -> None:
        """Until nothing is in flight and every answer has left."""
        while self.governor.live or self.server.connections:  # noqa: ASYNC110 - an end needs no event
            await asyncio.sleep(0.05)

    async def _start_admin(self) -> None:
        assert self.config.admin is not None
        address = self.config.admin.listen
        settings = uvicorn.Config(
            admin_app(self),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=1,
            timeout_keep_alive=5,
            limit_concurrency=256,
        )
        try:  # not by uvicorn, which ends the process if it cannot have the address
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            listening = socket.create_server((address.host, address.port), family=family)
        except OSError as error:
            raise _cannot_listen(address, error) from error
        self.admin_port = listening.getsockname()[1]
        self._admin = AdminServer(settings)
        self._admin_task = asyncio.create_task(self._admin.serve([listening]))
        while not self._admin.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.005)

    def not_ready(self) -> str | None:
        """Why no traffic should come here; None when it may."""
        if self._stopping:
            return "shutting down"
        now = self.driver.now()
        for name, pool in self.governor.pools.items():
            if self.config.pools[name].discover and not self.prober.discovered:
                return f"no replica of pool {name} tells which models it serves"
            if pool.members and not self.prober.probed & pool.members.keys():
                return f"no replica of pool {name} has answered a probe yet"
        if not any(pool.any_available(now) for pool in self.governor.pools.values()):
            return "no replica is available"
        return None

    # -- between the parts ------------------------------------------------------------------------

    def _probe(self, replica_id: str) -> None:
        self.prober.probe(replica_id)

    def _record(self, record: RequestRecord) -> None:
        self.tally.observe(record)
        if record.reason is not None:
            self.watch.observe(record)
        if self._on_record is not None:
            self._on_record(record)

    def _watch(self) -> None:
        self._watching = asyncio.get_running_loop().call_later(LOOK_S, self._watch)
        self.watch.look()

    def _in_flight(self, replica_id: str) -> int:
        return self.governor.members[replica_id].replica.in_flight


def _cannot_listen(address: Address, error: OSError) -> OSError:
    """Which address and why; Python adds the address to some of the reasons, in its own form."""
    why = (error.strerror or str(error)).partition(" (while attempting")[0]
    return OSError(error.errno, f"cannot listen on {address}: {why}")


def _raise_descriptor_limit() -> None:
    """Two descriptors a stream: take as many as the system allows, and say so if they are few."""
    limit = raise_descriptor_limit()
    if limit < FEW_DESCRIPTORS:
        log.warning("only %d file descriptors may be open: about %d streams at once", limit, limit // 2)
