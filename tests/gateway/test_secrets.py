"""Who may see what: keys, credentials and models, in answers, engines, logs and metrics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.fake_engine import MODEL, Script, Turn, answer, events, fake_engine, raw, stall, status
from tests.gateway.gateway_in_process import QUIET, Running, configured, run, serving, until
from tests.gateway.http_client import CHAT, ask_raw, chat, written
from tests.gateway.test_bad_requests import bearer, digest
from tidegate.config import Config
from tidegate.config.loading import parse

CREDENTIAL = "engine-credential-canary-7f3a"
KEY = "tg-client-key-canary-91bc"
COOKIE = "cookie-canary-55d0"
QUERY = "query-canary-02ee"
BODY = "body-canary-83aa"
CANARIES = (CREDENTIAL, KEY, COOKIE, QUERY, BODY, digest(KEY))


@pytest.fixture
def credential(tmp_path: Path) -> Path:
    """The file in which the engine's credential stands."""
    path = tmp_path / "engine.key"
    path.write_text(CREDENTIAL + "\n")
    return path


def guarded(url: str, credential: Path, **more: Any) -> Config:
    """An engine that asks for a credential, behind a gateway that asks for keys."""
    replica = {"url": url, "credential_file": str(credential)}
    pool = {"replicas": [replica]} | QUIET | more
    return configured(
        url,
        pools={MODEL: pool | {"extras": ["/tokenize"]}, "hidden": pool},
        admin={"listen": "127.0.0.1:0"},
        tenants={"acme": {"pools": [MODEL], "keys": {"ci": {"sha256": digest(KEY)}}}},
        limits={"requests_per_minute": 60_000},
    )


async def refuse_with_everything(turn: Turn) -> None:
    """Answer an error that repeats the head that came, as careless servers do in debug mode."""
    code = int(turn.request.json()["user"])
    said = {"error": {"message": turn.request.head.decode("latin-1")}}
    await turn.respond(code, json.dumps(said).encode())


FAULTS: dict[str, Script] = {
    "well": answer(),
    "reset": raw(b"", then="reset"),
    "garbage": raw(b"garbage\r\n\r\n"),
    "stalled": stall(),
    "broken stream": events(b"data: {\n\n", then="reset"),
    "a refusal": status(400),
}


def test_no_secret_in_any_answer_log_or_metric(credential: Path) -> None:
    """Keys, credentials, cookies, query strings and bodies turn up nowhere, whatever goes wrong."""

    async def main() -> None:
        async with fake_engine(answer()) as engine:
            config = guarded(
                engine.url,
                credential,
                deadlines={"ttft_s": 0.2, "total_s": 0.2},
                breaker={"consecutive_failures": 1_000, "min_samples": 1_000},
                retry={"max_attempts": 1},
            )
            async with serving(config) as gateway:
                headers = bearer(KEY) | {"cookie": f"session={COOKIE}", "x-api-key": KEY}
                target = f"{CHAT}?key={QUERY}&api_key={KEY}"
                replies = []
                for script in FAULTS.values():
                    engine.script = script
                    bodies = (chat(), chat(False), b'{"' + BODY.encode())
                    replies += [await gateway.ask(body, target, headers=headers) for body in bodies]
                engine.script = refuse_with_everything
                for code in (400, 401, 403, 429, 500, 503):
                    engine_is_back(gateway)
                    before = len(engine.requests)
                    replies.append(await gateway.ask(chat(user=str(code)), target, headers=headers))
                    assert len(engine.requests) == before + 1, code
                replies += [
                    await gateway.ask(chat(), headers=bearer(KEY + "x")),
                    await gateway.ask(None, f"/v1/models?{QUERY}", headers={"cookie": COOKIE}),
                    await gateway.ask(None, f"/v1/nothing?{QUERY}", headers=headers),
                    await ask_raw(gateway.port, f"GET / HTTP/1.1\r\nauthorization: {KEY}\r\n\r\n".encode()),
                    await ask_raw(gateway.port, f"{KEY} {BODY}\r\n\r\n".encode()),
                ]
                replies += [
                    await gateway.admin(path) for path in ("/status", "/metrics", "/readyz", "/healthz")
                ]
                said = "".join(f"{reply.headers} {reply.body.decode()}" for reply in replies)
                said += "\n".join(gateway.lines)
                assert [canary for canary in CANARIES if canary in said] == []

    run(main())


def engine_is_back(gateway: Running) -> None:
    """Forget that the engine asked for a pause."""
    for member in gateway.service.governor.members.values():
        member.replica.closed_until = 0.0


def test_the_credential_reaches_the_engine_and_the_key_does_not(credential: Path) -> None:
    """The engine sees its own credential and none of the client's, on calls and on probes."""

    async def main() -> None:
        async with fake_engine(status(200)) as engine, serving(guarded(engine.url, credential)) as gateway:
            headers = bearer(KEY) | {
                "x-api-key": KEY,
                "cookie": COOKIE,
                "proxy-authorization": KEY,
                "x-forwarded-for": "6.6.6.6",
                "connection": "x-secret, authorization",
                "x-secret": KEY,
                "te": "trailers",
                "upgrade": "h2c",
                "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                "user-agent": "sdk/1.0",
            }
            for path, body in [(CHAT, chat()), ("/tokenize", b"text")]:
                reply = await gateway.ask(body, f"{path}?key={QUERY}", headers=headers)
                assert reply.status == 200
            assert len(engine.requests) == 2
            for seen in engine.requests:
                assert seen.headers["authorization"] == f"Bearer {CREDENTIAL}"
                assert seen.headers["host"] == engine.url.removeprefix("http://")
                assert seen.headers["traceparent"].startswith("00-4bf9")
                assert seen.headers["user-agent"] == "sdk/1.0"
                head = seen.head.decode("latin-1")
                assert not any(canary in head for canary in (KEY, COOKIE)), head
                assert (QUERY in head) is (seen.target != CHAT)  # an extra's is its engine's business
                for name in (
                    "cookie",
                    "x-api-key",
                    "x-forwarded-for",
                    "te",
                    "upgrade",
                    "x-secret",
                    "connection",
                ):
                    assert name not in seen.headers

    run(main())


QUERIES = [
    "a=1",
    "a=1&a=2&&b",
    "q=%20%2F%3F%23%00+x",
    "path=/v1/../slots?x=?",
    "a=http://other.test/",
    "[]{}|^`\\\"<>'~!*();:@,$",
    "x=" + "y" * 8_000,
]


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_the_query_of_an_extra_reaches_the_engine_as_it_came(query: str, credential: Path) -> None:
    """Not a character of it is changed; a governed route's query stays here."""

    async def main() -> None:
        async def echo(turn: Turn) -> None:
            await turn.respond(200, turn.request.target.encode())

        async with fake_engine(echo) as engine, serving(guarded(engine.url, credential)) as gateway:
            for _ in range(3):
                reply = await gateway.ask(b"{}", f"/tokenize?{query}", headers=bearer(KEY))
                assert (reply.status, reply.body.decode()) == (200, f"/tokenize?{query}")
            assert (await gateway.ask(b"{}", "/tokenize", headers=bearer(KEY))).body == b"/tokenize"
            await gateway.ask(chat(False), f"{CHAT}?{query}", headers=bearer(KEY))
            assert engine.requests[-1].target == CHAT
            (upstream,) = (each for each in gateway.service.upstreams.values() if each.pool_name == MODEL)
            assert len(upstream._heads) == 2  # whatever clients ask for: /tokenize and chat

    run(main())


def test_a_query_that_cannot_be_passed_on(credential: Path) -> None:
    """One that is too long, or would end the line, is refused and never reaches the engine."""

    async def main() -> None:
        async with fake_engine(answer()) as engine, serving(guarded(engine.url, credential)) as gateway:
            for query, status in [
                ("x" * 9_000, 431),
                ("a b", 400),
                ("a\r\nx-evil: 1", 400),
                ("a\x00", 400),
                ("\xff", 400),
                ("a#b", 400),
            ]:
                reply = await gateway.ask(b"{}", f"/tokenize?{query}", headers=bearer(KEY))
                assert reply.status == status, query[:20]
            assert engine.requests == []

    run(main())


def test_extras_pass_only_where_they_are_listed(credential: Path) -> None:
    """A listed route is passed on as it is; every other one of an engine's routes is a 404."""

    async def main() -> None:
        async def script(turn: Turn) -> None:
            await turn.respond(200, b'{"tokens":[1,2]}')

        async with fake_engine(script) as engine, serving(guarded(engine.url, credential)) as gateway:
            body = b'{"model": "anything",  "content": "x"}'
            reply = await gateway.ask(body, "/tokenize", headers=bearer(KEY))
            assert (reply.status, reply.body) == (200, b'{"tokens":[1,2]}')
            assert (engine.requests[0].target, engine.requests[0].body) == ("/tokenize", body)
            assert (await gateway.ask(body, "/tokenize")).status == 401
            for path in (
                "/detokenize",
                "/invocations",
                "/v1/load_lora_adapter",
                "/slots",
                "/props",
                "/metrics",
                "/tokenize/",
                "/tokenize/../metrics",
                "//tokenize",
                "/v1/chat/completions/",
            ):
                for method in ("GET", "POST", "PUT", "DELETE"):
                    reply = await gateway.ask(b"{}", path, headers=bearer(KEY), method=method)
                    assert reply.status == 404, (method, path)
            assert len(engine.requests) == 1

    run(main())


def test_models_are_listed_by_key() -> None:
    """Each key sees the models that it may use, with what the engine says of them, and no other."""

    async def main() -> None:
        async with fake_engine(answer()) as engine:
            engine.pages["/v1/models"] = (
                200,
                json.dumps(
                    {"data": [{"id": "real-name", "max_model_len": 4096, "object": "model"}]}
                ).encode(),
            )
            pool = {"replicas": [{"url": engine.url, "model": "real-name"}]} | QUIET
            config = configured(
                pools={MODEL: pool | {"aliases": ["gpt-4o", "org/Model-7B"]}, "tide-2": pool},
                tenants={
                    "a": {"keys": {"all": {"sha256": digest("key-all")}}},
                    "b": {"pools": ["tide-2"], "keys": {"two": {"sha256": digest("key-two")}}},
                },
            )
            async with serving(config) as gateway:
                listed = (await gateway.ask(None, "/v1/models", headers=bearer("key-all"))).json()
                assert listed["object"] == "list"
                assert [each["id"] for each in listed["data"]] == [MODEL, "tide-2", "gpt-4o", "org/Model-7B"]
                assert all(
                    each["max_model_len"] == 4096 and each["object"] == "model" for each in listed["data"]
                )
                listed = (await gateway.ask(None, "/v1/models", headers=bearer("key-two"))).json()
                assert [each["id"] for each in listed["data"]] == ["tide-2"]
                for path, code in [
                    ("/v1/models/tide-2", 200),
                    (f"/v1/models/{MODEL}", 404),
                    ("/v1/models/nothing", 404),
                ]:
                    reply = await gateway.ask(None, path, headers=bearer("key-two"))
                    assert reply.status == code, path
                for path in ("/v1/models/org/Model-7B", "/v1/models/org%2FModel-7B"):
                    reply = await gateway.ask(None, path, headers=bearer("key-all"))
                    assert (reply.status, reply.json()["id"]) == (200, "org/Model-7B")
                await gateway.ask(chat() | {"model": "gpt-4o"}, headers=bearer("key-all"))
                assert engine.requests[0].json()["model"] == "real-name"

    run(main())


def test_discovered_models() -> None:
    """Without a file, every model that the engine lists is served under its own name."""

    async def main() -> None:
        async with fake_engine(answer()) as engine:
            models = [{"id": "one"}, {"id": "two"}, {"noid": 1}, 7]
            engine.pages["/v1/models"] = (200, json.dumps({"data": models}).encode())
            async with serving(configured(engine, pool={"discover": True})) as gateway:
                listed = (await gateway.ask(None, "/v1/models")).json()["data"]
                assert [each["id"] for each in listed] == ["one", "two"]
                for name in ("one", "two"):
                    assert (await gateway.ask(chat() | {"model": name})).status == 200
                    assert engine.requests[-1].json()["model"] == name
                assert (await gateway.ask(chat() | {"model": "three"})).status == 404

    run(main())


def test_models_that_are_not_discovered_yet() -> None:
    """Before an engine has told its models nothing is known to be wrong: 503 with a wait, never a 404."""

    async def main() -> None:
        async with fake_engine(answer()) as engine:
            engine.pages["/v1/models"] = (503, b"loading")
            health = {"interval_s": 0.05}
            async with serving(configured(engine, pool={"discover": True, "health": health})) as gateway:
                reply = await gateway.ask(chat() | {"model": "one"})
                assert (reply.status, reply.error["code"]) == (503, "no_replica_available")
                assert int(reply.headers["retry-after"]) >= 1
                engine.pages["/v1/models"] = (200, b'{"data":[{"id":"one"}]}')
                await until(lambda: not gateway.service.not_ready())
                assert (await gateway.ask(chat() | {"model": "one"})).status == 200

    run(main())


JUMPING: dict[str, Any] = {
    "priority": 1,
    "kv_transfer_params": {"remote_host": "6.6.6.6"},
    "cache_salt": "a",
    "id_slot": 3,
    "bootstrap_host": "6.6.6.6",
    "data_parallel_rank": 1,
    "request_id": "x",
}


@pytest.mark.parametrize("allowed", [[], ["priority", "cache_salt"]])
def test_fields_that_jump_an_engines_queue(allowed: list[str]) -> None:
    """They are taken out unless the pool allows them; everything else travels untouched."""

    async def main() -> None:
        async with (
            fake_engine(answer()) as engine,
            serving(configured(engine, pool={"allow_fields": allowed})) as gateway,
        ):
            body = chat(temperature=0.5, extra={"a": [1, None]}, **JUMPING)
            assert (await gateway.ask(body)).status == 200
            seen = engine.requests[0].json()
            assert {name for name in JUMPING if name in seen} == set(allowed)
            assert (seen["temperature"], seen["extra"]) == (0.5, {"a": [1, None]})

    run(main())


def test_no_request_can_name_a_host() -> None:
    """Whatever a client says of targets, in headers, query or body, the engine of the file is called."""

    async def main() -> None:
        async with (
            fake_engine(answer()) as engine,
            fake_engine(answer()) as canary,
            serving(configured(engine, pool={"extras": ["/tokenize"]})) as gateway,
        ):
            names = (
                "api_base",
                "base_url",
                "url",
                "custom_host",
                "x-portkey-custom-host",
                "x-forwarded-host",
            )
            headers = dict.fromkeys((*names, "forwarded", "x-original-url", "x-rewrite-url"), canary.url)
            query = "&".join(f"{name}={canary.url}" for name in names)
            more: dict[str, Any] = dict.fromkeys(names, canary.url)
            for path in (
                CHAT,
                "/v1/completions",
                "/v1/embeddings",
                "/v1/rerank",
                "/v1/messages",
                "/tokenize",
            ):
                await gateway.ask(chat(False, **more), f"{path}?{query}", headers=headers)
            absolute = written(CHAT, chat(False, **more)).replace(
                b"POST /", b"POST " + canary.url.encode() + b"/"
            )
            await ask_raw(gateway.port, absolute)
            assert len(engine.requests) == 7
            assert not canary.connections

    run(main())


def test_a_credential_that_cannot_be_had_is_named_without_it(tmp_path: Path) -> None:
    """A missing file stops the start, and the message does not repeat what could be a secret."""
    with pytest.raises(Exception, match="credential_file") as raised:
        parse(
            f"pools: {{m: {{replicas: [{{url: 'http://127.0.0.1:1', credential_file: {tmp_path}/none}}]}}}}",
            "test",
        )
    assert CREDENTIAL not in str(raised.value)
