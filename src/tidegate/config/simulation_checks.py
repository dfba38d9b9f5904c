"""Does what `simulation` says fit the fleet that it speaks of?"""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.config.model import Config
from tidegate.config.problems import Problem, Where, pool_of_tenant, quoted, unknown
from tidegate.config.profiles import profile_of
from tidegate.config.simulation import SimulatedEngine
from tidegate.core.errors import ConfigurationError
from tidegate.sim.faults import Errors
from tidegate.sim.profiles import TABLE


def simulation_problems(config: Config, pools: list[str], classes: list[str]) -> Iterator[Problem]:
    """Everything that cannot be. `pools` and `classes` are also those that could not be read."""
    root: Where = ("simulation",)
    for name, pool in config.simulation.pools.items():
        where = (*root, "pools", name)
        yield from unknown(where, name, pools, "pool")
        yield from _engine(where, pool)
        known = [each.name for each in config.pools[name].replicas] if name in config.pools else []
        for replica_name, replica in pool.replicas.items():
            here = (*where, "replicas", replica_name)
            if known:
                yield from unknown(here, replica_name, known, "replica")
            yield from _engine(here, pool, replica)
    yield from _tenants(config, pools, classes)
    replicas = list(config.replica_ids())
    for index, fault in enumerate(config.simulation.faults):
        where = (*root, "faults", index)
        yield from unknown((*where, "replica"), fault.replica, replicas, "replica")
        if isinstance(fault, Errors) and 429 < fault.status < 500:
            yield Problem(
                (*where, "status"),
                f"is {fault.status}, which blames the client; write 429 or one from 500 on",
            )


def _engine(where: Where, *engines: SimulatedEngine) -> Iterator[Problem]:
    """The last of them, which is at `where`, and together with what it leaves to those before it."""
    profile = engines[-1].profile
    if profile is not None and profile not in TABLE:
        yield from unknown((*where, "profile"), profile, TABLE, "profile")
        return
    parts = engines[-1].disaggregation
    if parts is not None and parts.prefill_profile:
        yield from unknown(
            (*where, "disaggregation", "prefill_profile"), parts.prefill_profile, TABLE, "profile"
        )
    if engines[-1].profile is not None and engines[-1].profile_file is not None:
        yield Problem((*where, "profile_file"), "stands beside profile; remove one of them")
    prefill = None if parts is None else parts.prefill
    if prefill is not None and prefill.curve is not None and prefill.table is not None:
        yield Problem(
            (*where, "disaggregation", "prefill", "table"), "stands beside curve; remove one of them"
        )
    if engines[-1].curve is not None and engines[-1].table is not None:
        yield Problem((*where, "table"), "stands beside curve; remove one of them")
    if any(each.profile_file is not None for each in engines):
        return  # read when it is simulated: where the gateway serves it need not be
    try:
        profile_of(*engines)
    except ConfigurationError as error:
        yield from (Problem((*where, "engine"), text) for text in error.problems)


def _tenants(config: Config, pools: list[str], classes: list[str]) -> Iterator[Problem]:
    for name, tenant in config.simulation.tenants.items():
        where: Where = ("simulation", "tenants", name)
        if config.tenants:
            yield from unknown(where, name, config.tenants, "tenant")
        if tenant.pool is not None:
            own = config.tenants[name].pools if name in config.tenants else None
            yield from pool_of_tenant((*where, "pool"), tenant.pool, pools if own is None else own, pools)
        if tenant.class_ is not None:
            yield from unknown((*where, "class"), tenant.class_, classes, "class")
            if tenant.class_ in config.classes:
                yield from class_problems((*where, "class"), config, name, tenant.class_)


def class_problems(where: Where, config: Config, tenant: str, asked: str) -> Iterator[Problem]:
    """Whether a tenant may have the class that it is to ask for. The gateway would give it a lower one."""
    own = config.tenants.get(tenant)
    if own is not None and asked not in config.classes_of(own):
        yield Problem(where, f"is {quoted(asked)}, which is not among the tenant's classes; add it there")
