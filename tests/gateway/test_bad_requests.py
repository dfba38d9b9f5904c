"""Requests that must be refused: how that is said, that it costs nothing, and that it leaves one line."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Any

import pytest

from tests.gateway.fake_engine import MODEL, FakeEngine, answer, fake_engine
from tests.gateway.gateway_in_process import QUIET, configured, run, serving
from tests.gateway.http_client import CHAT, Reply, ask_raw, chat, talking, written
from tidegate.config import Config

KEY = "tg-a-key-of-alices"
NARROW_KEY = "tg-a-key-that-may-use-one-pool"
OLD_KEY = "tg-a-key-that-has-expired"


def digest(key: str) -> str:
    """As the configuration holds it."""
    return sha256(key.encode()).hexdigest()


def with_keys(engine: FakeEngine, **more: Any) -> Config:
    """Two pools, two tenants, limits over everything."""
    other = {"replicas": [{"url": engine.url}]} | QUIET
    first = other | {"aliases": ["alias"], "extras": ["/tokenize"]}
    return configured(
        engine,
        pools={MODEL: first, "tide-2": other},
        limits={"tokens_per_minute": 60_000, "requests_per_minute": 600, "max_in_flight": 4},
        classes={"high": {}, "low": {}},
        tenants={
            "alice": {"limits": {"tokens_per_minute": 60_000}, "keys": {"main": {"sha256": digest(KEY)}}},
            "bob": {
                "pools": ["tide-2"],
                "keys": {
                    "narrow": {"sha256": digest(NARROW_KEY)},
                    "old": {"sha256": digest(OLD_KEY), "expires": "2020-01-01"},
                },
            },
        },
        **more,
    )


def bearer(key: str) -> dict[str, str]:
    """The header in which a key travels."""
    return {"authorization": f"Bearer {key}"}


def assert_refused(
    reply: Reply, status: int, code: str, error_type: str, param: str | None = None, case: str = ""
) -> None:
    """An error in OpenAI's form that tells SDKs not to come back."""
    error = reply.error
    assert (reply.status, error["code"], error["type"], error["param"]) == (
        status,
        code,
        error_type,
        param,
    ), case
    assert reply.error["message"]
    assert "retry-after" not in reply.headers
    assert reply.headers["x-should-retry"] == "false"
    assert reply.headers["content-type"] == "application/json"


INVALID = "invalid_request_error"

BODIES: list[tuple[str, bytes, str | None]] = [
    ("nothing", b"", None),
    ("not JSON", b'{"model":', None),
    ("no object", b"[1,2]", None),
    ("a number", b"1", None),
    ("NaN", b'{"model":"tide-1","temperature":NaN}', None),
    ("not UTF-8", b'{"model":"tide-1","user":"\xff\xfe"}', None),
    ("two objects", b'{"model":"tide-1"}{}', None),
    ("deep nesting", b'{"model":"tide-1","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}", None),
    ("no model", b"{}", "model"),
    ("model: a number", b'{"model":1}', "model"),
    ("model: null", b'{"model":null}', "model"),
    ("stream: a string", b'{"model":"tide-1","stream":"yes"}', "stream"),
    ("stream: a number", b'{"model":"tide-1","stream":1}', "stream"),
    ("stream_options: a list", b'{"model":"tide-1","stream_options":[]}', "stream_options"),
    (
        "include_usage: a string",
        b'{"model":"tide-1","stream":true,"stream_options":{"include_usage":"x"}}',
        "stream_options.include_usage",
    ),
    ("max_tokens: a string", b'{"model":"tide-1","max_tokens":"1"}', "max_tokens"),
    ("max_tokens: negative", b'{"model":"tide-1","max_tokens":-1}', "max_tokens"),
    ("max_tokens: a fraction", b'{"model":"tide-1","max_tokens":1.5}', "max_tokens"),
    ("max_tokens: huge", b'{"model":"tide-1","max_tokens":1e400}', "max_tokens"),
    (
        "max_completion_tokens: a list",
        b'{"model":"tide-1","max_completion_tokens":[1]}',
        "max_completion_tokens",
    ),
    ("n_predict: an object", b'{"model":"tide-1","n_predict":{}}', "n_predict"),
    (
        "two bounds",
        b'{"model":"tide-1","max_tokens":5,"max_completion_tokens":9}',
        "max_completion_tokens",
    ),
    ("n: zero", b'{"model":"tide-1","n":0}', "n"),
    ("n: true", b'{"model":"tide-1","n":true}', "n"),
    ("best_of: a string", b'{"model":"tide-1","best_of":"2"}', "best_of"),
    ("min_tokens: a string", b'{"model":"tide-1","min_tokens":"2"}', "min_tokens"),
]


def test_bodies_that_cannot_be_served() -> None:
    """Each is a 400 that names the field, costs nothing, leaves one line, and never reaches an engine."""

    async def main() -> None:
        async with fake_engine(answer()) as engine, serving(with_keys(engine)) as gateway:
            await gateway.all_probed()
            for name, body, param in BODIES:
                before = len(gateway.log)
                reply = await gateway.ask(body, headers=bearer(KEY))
                assert_refused(reply, 400, "malformed_request", INVALID, param, case=name)
                assert len(gateway.log) == before + 1, (name, gateway.lines[before:])
                assert "\n" not in gateway.lines[-1]
            assert not engine.requests
            assert not gateway.records
            assert (await gateway.ask(chat(), headers=bearer(KEY))).text == "Hello there."

    run(main())


HEADS: list[tuple[str, str, str, dict[str, str], tuple[int, str, str]]] = [
    ("no key", "POST", CHAT, {}, (401, "invalid_api_key", "authentication_error")),
    ("a wrong key", "POST", CHAT, bearer("tg-other"), (401, "invalid_api_key", "authentication_error")),
    ("an expired key", "POST", CHAT, bearer(OLD_KEY), (401, "invalid_api_key", "authentication_error")),
    ("an empty key", "POST", CHAT, bearer(""), (401, "invalid_api_key", "authentication_error")),
    ("a digest", "POST", CHAT, bearer(digest(KEY)), (401, "invalid_api_key", "authentication_error")),
    (
        "a digest in the other header",
        "POST",
        CHAT,
        {"x-api-key": digest(KEY)},
        (401, "invalid_api_key", "authentication_error"),
    ),
    (
        "another scheme",
        "POST",
        CHAT,
        {"authorization": KEY},
        (401, "invalid_api_key", "authentication_error"),
    ),
    (
        "a key in a cookie",
        "POST",
        CHAT,
        {"cookie": f"key={KEY}"},
        (401, "invalid_api_key", "authentication_error"),
    ),
    ("a key in the query", "POST", f"{CHAT}?key={KEY}", {}, (401, "invalid_api_key", "authentication_error")),
    (
        "a strange key",
        "POST",
        CHAT,
        bearer("'\"{}[]*\\%00;\x80\xff--"),
        (401, "invalid_api_key", "authentication_error"),
    ),
    ("a long key", "POST", CHAT, bearer("k" * 20_000), (401, "invalid_api_key", "authentication_error")),
    ("GET where POST is due", "GET", CHAT, bearer(KEY), (405, "method_not_allowed", INVALID)),
    ("DELETE", "DELETE", CHAT, bearer(KEY), (405, "method_not_allowed", INVALID)),
    ("POST on the models", "POST", "/v1/models", bearer(KEY), (405, "method_not_allowed", INVALID)),
    ("an unknown route", "POST", "/v1/engines", bearer(KEY), (404, "route_not_found", INVALID)),
    ("no route at all", "GET", "/", bearer(KEY), (404, "route_not_found", INVALID)),
    ("an operators' route", "GET", "/metrics", bearer(KEY), (404, "route_not_found", INVALID)),
    ("an extra not listed", "POST", "/detokenize", bearer(KEY), (404, "route_not_found", INVALID)),
    (
        "a route in disguise",
        "POST",
        "/v1/chat/../chat/completions",
        bearer(KEY),
        (404, "route_not_found", INVALID),
    ),
    ("an encoded route", "POST", "/v1/chat%2fcompletions", bearer(KEY), (404, "route_not_found", INVALID)),
    ("another spelling", "POST", "/V1/chat/completions", bearer(KEY), (404, "route_not_found", INVALID)),
]


def test_heads_that_cannot_be_served() -> None:
    """What the head decides is refused before the body is read, with one line and no secret in it."""

    async def main() -> None:
        async with fake_engine(answer()) as engine, serving(with_keys(engine)) as gateway:
            await gateway.all_probed()
            for name, method, path, headers, (status, code, error_type) in HEADS:
                before = len(gateway.log)
                async with talking(gateway.port) as talk:
                    # A body is announced and never comes.
                    talk.send(written(path, b"", headers | {"content-length": "1000"}, method))
                    reply = await talk.reply()
                assert_refused(reply, status, code, error_type, case=name)
                assert ("www-authenticate" in reply.headers, "allow" in reply.headers) == (
                    status == 401,
                    status == 405,
                )
                assert len(gateway.log) == before + 1, (name, gateway.lines[before:])
                said = gateway.lines[-1] + reply.body.decode() + str(reply.headers)
                assert not any(secret in said for secret in (KEY, digest(KEY), "kkkk", "\x80")), name
            assert not engine.requests
            assert not gateway.records

    run(main())


MODELS: list[tuple[str, str, tuple[int, str, str]]] = [
    ("tide-9", KEY, (404, "model_not_found", INVALID)),
    ("", KEY, (404, "model_not_found", INVALID)),
    ("a\r\nx-evil: 1\r\n\r\n", KEY, (404, "model_not_found", INVALID)),
    ("\x1b[31m\x00\u202e", KEY, (404, "model_not_found", INVALID)),
    ("m" * 10_000, KEY, (404, "model_not_found", INVALID)),
    (MODEL, NARROW_KEY, (403, "model_not_allowed", "permission_error")),
    ("alias", NARROW_KEY, (403, "model_not_allowed", "permission_error")),
]


def test_models_that_are_not_there_or_not_allowed() -> None:
    """An unknown model is a 404 and a forbidden one a 403; whatever its name is, it stays on one line."""

    async def main() -> None:
        async with fake_engine(answer()) as engine, serving(with_keys(engine)) as gateway:
            await gateway.all_probed()
            for model, key, (status, code, error_type) in MODELS:
                before = len(gateway.log)
                reply = await gateway.ask(chat() | {"model": model}, headers=bearer(key))
                assert_refused(reply, status, code, error_type, "model")
                assert "x-evil" not in reply.headers
                assert len(reply.body) < 2_000
                assert len(gateway.log) == before + 1
                assert gateway.lines[-1].isprintable(), gateway.lines[-1]
            refused = await gateway.ask(b"x", "/tokenize", headers=bearer(NARROW_KEY))
            assert_refused(refused, 403, "model_not_allowed", "permission_error")
            assert not engine.requests

    run(main())


def test_a_malformed_request_keeps_no_slot() -> None:
    """With one slot, five broken calls of every kind are followed by a good one that is served."""

    async def main() -> None:
        async with fake_engine(answer()) as engine:
            config = configured(engine, limits={"max_in_flight": 1, "tokens_per_minute": 6_000})
            async with serving(config) as gateway:
                for _ in range(5):
                    assert (await gateway.ask(b"{")).status == 400
                    assert (await gateway.ask(chat() | {"model": "tide-9"})).status == 404
                    assert (await ask_raw(gateway.port, b"nonsense\r\n\r\n")).status == 400
                assert (await gateway.ask(chat())).status == 200
                assert [record.status for record in gateway.records] == [200]

    run(main())


WIRE: list[tuple[str, bytes, int, str]] = [
    ("not HTTP", b"\x16\x03\x01\x02\x00\x01\x00", 400, "malformed_request"),
    ("no host", b"POST /v1/models HTTP/1.1\r\n\r\n", 400, "malformed_request"),
    ("two hosts", b"GET /v1/models HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400, "malformed_request"),
    ("a hostile host", b"GET /v1/models HTTP/1.1\r\nhost: a/../b?#@c\r\n\r\n", 400, "malformed_request"),
    (
        "both framings",
        b"POST /v1/models HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
        400,
        "malformed_request",
    ),
    (
        "a folded line",
        b"GET /v1/models HTTP/1.1\r\nhost: a\r\nx-a: 1\r\n b\r\n\r\n",
        400,
        "malformed_request",
    ),
    ("CONNECT", b"CONNECT a:443 HTTP/1.1\r\nhost: a\r\n\r\n", 405, "method_not_allowed"),
    (
        "a large head",
        b"GET /v1/models HTTP/1.1\r\nhost: a\r\nx-a: " + b"a" * 100_000 + b"\r\n\r\n",
        431,
        "headers_too_large",
    ),
    (
        "many headers",
        b"GET /v1/models HTTP/1.1\r\nhost: a\r\n" + b"x-a: 1\r\n" * 200 + b"\r\n",
        431,
        "headers_too_large",
    ),
    ("a long target", b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n", 431, "headers_too_large"),
    (
        "a large body, announced",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer tg-a-key-of-alices\r\n"
        b"content-length: 5000\r\n\r\n",
        413,
        "request_too_large",
    ),
    (
        "a large body, in chunks",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer tg-a-key-of-alices\r\n"
        b"transfer-encoding: chunked\r\n\r\n1388\r\n" + b"a" * 5_000 + b"\r\n",
        413,
        "request_too_large",
    ),
    (
        "a half of a head that takes too long",
        b"GET /v1/models HTTP/1.1\r\nhost:",
        408,
        "request_timeout",
    ),
    (
        "a half of a body that takes too long",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer tg-a-key-of-alices\r\n"
        b"content-length: 100\r\n\r\n{",
        408,
        "request_timeout",
    ),
]


def test_bytes_that_are_no_request() -> None:
    """Refusals of the HTTP layer have the same form, one line each, and cost nothing."""

    async def main() -> None:
        http = {"body_bytes": 4096, "head_timeout_s": 0.3, "body_timeout_s": 0.3}
        async with fake_engine(answer()) as engine, serving(with_keys(engine, http=http)) as gateway:
            await gateway.all_probed()
            for name, data, status, code in WIRE:
                before = len(gateway.log)
                reply = await ask_raw(gateway.port, data)
                assert_refused(reply, status, code, INVALID, case=name)
                assert len(gateway.log) == before + 1, (name, gateway.lines[before:])
                assert "tg-a-key" not in gateway.lines[-1]
            assert not engine.requests
            assert not gateway.records

    run(main())


@pytest.mark.parametrize(
    "own, kept",
    [
        ("abc-DEF_1.2:3", True),
        ("a" * 128, True),
        ("a" * 129, False),
        ("", False),
        ("a b", False),
        ("a%0d%0ax-evil:1", False),
        ("\x80\xff", False),
        ("<script>", False),
    ],
)
def test_a_request_id_is_kept_only_if_it_is_clean(own: str, kept: bool) -> None:
    """The client's own id comes back and goes on to the engine, or a new one takes its place."""

    async def main() -> None:
        async with fake_engine(answer()) as engine, serving(configured(engine)) as gateway:
            headers = {"x-request-id": own} if own else {}
            for reply in (
                await gateway.ask(chat(), headers=headers),
                await gateway.ask(b"{", headers=headers),
                await gateway.ask(None, "/v1/models", headers=headers),
            ):
                assert (reply.headers["x-request-id"] == own) is kept
                assert "x-evil" not in reply.headers
            assert (engine.requests[0].headers["x-request-id"] == own) is kept
            assert b"x-evil" not in engine.requests[0].head

    run(main())


@pytest.mark.parametrize("value", ["", "0", "-1", "1.5", "1e3", "abc", "9" * 10, "1 2", "\xb2"])
def test_a_deadline_that_is_none_is_refused(value: str) -> None:
    """`x-tidegate-timeout-ms` is a whole number of milliseconds above 0, or a 400."""

    async def main() -> None:
        async with fake_engine(answer()) as engine, serving(configured(engine)) as gateway:
            reply = await gateway.ask(chat(), headers={"x-tidegate-timeout-ms": value})
            assert_refused(reply, 400, "malformed_request", INVALID)
            assert "x-tidegate-timeout-ms" in reply.error["message"]
            assert not engine.requests

    run(main())


def test_a_class_that_is_none_is_refused_and_one_too_high_is_lowered() -> None:
    """A tenant gets at most the class that it may have; a name that is no class is a 400."""

    async def main() -> None:
        async with fake_engine(answer()) as engine, serving(with_keys(engine)) as gateway:
            for asked, status, got in [("nobility", 400, None), ("high", 200, "low"), ("low", 200, "low")]:
                reply = await gateway.ask(chat(), headers=bearer(KEY) | {"x-tidegate-priority": asked})
                assert reply.status == status
                if got:
                    await gateway.settled()
                    assert gateway.records[-1].priority == got

    run(main())


def test_a_flood_of_faults_is_no_flood_of_lines() -> None:
    """Above a rate lines are dropped, and their number is told later."""

    async def main() -> None:
        async with fake_engine(answer()) as engine, serving(configured(engine)) as gateway:
            await asyncio.gather(*[gateway.ask(b"{") for _ in range(300)])
            assert len(gateway.log) < 200

    run(main())


def test_an_engine_sees_no_field_twice() -> None:
    """Of a field that stands twice only the one that was judged goes on."""

    async def main() -> None:
        async with fake_engine(answer()) as engine, serving(configured(engine)) as gateway:
            twice = b'{"model":"other","model":"tide-1","max_tokens":9,"max_tokens":3,"m\\u006fdel":"tide-1"}'
            assert (await gateway.ask(twice)).status == 200
            assert engine.requests[0].body.count(b"model") == 1
            assert engine.requests[0].json() == {"model": MODEL, "max_tokens": 3}

    run(main())
