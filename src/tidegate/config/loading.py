"""How does a file become a configuration, or the list of everything that is wrong with it?

Whatever the text, the outcome is a `Config` or a `ConfigurationError`; nothing else escapes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tidegate.config.addresses import Address, Origin
from tidegate.config.checks import problems_of
from tidegate.config.decoding import INVALID, Decoder, of_type
from tidegate.config.documents import compose, read
from tidegate.config.model import Config
from tidegate.config.overrides import replace
from tidegate.config.problems import Mark, Problem, Where, report
from tidegate.config.schema import PoolConfig, ReplicaConfig
from tidegate.core.errors import ConfigurationError

DISCOVERED = "default"
"""Name of the pool that is made of URLs alone."""


def load(path: Path, environ: Mapping[str, str] = os.environ) -> Config:
    """Read and check a file; relative paths in it start at its folder."""
    return parse(read(path), str(path), base=path.parent, environ=environ)


def parse(
    text: str,
    source: str,
    *,
    base: Path = Path(),
    environ: Mapping[str, str] | None = os.environ,
    values: Mapping[str, str] | None = None,
) -> Config:
    """Read and check YAML text; `source` names it in problems.

    `environ` None: it will not be served here, and what only its machine has (credentials, certificates) is
    not looked for. `values` stand instead of what the text says (`overrides`).
    """
    node = compose(text, source, "it needs at least pools with a replica each")
    if values:
        replace(node, values)
    decoder = Decoder(base=base)
    config = decoder.decode(node, of_type(Config), ())
    problems = decoder.problems
    if config is not INVALID:
        config = _with_names(config)
        for each in problems_of(config, environ, known=_names_in(decoder.marks)):
            where = decoder.in_file(each.where)
            if not _follows_from(where, decoder.unread):
                problems.append(Problem(where, each.text))
    if problems:
        raise ConfigurationError(report(source, problems, decoder.marks))
    assert isinstance(config, Config)
    return config


def for_url(urls: Sequence[str], listen: str | None = None) -> Config:
    """A configuration without a file: one pool of these replicas that serves whatever models they list."""
    problems: list[Problem] = []
    replicas = [_replica(index, url, problems) for index, url in enumerate(urls)]
    address = _address(listen, problems)
    if problems:
        raise ConfigurationError(report("command line", problems, {}))
    pool = PoolConfig(replicas=tuple(each for each in replicas if each), discover=True)
    config = _with_names(Config(pools={DISCOVERED: pool}, listen=address))
    problems = problems_of(config, {})
    if problems:
        raise ConfigurationError(report("command line", problems, {}))
    return config


def _with_names(config: Config) -> Config:
    """Give every replica that has no name the default one."""

    def named(replica: ReplicaConfig) -> ReplicaConfig:
        if replica.name:
            return replica
        url = replica.url
        return msgspec.structs.replace(replica, name=f"{Address(url.host, url.port)}{url.path}")

    pools = {
        name: msgspec.structs.replace(pool, replicas=tuple(map(named, pool.replicas)))
        for name, pool in config.pools.items()
    }
    return msgspec.structs.replace(config, pools=pools)


def _names_in(marks: dict[Where, Mark]) -> set[Where]:
    """Names that the file declares, readable or not: a broken pool is not an unknown one."""
    return {where for where in marks if len(where) == 2 and where[0] in ("pools", "classes")}


def _follows_from(where: Where, unread: list[Where]) -> bool:
    """Whether something beside it could not be read, so that a default was judged in its place."""
    owner = where[:-1] if len(where) > 1 else where
    return any(each[: len(owner)] == owner for each in unread)


def _replica(index: int, url: str, problems: list[Problem]) -> ReplicaConfig | None:
    try:
        return ReplicaConfig(url=Origin.parse(url))
    except ValueError as error:
        problems.append(Problem(("urls", index), str(error)))
        return None


def _address(listen: str | None, problems: list[Problem]) -> Address:
    default = Address("127.0.0.1", 8080)
    try:
        return default if listen is None else Address.parse(listen)
    except ValueError as error:
        problems.append(Problem(("listen",), str(error)))
        return default
