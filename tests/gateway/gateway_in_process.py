"""How does a test run the whole gateway in its own process, and know that nothing was left behind?

`serving(config)` starts a `Service` on free ports. At its end it asserts that every count has come back to
zero, that every bucket holds what was settled and nothing else, that no task is left, and that nothing was
raised where nobody looks.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop
import yaml

from tests.gateway.fake_engine import MODEL, TASK, FakeEngine
from tests.gateway.http_client import Reply, ask
from tidegate.config import Config
from tidegate.config.loading import parse
from tidegate.core.records import RequestRecord
from tidegate.gateway.service import Service
from tidegate.net import client as net_client
from tidegate.net import server as net_server
from tidegate.policy.limits import Scope

PATIENCE_S = 30.0
"""Upper bound that no test reaches unless something hangs."""


QUIET: dict[str, Any] = {"engine": "other", "health": {"interval_s": 60, "stale_after_s": 60}}
"""Of a pool: one probe at the start and no other, so that a test that does not care is not crossed by any."""


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop; whatever is reported to the loop's exception handler fails the test."""
    uvloop.run(_bounded(main))


async def _bounded(main: Coroutine[Any, Any, None]) -> None:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
    async with asyncio.timeout(PATIENCE_S):
        await main
    assert not problems, problems


async def until(holds: Callable[[], object]) -> None:
    """Wait for something that must become true."""
    while not holds():  # noqa: ASYNC110 - there is nothing to wait on but the peer
        await asyncio.sleep(0.002)


def configured(*engines: FakeEngine | str, pool: Mapping[str, Any] | None = None, **top: Any) -> Config:
    """One pool of these engines, with whatever else the file may say; no admin listener unless asked for."""
    urls = [engine if isinstance(engine, str) else engine.url for engine in engines]
    settings = {"replicas": [{"url": url} for url in urls]} | QUIET
    whole = {"listen": "127.0.0.1:0", "admin": None, "pools": {MODEL: settings | dict(pool or {})}} | top
    return parse(yaml.safe_dump(whole), "test", base=Path())


@dataclass(slots=True)
class Running:
    """A gateway that serves."""

    service: Service
    log: list[logging.LogRecord]
    records: list[RequestRecord] = field(default_factory=list)
    """Of every request that has ended."""

    @property
    def port(self) -> int:
        """Of the clients' listener."""
        return self.service.server.port

    @property
    def lines(self) -> list[str]:
        """The log so far."""
        return [record.getMessage() for record in self.log]

    @property
    def admin_port(self) -> int:
        """Of the operators' listener."""
        assert self.service.admin_port is not None
        return self.service.admin_port

    @property
    def in_flight(self) -> int:
        """Requests that have arrived and not ended."""
        return self.service.governor.live

    @property
    def queued(self) -> int:
        """Requests that wait."""
        return sum(pool.queue.requests for pool in self.service.governor.pools.values())

    async def ask(self, body: Any = None, path: str = "/v1/chat/completions", **more: Any) -> Reply:
        """One request on a connection of its own."""
        return await ask(self.port, path, body, **more)

    async def admin(self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> Reply:
        """One request of an operator."""
        return await ask(self.admin_port, path, None, {"host": "localhost"} | dict(headers or {}), method)

    async def status(self) -> Any:
        """The status page."""
        return json.loads((await self.admin("/status")).body)

    async def settled(self) -> None:
        """Wait until nothing is in flight any more."""
        await until(lambda: not self.in_flight)

    async def all_probed(self) -> None:
        """Wait until every replica has been probed; where a test begins, one of them has."""
        await until(lambda: self.service.prober.probed >= self.service.upstreams.keys())

    def scope(self, name: str) -> Scope:
        """One scope of limits, by its name in the status."""
        return next(scope for scope in self.service.governor.admission.scopes() if scope.name == name)


@asynccontextmanager
async def serving(
    config: Config, *, errors_expected: bool = False, tape: Callable[[bytes], None] | None = None
) -> AsyncIterator[Running]:
    """Serve as `config` says, then assert that nothing is left. `tape` is given the lines of a tape."""
    before = _tasks()
    began_at = asyncio.get_running_loop().time()
    log = _Log()
    loggers = [logging.getLogger(name) for name in ("tidegate", "asyncio", "uvicorn")]
    level = loggers[0].level
    loggers[0].setLevel(logging.DEBUG)
    for logger in loggers:
        logger.addHandler(log)
    sweeps = net_client.SWEEP_S, net_server.SWEEP_S
    net_client.SWEEP_S = net_server.SWEEP_S = 0.02  # deadlines of a tenth of a second are kept as such
    service = Service(config, tape=tape)
    running = Running(service, log.records)
    _record_endings(service, running.records)
    try:
        await service.start()
        await until(lambda: service.prober.probed or not service.upstreams)
        yield running
        await _come_to_rest(service)
        _nothing_is_held(service)
        _buckets_hold_what_was_settled(running, asyncio.get_running_loop().time() - began_at)
        if not errors_expected:
            bad = [record.getMessage() for record in log.records if record.levelno >= logging.ERROR]
            assert not bad, bad
        await _all_have_left(service)
    finally:
        await service.stop(0.0)
        net_client.SWEEP_S, net_server.SWEEP_S = sweeps
        loggers[0].setLevel(level)
        for logger in loggers:
            logger.removeHandler(log)
    assert service.server.connections == 0
    assert [upstream.client.active for upstream in service.upstreams.values() if upstream.client.active] == []
    await until(lambda: not (_tasks() - before))


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def _tasks() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if task.get_name() != TASK}


def _record_endings(service: Service, records: list[RequestRecord]) -> None:
    observe = service.driver._on_record

    def observe_and_keep(record: RequestRecord) -> None:
        records.append(record)
        observe(record)

    service.driver._on_record = observe_and_keep


async def _come_to_rest(service: Service) -> None:
    """Every request ends by itself: nothing below may be so only because the gateway was stopped."""
    clients = [upstream.client for upstream in service.upstreams.values()]
    try:
        async with asyncio.timeout(10.0):
            await until(lambda: not service.governor.live and not any(client.active for client in clients))
    except TimeoutError:
        raise AssertionError(
            f"still live: {service.governor.live}; upstream calls: {[client.active for client in clients]}"
        ) from None


async def _all_have_left(service: Service) -> None:
    """Clients that hung up are gone in a moment; the stop below need not poll for them."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            await until(lambda: not service.server.connections)


def _nothing_is_held(service: Service) -> None:
    governor = service.governor
    governor.check()
    assert service.driver.flights == {}
    for pool in governor.pools.values():
        assert (pool.queue.requests, pool.queue.tokens, pool.queue.body_bytes) == (0, 0, 0)
        assert not pool.retrying
        for member in pool.members.values():
            replica = member.replica
            assert (replica.in_flight, replica.kv_held, replica.prefill_held) == (0, 0, 0)
            assert member.breaker.trials == 0
    assert all(scope.in_flight == 0 for scope in governor.admission.scopes())


def _buckets_hold_what_was_settled(running: Running, elapsed_s: float) -> None:
    """Missing from each token bucket is what was settled less at most what has flowed back since."""
    now = running.service.driver.now()
    for scope in running.service.governor.admission.scopes():
        bucket = scope.tokens
        if bucket is None:
            continue
        settled = sum(
            record.charged_credits for record in running.records if scope.name in _scopes_of(record)
        )
        missing = bucket.burst - bucket.available(now)
        assert missing <= settled + 1e-3, (scope.name, missing, settled)
        assert missing >= settled - bucket.rate_per_s * elapsed_s - 1e-3, (scope.name, missing, settled)


def _scopes_of(record: RequestRecord) -> tuple[str, ...]:
    return (
        "the fleet",
        f"tenant {record.tenant}",
        f"key {record.tenant}/{record.key}",
        f"pool {record.pool}",
        f"tenant {record.tenant} in pool {record.pool}",
    )
