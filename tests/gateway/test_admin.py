"""The operators' listener: who may ask, what may be changed, and that it stays quick and stable."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.routing import Route

from tests.gateway.fake_engine import MODEL, ROLE, answer, delta, events, fake_engine, status
from tests.gateway.gateway_in_process import Running, configured, run, serving, until
from tests.gateway.http_client import CHAT, ask_raw, chat, talking
from tests.gateway.test_bad_requests import bearer, digest
from tidegate.config import Config
from tidegate.gateway.admin import Guard, admin_app

TOKEN = "tg-token-of-the-operators"
OPEN = events(ROLE, delta("x"))


def administered(*engines: Any, token: bool = True, **more: Any) -> Config:
    """A gateway with an admin listener."""
    admin: dict[str, Any] = {"listen": "127.0.0.1:0"}
    if token:
        admin["token_sha256"] = digest(TOKEN)
    return configured(*engines, admin=admin, **more)


def routes_of(gateway: Running) -> list[tuple[str, str]]:
    """Every path and method that the application knows, so that a new one is covered at once."""
    guard = admin_app(gateway.service)
    assert isinstance(guard, Guard)
    app = guard._app
    assert isinstance(app, Starlette)
    found = []
    for route in app.routes:
        assert isinstance(route, Route)
        path = route.path.replace("{replica:path}", "nobody")
        found += [(path, method) for method in sorted(route.methods or ())]
    return found


def test_every_route_without_a_token() -> None:
    """On loopback reading is free, and changing needs the token, on every route and with every method."""

    async def main() -> None:
        async with fake_engine(answer()) as engine, serving(administered(engine)) as gateway:
            routes = routes_of(gateway)
            assert {path for path, _ in routes} == {
                "/",
                "/healthz",
                "/readyz",
                "/metrics",
                "/status",
                "/replicas/nobody/drain",
            }
            for path in {path for path, _ in routes} | {
                "/",
                "/docs",
                "/openapi.json",
                "/replicas",
                "/config",
            }:
                for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
                    for headers in ({}, bearer("wrong"), bearer(digest(TOKEN)), {"authorization": TOKEN}):
                        reply = await gateway.admin(path, method, headers)
                        if method in ("GET", "HEAD"):
                            assert reply.status in (200, 404, 405), (path, method)
                        else:
                            assert reply.status == 401, (path, method)
            member = next(iter(gateway.service.governor.members.values()))
            assert not member.replica.draining

    run(main())


def test_without_a_configured_token_nothing_can_be_changed() -> None:
    """No token means no changes at all, never changes for everybody."""

    async def main() -> None:
        async with fake_engine(answer()) as engine, serving(administered(engine, token=False)) as gateway:
            name = next(iter(gateway.service.upstreams))
            for headers in ({}, bearer(""), bearer("x"), bearer(digest(""))):
                for method in ("POST", "DELETE"):
                    reply = await gateway.admin(f"/replicas/{name}/drain", method, headers)
                    assert reply.status == 403
            assert not gateway.service.governor.members[name].replica.draining

    run(main())


def test_beyond_loopback_only_health_is_free() -> None:
    """Off loopback reading needs the token too, except for liveness and readiness."""

    async def main() -> None:
        async with fake_engine(answer()) as engine, serving(administered(engine)) as gateway:
            guard = admin_app(gateway.service)
            assert isinstance(guard, Guard)
            guard._loopback = False
            for path, method in routes_of(gateway):
                for headers, code in [([], 401), ([(b"authorization", f"Bearer {TOKEN}".encode())], None)]:
                    scope = {
                        "type": "http",
                        "method": method,
                        "path": path,
                        "headers": [(b"host", b"localhost"), *headers],
                    }
                    refusal = guard._refusal(scope)
                    free = path in ("/healthz", "/readyz") and method in ("GET", "HEAD")
                    assert (refusal.status_code if refusal else None) == (None if free else code), (
                        path,
                        method,
                    )

    run(main())


HOSTS: list[tuple[str, bool]] = [
    ("localhost", True),
    ("LOCALHOST:80", True),
    ("127.0.0.1", True),
    ("127.0.0.1:9090", True),
    ("[::1]:9090", True),
    ("[::1]", True),
    ("ops.example", True),
    ("evil.example", False),
    ("localhost.evil.example", False),
    ("127.0.0.1.evil.example", False),
    ("evil.example:80@localhost", False),
    ("localhost@evil.example", False),
    ("localhost:80@evil.example", False),
    ("localhost/..", False),
    ("localhost:80/..", False),
    ("localhost?x", False),
    ("localhost#x", False),
    ("localhost evil", False),
    ("[::1", False),
    ("[::1]evil.example", False),
    ("[", False),
    ("", False),
    ("localhost.", False),
    ("0.0.0.0", False),
    ("\xff\xfe", False),
]


def test_hosts() -> None:
    """Only names that the configuration knows are answered, so that no web page can ask through a browser."""

    async def main() -> None:
        admin = {"listen": "127.0.0.1:0", "token_sha256": digest(TOKEN), "hosts": ["ops.example"]}
        async with fake_engine(answer()) as engine, serving(configured(engine, admin=admin)) as gateway:
            for host, served in HOSTS:
                for path in ("/status", "/healthz"):
                    reply = await gateway.admin(path, headers={"host": host})
                    assert (reply.status == 200) is served, host
                    assert served or reply.status in (400, 421), host
                # With a token it is the same: who may ask never depends on the Host.
                headers = bearer(TOKEN) | {"host": host}
                reply = await gateway.admin("/replicas/nobody/drain", "POST", headers)
                assert (reply.status == 404) is served, host

    run(main())


def test_hosts_that_are_no_single_one() -> None:
    """Two Hosts, none, or one in the target: refused, or judged by the one that counts."""

    async def main() -> None:
        async with fake_engine(answer()) as engine, serving(administered(engine)) as gateway:
            port = gateway.admin_port
            for head in (
                b"GET /status HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n",
                b"GET /status HTTP/1.0\r\n\r\n",
                b"GET /status HTTP/1.1\r\n\r\n",
                b"GET http://localhost/status HTTP/1.1\r\nhost: evil.example\r\n\r\n",
            ):
                assert (await ask_raw(port, head)).status in (400, 421), head

    run(main())


def test_draining_a_replica() -> None:
    """After the acknowledgement it gets nothing new, what runs there finishes, and it can be taken back."""

    async def main() -> None:
        gate = asyncio.Event()

        async def slow(turn: Any) -> None:
            await turn.head()
            await turn.chunk(ROLE + delta("first"))
            await gate.wait()
            await turn.chunk(delta(" last") + delta("", finish="stop") + b"data: [DONE]\n\n")
            await turn.end()

        async with fake_engine(slow) as a, fake_engine(answer()) as b:
            pool = {"routing": {"policy": "round_robin"}}
            async with serving(administered(a, b, pool=pool)) as gateway:
                async with talking(gateway.port) as talk:
                    while not a.requests:
                        if not a.requests:
                            talk.request(CHAT, chat())
                            head = await talk.head()
                            assert head.status == 200
                            if not a.requests:
                                while await talk.chunk():
                                    pass
                    name = a.url.removeprefix("http://")
                    reply = await gateway.admin(f"/replicas/{name}/drain", "POST", bearer(TOKEN))
                    assert (reply.status, reply.json()["draining"], reply.json()["in_flight"]) == (
                        200,
                        True,
                        1,
                    )
                    before = len(a.requests)
                    for _ in range(20):
                        assert (await gateway.ask(chat())).status == 200
                    assert len(a.requests) == before
                    shown = (await gateway.status())["pools"][MODEL]["replicas"]
                    assert shown[name]["state"] == "draining"
                    gate.set()
                    body = b""
                    while piece := await talk.chunk():
                        body += piece
                    assert b"last" in body
                    assert body.endswith(b"data: [DONE]\n\n")
                reply = await gateway.admin(f"/replicas/{name}/drain", "DELETE", bearer(TOKEN))
                assert reply.json()["draining"] is False
                assert f"an operator takes back replica {name}" in gateway.lines
                for _ in range(6):
                    await gateway.ask(chat())
                assert len(a.requests) > before
                assert (await gateway.admin("/replicas/nobody/drain", "POST", bearer(TOKEN))).status == 404

    run(main())


def test_liveness_under_a_thousand_streams() -> None:
    """With a thousand open streams, and no engine that is well, the process still says that it lives."""

    async def main() -> None:
        async with fake_engine(OPEN) as engine:
            pool = {"gate": {"max_concurrency": 2_000}, "health": {"interval_s": 0.1, "fall": 1}}
            async with serving(administered(engine, pool=pool)) as gateway:

                async def one() -> None:
                    async with talking(gateway.port) as talk:
                        talk.request(CHAT, chat())
                        await talk.head()
                        await done.wait()

                done = asyncio.Event()
                streams = [asyncio.create_task(one()) for _ in range(1_000)]
                await until(lambda: engine.running == 1_000)
                engine.healthy = False
                for _ in range(20):
                    reply = await asyncio.wait_for(gateway.admin("/healthz"), 5)
                    assert (reply.status, reply.json()) == (200, {"status": "ok"})
                await until(lambda: gateway.service.not_ready() is not None)
                reply = await gateway.admin("/readyz")
                assert reply.status == 503
                assert "no replica" in reply.json()["status"]
                assert (await gateway.status())["in_flight"] == 1_000
                done.set()
                await asyncio.gather(*streams)

    run(main())


FAMILIES = {
    "tidegate_time_to_first_token_seconds": {"pool", "class"},
    "tidegate_time_per_output_token_seconds": {"pool", "class"},
    "tidegate_e2e_request_latency_seconds": {"pool", "class"},
    "tidegate_request_queue_time_seconds": {"pool", "class"},
    "tidegate_requests": {"pool", "class", "tenant", "status"},
    "tidegate_refusals": {"reason", "pool", "tenant"},
    "tidegate_tokens": {"pool", "class", "tenant", "type"},
    "tidegate_retries": {"pool", "class", "tenant"},
    "tidegate_budget_requests": {"pool", "class", "outcome"},
    "tidegate_queue_requests": {"pool", "class"},
    "tidegate_queue_tokens": {"pool", "class"},
    "tidegate_pool_pressure_ratio": {"pool"},
    "tidegate_drain_tokens_per_second": {"pool"},
    "tidegate_degradation_active": {"pool", "step"},
    "tidegate_replica_in_flight": {"pool", "replica"},
    "tidegate_replica_kv_held_tokens": {"pool", "replica"},
    "tidegate_replica_available": {"pool", "replica"},
    "tidegate_replica_state": {"pool", "replica", "state"},
    "tidegate_in_flight_requests": set(),
    "tidegate_build_info": {"version"},
}
"""What dashboards and alert rules are written against."""


def test_metrics_are_valid_and_named_as_ever() -> None:
    """Prometheus' own parser reads the page, and its names and labels are those that dashboards know."""

    async def main() -> None:
        async with fake_engine(answer()) as engine, fake_engine(status(500)) as bad:
            pool = {"routing": {"policy": "round_robin"}}
            classes = {"default": {"budgets": {"ttft_s": 10}}}
            config = administered(engine, bad, pool=pool, classes=classes, limits={"requests_per_minute": 4})
            async with serving(config) as gateway:
                for stream in (True, False, True, True, True):
                    await gateway.ask(chat(stream))
                await gateway.ask(b"{")
                reply = await gateway.admin("/metrics")
                assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
                families = {
                    family.name: family for family in text_string_to_metric_families(reply.body.decode())
                }
                assert set(families) == set(FAMILIES)
                for name, labels in FAMILIES.items():
                    for sample in families[name].samples:
                        assert set(sample.labels) - {"le"} == labels, name
                counted = sum(sample.value for sample in families["tidegate_requests"].samples)
                assert counted == len(gateway.records) == 5
                reasons = {sample.labels["reason"] for sample in families["tidegate_refusals"].samples}
                assert {"malformed_request", "request_quota_exceeded"} <= reasons

    run(main())


def test_histograms_add_up() -> None:
    """Buckets rise, the last one is the count, and the sum is that of what was observed."""

    async def main() -> None:
        async with fake_engine(answer("a", "b", "c")) as engine, serving(administered(engine)) as gateway:
            for _ in range(7):
                await gateway.ask(chat())
            await gateway.settled()
            page = (await gateway.admin("/metrics")).body.decode()
            buckets = [
                float(value)
                for value in re.findall(
                    r"^tidegate_e2e_request_latency_seconds_bucket\{.*\} (\S+)$", page, re.M
                )
            ]
            assert buckets == sorted(buckets)
            assert buckets[-1] == 7
            assert re.search(r"^tidegate_e2e_request_latency_seconds_count\{.*\} 7.0$", page, re.M)
            spent_s = sum(record.e2e_s for record in gateway.records)
            found = re.search(r"^tidegate_e2e_request_latency_seconds_sum\{.*\} (\S+)$", page, re.M)
            assert found
            assert float(found[1]) == pytest.approx(spent_s)

    run(main())


def test_status_shows_everything_that_is_held() -> None:
    """In flight, queued, held and limited while it lasts; all zero after."""

    async def main() -> None:
        async with fake_engine(OPEN) as engine:
            config = administered(
                engine,
                pool={"gate": {"max_concurrency": 1}},
                limits={"tokens_per_minute": 60_000, "requests_per_minute": 60, "max_in_flight": 5},
            )
            async with serving(config) as gateway:
                async with talking(gateway.port) as first, talking(gateway.port) as second:
                    first.request(CHAT, chat())
                    await first.head()
                    second.request(CHAT, chat())
                    await until(lambda: gateway.queued == 1)
                    shown = await gateway.status()
                    pool = shown["pools"][MODEL]
                    replica = next(iter(pool["replicas"].values()))
                    assert (shown["ready"], shown["in_flight"], shown["client_connections"]) == (True, 2, 2)
                    assert (pool["queued_requests"], pool["queued_by_class"]) == (1, {"default": 1})
                    assert pool["queued_bytes"] > 0
                    assert (replica["in_flight"], replica["concurrency_limit"]) == (1, 1)
                    assert replica["kv_held_tokens"] > 0
                    assert shown["limits"][0]["in_flight"] == 2
                    assert shown["limits"][0]["requests_available"] == pytest.approx(58, abs=1)
                await gateway.settled()
                shown = await gateway.status()
                pool = shown["pools"][MODEL]
                replica = next(iter(pool["replicas"].values()))
                held = (
                    shown["in_flight"],
                    pool["queued_requests"],
                    pool["queued_bytes"],
                    pool["queued_tokens"],
                )
                assert held == (0, 0, 0, 0)
                assert (replica["in_flight"], replica["kv_held_tokens"], shown["limits"][0]["in_flight"]) == (
                    0,
                    0,
                    0,
                )

    run(main())


def test_readiness_follows_the_probes() -> None:
    """Not ready before an engine has answered, ready after, not ready when all are down."""

    async def main() -> None:
        async with fake_engine(answer()) as engine:
            health = {"interval_s": 0.05, "fall": 1, "rise": 1}
            async with serving(administered(engine, pool={"health": health})) as gateway:
                assert (await gateway.admin("/readyz")).status == 200
                engine.healthy = False
                await until(lambda: gateway.service.not_ready())
                reply = await gateway.admin("/readyz")
                assert (reply.status, reply.json()["status"]) == (503, "no replica is available")
                engine.healthy = True
                await until(lambda: not gateway.service.not_ready())
                assert (await gateway.admin("/readyz")).status == 200

    run(main())


def test_silent_connections_do_not_keep_operators_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that say nothing, or half a head, are closed, and keep no liveness probe out meanwhile."""
    monkeypatch.setattr("tidegate.gateway.service.ADMIN_SILENCE_S", 0.3)

    async def main() -> None:
        async with fake_engine(answer()) as engine, serving(administered(engine)) as gateway:
            idle = [await asyncio.open_connection("127.0.0.1", gateway.admin_port) for _ in range(70)]
            idle[0][1].write(b"GET /healthz HTTP/1.1\r\nhost:")
            assert (await gateway.admin("/healthz")).status == 200
            for reader, writer in idle:
                assert await reader.read() == b""
                writer.close()
            assert (await gateway.admin("/healthz")).status == 200

    run(main())
