"""Do settings that are each fine make sense together?

Each function answers for one part of the file and yields what cannot be. What can be but is probably not
meant is a warning (`warnings.py`), not a problem.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from tidegate.config.addresses import Origin
from tidegate.config.credentials import credential_problem
from tidegate.config.model import Config
from tidegate.config.problems import Problem, Where, did_you_mean, dotted, pool_of_tenant, quoted, unknown
from tidegate.config.schema import (
    AdminConfig,
    PoolConfig,
    ReplicaConfig,
    TenantConfig,
    TlsConfig,
    UpstreamConfig,
)
from tidegate.config.simulation_checks import simulation_problems
from tidegate.core.errors import ConfigurationError
from tidegate.net.tls import client_context, server_context
from tidegate.policy.settings import FallbackStep, LimitSettings

API_ROUTES = frozenset(
    {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/embeddings",
        "/v1/rerank",
        "/v1/models",
    }
)
"""Routes that are governed: an extra may not go round that."""

_HEX_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_NAME = re.compile(r"[A-Za-z0-9._/@:+\[\]-]{1,128}")  # safe in headers, labels and logs alike
_MODEL = re.compile(r"[!-~]{1,256}")
_ROUTE = re.compile(r"(?:/[A-Za-z0-9._~-]+)+")
_HOST_NAME = re.compile(r"[A-Za-z0-9.\[\]:_-]{1,253}")


def problems_of(
    config: Config, environ: Mapping[str, str] | None, known: Collection[Where] = ()
) -> list[Problem]:
    """Everything that cannot be. `known` holds names that are declared but could not be read.

    Files and variables that only the serving machine has are not looked for where `environ` is None.
    """
    pools = _names(config.pools, known, "pools")
    classes = _names(config.classes, known, "classes")
    return [
        *_listeners(config),
        *([] if environ is None else _of_machine(config, environ)),
        *_classes(config),
        *_fleet(config),
        *chain.from_iterable(_pool(name, pool, pools, classes) for name, pool in config.pools.items()),
        *chain.from_iterable(_tenant(name, each, pools, classes) for name, each in config.tenants.items()),
        *_digests(config),
        *_metering(config),
        *simulation_problems(config, pools, classes),
    ]


def _of_machine(config: Config, environ: Mapping[str, str]) -> Iterator[Problem]:
    yield from _tls(config.tls)
    yield from _upstream(config.upstream)
    for name, pool in config.pools.items():
        for index, replica in enumerate(pool.replicas):
            yield from _credential(name, index, replica, environ)


def _names(given: Iterable[str], known: Collection[Where], kind: str) -> list[str]:
    return list(dict.fromkeys([*given, *(str(where[1]) for where in known if where[0] == kind)]))


# -- listeners ------------------------------------------------------------------------------------


def _listeners(config: Config) -> Iterator[Problem]:
    if config.open and not config.listen.loopback:
        yield Problem(
            ("listen",),
            f"is {config.listen}, which others can reach, and no keys are configured; "
            "add tenants with keys (`tidegate key new`), or listen on 127.0.0.1",
        )
    if config.admin is not None:
        yield from _admin(config.admin, config)


def _admin(admin: AdminConfig, config: Config) -> Iterator[Problem]:
    if admin.token_sha256 is not None:
        yield from _digest(("admin", "token_sha256"), admin.token_sha256)
    elif not admin.listen.loopback:
        yield Problem(
            ("admin", "listen"),
            f"is {admin.listen}, which others can reach, and there is no token_sha256; "
            "set one (`tidegate key new`), or listen on 127.0.0.1",
        )
    if admin.listen == config.listen and admin.listen.port != 0:
        yield Problem(("admin", "listen"), "is the clients' listen as well; choose another port")
    for index, host in enumerate(admin.hosts):
        if not _HOST_NAME.fullmatch(host):
            yield Problem(("admin", "hosts", index), "is not a host name; write it without scheme and path")


def _tls(tls: TlsConfig | None) -> Iterator[Problem]:
    if tls is None:
        return
    readable = True
    for field, path in (("certificate", tls.certificate), ("private_key", tls.private_key)):
        try:
            path.open("rb").close()
        except OSError as error:
            readable = False
            text = f"names {path}, which cannot be read: {error.strerror}"
            yield Problem(("tls", field), f"{text}; paths start at the configuration's folder")
    if readable:
        try:
            server_context(str(tls.certificate), str(tls.private_key))
        except ConfigurationError:
            yield Problem(
                ("tls",),
                "cannot be used; certificate and private_key must belong together, in PEM and unencrypted",
            )


def _upstream(upstream: UpstreamConfig) -> Iterator[Problem]:
    if upstream.ca_file is None:
        return
    try:
        client_context(str(upstream.ca_file))
    except ConfigurationError:
        text = f"names {upstream.ca_file}, which is no readable PEM file of certificates"
        yield Problem(("upstream", "ca_file"), f"{text}; paths start at the configuration's folder")


# -- classes --------------------------------------------------------------------------------------


def _classes(config: Config) -> Iterator[Problem]:
    if not config.classes:
        yield Problem(("classes",), "is empty; name one class at least, or remove the key")
    for name in config.classes:
        yield from _name(("classes", name), name)
    shares = sum(min(each.guaranteed_share, 1.0) for each in config.classes.values())
    if shares > 1 + 1e-9:
        yield Problem(("classes",), f"guarantees shares of {shares:.3g} in all; they may sum up to 1 at most")
    places = sum(each.guaranteed_places for each in config.classes.values())
    for name, pool in config.pools.items():
        if places > pool.queue.max_requests:
            yield Problem(
                ("pools", name, "queue", "max_requests"),
                f"is {pool.queue.max_requests} and the classes' guaranteed_places are {places}; "
                "raise the one or lower the others",
            )
    if config.default_class is not None:
        yield from unknown(("default_class",), config.default_class, config.classes, "class")


# -- pools ----------------------------------------------------------------------------------------


def _fleet(config: Config) -> Iterator[Problem]:
    if not config.pools:
        yield Problem(("pools",), "has no pool; name one model with one replica at least")
    discovering = [name for name, pool in config.pools.items() if pool.discover]
    for name in discovering[1:]:
        yield Problem(
            ("pools", name, "discover"),
            f"is true for {quoted(discovering[0])} as well; one pool at most can take all other models",
        )
    yield from _models(config.pools)
    yield from _extras(config.pools)


def _models(pools: dict[str, PoolConfig]) -> Iterator[Problem]:
    """A model name leads to one pool."""
    pool_of = {name: name for name in pools}
    for name, pool in pools.items():
        yield from _model(("pools", name), name)
        for index, alias in enumerate(pool.aliases):
            where = ("pools", name, "aliases", index)
            yield from _model(where, alias)
            if alias in pool_of:
                other = quoted(pool_of[alias])
                yield Problem(where, f"{quoted(alias)} already means the pool {other}; remove one")
            pool_of.setdefault(alias, name)


def _extras(pools: dict[str, PoolConfig]) -> Iterator[Problem]:
    """So does an extra route, which names no model."""
    pool_of: dict[str, str] = {}
    for name, pool in pools.items():
        for index, route in enumerate(pool.extras):
            if pool_of.setdefault(route, name) != name:
                other = quoted(pool_of[route])
                where = ("pools", name, "extras", index)
                yield Problem(where, f"is an extra of {other} as well; a route has one pool")


def _pool(name: str, pool: PoolConfig, pools: list[str], classes: list[str]) -> Iterator[Problem]:
    where = ("pools", name)
    yield from _replicas(where, pool)
    yield from _routes(where, pool)
    yield from _ladder(where, name, pool, pools, classes)
    if pool.breaker.open_max_s < pool.breaker.open_s:
        yield Problem(
            (*where, "breaker", "open_max_s"), f"is below open_s ({pool.breaker.open_s:g}); raise it"
        )
    if pool.health.stale_after_s < pool.health.interval_s:
        yield Problem(
            (*where, "health", "stale_after_s"),
            f"is below interval_s ({pool.health.interval_s:g}), so no scrape would ever count; raise it",
        )
    if pool.deadlines.total_s < pool.deadlines.ttft_s:
        yield Problem(
            (*where, "deadlines", "total_s"),
            f"is below ttft_s ({pool.deadlines.ttft_s:g}); raise it or lower that",
        )


def _replicas(where: Where, pool: PoolConfig) -> Iterator[Problem]:
    if not pool.replicas:
        yield Problem((*where, "replicas"), "is empty; a pool needs one replica at least")
    names: set[str] = set()
    urls: set[Origin] = set()
    for index, replica in enumerate(pool.replicas):
        here = (*where, "replicas", index)
        if replica.url in urls:
            yield Problem((*here, "url"), "is that of an earlier replica of the pool; remove one of them")
        elif replica.name in names:
            yield Problem((*here, "name"), f"{quoted(replica.name)} is taken in this pool; choose another")
        yield from _name((*here, "name"), replica.name)
        if replica.model is not None:
            yield from _model((*here, "model"), replica.model)
        urls.add(replica.url)
        names.add(replica.name)


def _routes(where: Where, pool: PoolConfig) -> Iterator[Problem]:
    for index, route in enumerate(pool.extras):
        here = (*where, "extras", index)
        if not _ROUTE.fullmatch(route) or any(part in (".", "..") for part in route.split("/")):
            yield Problem(here, "is not a route; write a plain path that begins with /, such as /tokenize")
        elif route.lower() in API_ROUTES:
            yield Problem(here, "is a governed route of the API, which is served anyway; remove it")
    if not pool.probe.path.startswith("/") or not _MODEL.fullmatch(pool.probe.path):
        yield Problem((*where, "probe", "path"), "is not a path; begin it with /, such as /health")
    for index, name in enumerate(pool.allow_fields):
        if not _NAME.fullmatch(name):
            yield Problem(
                (*where, "allow_fields", index), "is not the name of a body field, such as priority"
            )


def _ladder(
    where: Where, name: str, pool: PoolConfig, pools: list[str], classes: list[str]
) -> Iterator[Problem]:
    for index, step in enumerate(pool.degradation):
        here = (*where, "degradation", index)
        if step.below > step.above:
            yield Problem(
                (*here, "below"),
                f"is {step.below:g}, over above ({step.above:g}); lower it, or the step flaps",
            )
        for place, each in enumerate(step.classes or ()):
            yield from unknown((*here, "classes", place), each, classes, "class")
        if isinstance(step, FallbackStep):
            others = [other for other in pools if other != name]
            if step.pool == name:
                yield Problem((*here, "pool"), f"is the pool itself; {did_you_mean('', others)}")
            else:
                yield from unknown((*here, "pool"), step.pool, others, "pool")


def _credential(
    pool: str, index: int, replica: ReplicaConfig, environ: Mapping[str, str]
) -> Iterator[Problem]:
    found = credential_problem(replica, environ)
    if found is not None:
        field, text = found
        yield Problem(("pools", pool, "replicas", index, field), text)


# -- tenants --------------------------------------------------------------------------------------


def _tenant(name: str, tenant: TenantConfig, pools: list[str], classes: list[str]) -> Iterator[Problem]:
    where = ("tenants", name)
    yield from _name(where, name)
    if tenant.class_ is not None:
        yield from unknown((*where, "class"), tenant.class_, classes, "class")
    for index, each in enumerate(tenant.classes or ()):
        yield from unknown((*where, "classes", index), each, classes, "class")
    yield from _pools((*where, "pools"), tenant.pools, pools)
    own = pools if tenant.pools is None else [each for each in tenant.pools if each in pools]
    for pool in tenant.pool_limits:
        yield from pool_of_tenant((*where, "pool_limits", pool), pool, own, pools)
    for key_name, key in tenant.keys.items():
        here = (*where, "keys", key_name)
        yield from _name(here, key_name)
        yield from _digest((*here, "sha256"), key.sha256)
        if key.pools == ():
            yield Problem(
                (*here, "pools"), "is empty, so the key opens nothing; name a pool, or remove the key"
            )
        for index, pool in enumerate(key.pools or ()):
            yield from pool_of_tenant((*here, "pools", index), pool, own, pools)


def _pools(where: Where, given: tuple[str, ...] | None, pools: list[str]) -> Iterator[Problem]:
    if given == ():
        yield Problem(where, "is empty, so nothing may be used; name a pool, or write null for all")
    for index, pool in enumerate(given or ()):
        yield from unknown((*where, index), pool, pools, "pool")


def _digests(config: Config) -> Iterator[Problem]:
    """One key must stand for one tenant."""
    taken: dict[str, Where] = {}
    for tenant_name, tenant in config.tenants.items():
        for key_name, key in tenant.keys.items():
            where = ("tenants", tenant_name, "keys", key_name)
            first = taken.setdefault(key.sha256.lower(), where)
            if first is not where and _HEX_DIGEST.fullmatch(key.sha256):
                yield Problem(
                    (*where, "sha256"), f"is the digest of {dotted(first)} as well; remove one of them"
                )


def _digest(where: Where, text: str) -> Iterator[Problem]:
    if _HEX_DIGEST.fullmatch(text):
        return
    if text.startswith(("tg-", "sk-")) or re.search(r"[^0-9a-fA-F]", text):
        what = "looks like the key itself, not its digest; now that it stood in a file, make a new one with "
    else:
        what = f"has {len(text)} hex digits, a SHA-256 digest has 64; copy it again, or make a new key with "
    yield Problem(where, what + "`tidegate key new`, and write the digest that it prints")


def _metering(config: Config) -> Iterator[Problem]:
    """A token limit that counts no tokens limits nothing."""
    weights = config.weights
    if weights.input or weights.output:
        return
    if any(limits.tokens_per_minute for _, limits in limits_of(config)):
        yield Problem(
            ("weights",), "counts neither input nor output, so tokens_per_minute limits nothing; raise one"
        )


def limits_of(config: Config) -> Iterator[tuple[Where, LimitSettings]]:
    """Every limit of the file and its place."""
    candidates: list[tuple[Where, LimitSettings | None]] = [(("limits",), config.limits)]
    candidates += [(("pools", name, "limits"), pool.limits) for name, pool in config.pools.items()]
    for name, tenant in config.tenants.items():
        where = ("tenants", name)
        candidates.append(((*where, "limits"), tenant.limits))
        candidates += [((*where, "pool_limits", pool), each) for pool, each in tenant.pool_limits.items()]
        candidates += [((*where, "keys", key, "limits"), each.limits) for key, each in tenant.keys.items()]
    return ((where, limits) for where, limits in candidates if limits is not None)


# -- names ----------------------------------------------------------------------------------------


def name_told(name: str) -> str | None:
    """What is wrong with it, and what would do; None: it is a name."""
    if _NAME.fullmatch(name):
        return None
    return "is not a name; use 1 to 128 ASCII letters, digits and . _ - / @ : +"


def _name(where: Where, name: str) -> Iterator[Problem]:
    if (told := name_told(name)) is not None:
        yield Problem(where, told)


def _model(where: Where, name: str) -> Iterator[Problem]:
    if not _MODEL.fullmatch(name):
        yield Problem(where, "is no model name; use up to 256 printable ASCII characters without spaces")
