"""What is allowed, but probably not meant?"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from tidegate.config.checks import limits_of
from tidegate.config.model import Config
from tidegate.config.problems import Problem, Where

ENGINE_ADMIN = (
    "collective_rpc",
    "lora",
    "metrics",
    "profile",
    "props",
    "reset",
    "server_info",
    "shutdown",
    "sleep",
    "slots",
    "wake",
    "weights",
)
"""Parts of the names of routes by which vLLM, SGLang and llama.cpp are administered or inspected."""

GENERATING = ("chat", "completion", "generate", "infill", "invocations", "responses")
"""Parts of the names of routes on which engines generate text beside the API that is metered."""


def warnings_of(config: Config, now_unix_s: float) -> list[Problem]:
    """Everything worth a second look. `now_unix_s` decides which keys have expired."""
    return [*_listener(config), *_limits(config), *_pools(config), *_tenants(config, now_unix_s)]


def _listener(config: Config) -> Iterator[Problem]:
    if config.tls is None and not config.listen.loopback:
        yield Problem(("listen",), "keys cross the network unencrypted; set tls, or put a TLS proxy in front")
    if config.admin is not None and not config.admin.listen.loopback:
        yield Problem(("admin", "listen"), "the admin token crosses the network unencrypted; keep it private")


def _limits(config: Config) -> Iterator[Problem]:
    limits = list(limits_of(config))
    if not limits:
        yield Problem((), "there are no limits: only queues and gates bound the load")
    for where, each in limits:
        if each.requests_per_minute is None and each.tokens_per_minute is None and each.max_in_flight is None:
            yield Problem(where, "limits nothing; set a rate or max_in_flight")


def _pools(config: Config) -> Iterator[Problem]:
    pools_by_url: dict[str, str] = {}
    for name, pool in config.pools.items():
        for index, route in enumerate(pool.extras):
            where: Where = ("pools", name, "extras", index)
            if any(word in route for word in ENGINE_ADMIN):
                yield Problem(where, f"opens {route} to every client; engines are administered there")
            if any(word in route for word in GENERATING):
                yield Problem(where, f"opens {route}, whose tokens no limit counts; use the API's routes")
        for index, replica in enumerate(pool.replicas):
            where = ("pools", name, "replicas", index)
            has_credential = replica.credential_env is not None or replica.credential_file is not None
            if has_credential and not (replica.url.tls or replica.url.loopback):
                yield Problem(where, "its credential crosses the network unencrypted; use https")
            other = pools_by_url.setdefault(str(replica.url), name)
            if other != name:
                yield Problem(
                    where, f"{replica.url} is in {other} as well; neither gate sees the other's load"
                )


def _tenants(config: Config, now_unix_s: float) -> Iterator[Problem]:
    today = datetime.fromtimestamp(now_unix_s, UTC).date()
    for name, tenant in config.tenants.items():
        if not tenant.keys:
            yield Problem(("tenants", name), "has no keys, so nobody can be this tenant")
        if tenant.class_ is None and len(config.classes) > 1:
            yield Problem(("tenants", name), f"names no class and gets {config.usual_class}")
        for key_name, key in tenant.keys.items():
            if key.expires is not None and key.expires < today:
                yield Problem(("tenants", name, "keys", key_name), f"expired after {key.expires}; remove it")
