"""What is simulated, by the configuration file? Its fleet, its governor, its users."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidegate.config import ANONYMOUS, Config
from tidegate.config.profiles import DEFAULT_PROFILE, beyond_of, profile_of
from tidegate.config.simulation import SimulatedPool, SimulatedReplica
from tidegate.core.records import Budgets
from tidegate.sim.scenario import ReplicaScenario, Scenario
from tidegate.simulate.figures import Terms
from tidegate.simulate.load import Asker

NO_POOL, NO_REPLICA = SimulatedPool(), SimulatedReplica()


def scenario_of(config: Config, profile: str | None = None) -> Scenario:
    """The fleet as the file says. `profile` is for pools of which it says none.

    Raises ConfigurationError for a profile that is not known, or that does not go with the file's settings.
    """
    pools: dict[str, list[ReplicaScenario]] = {name: [] for name in config.pools}
    for replica_id, (pool, replica) in config.replica_ids().items():
        of_pool = config.simulation.pools.get(pool, NO_POOL)
        own = of_pool.replicas.get(replica.name, NO_REPLICA)
        pools[pool].append(
            ReplicaScenario(
                name=replica_id,
                profile=profile_of(of_pool, own, default=profile or DEFAULT_PROFILE),
                weight=replica.weight,
                gate=replica.gate,
                asked_at_s=own.asked_at_s,
                provision_s=own.provision_s,
            )
        )
    return Scenario(
        governor=config.governor_settings(),
        pools={name: tuple(replicas) for name, replicas in pools.items()},
        network=config.simulation.network,
        clients=config.simulation.clients,
        faults=config.simulation.faults,
        # All of the file's: a traffic file may name tenants that `simulation.tenants` does not.
        callers={name: _class_of(config, name) for name in [*config.tenants] or _tenants(config)},
        keys={name: next(iter(each.keys)) for name, each in config.tenants.items() if len(each.keys) == 1},
        default_class=config.usual_class,
        models=config.models(),
        bytes_per_token=config.simulation.bytes_per_token,
    )


def assumed_of(config: Config) -> list[str]:
    """Pools of which the file does not say what their engines are."""
    said = config.simulation.pools
    return [name for name in config.pools if name not in said or not _says_speed(said[name])]


def extrapolated_of(config: Config, profile: str | None = None) -> list[str]:
    """In how far engines may do what their profile was not measured at, a line for each kind of them."""
    found: dict[str, None] = {}
    for pool, replica in config.replica_ids().values():
        of_pool = config.simulation.pools.get(pool, NO_POOL)
        own = of_pool.replicas.get(replica.name, NO_REPLICA)
        if beyond := beyond_of(of_pool, own, default=profile or DEFAULT_PROFILE):
            found[f"{pool}: extrapolated up to {', '.join(beyond)}"] = None
    return [*found]


def uncounted_keys(config: Config) -> list[str]:
    """Keys, by path, whose limits count nothing: which of a tenant's several keys asks is not known."""
    return [
        f"tenants.{name}.keys.{key}"
        for name, tenant in config.tenants.items()
        if len(tenant.keys) > 1
        for key, own in tenant.keys.items()
        if own.limits is not None
    ]


def askers_of(config: Config) -> tuple[Asker, ...]:
    """Who asks, for what, and how much of all."""
    return tuple(
        Asker(
            name=name, share=each.share, model=each.pool or _pool_of(config, name), priority=each.class_ or ""
        )
        for name, each in config.simulation.tenants.items()
    ) or tuple(Asker(name=name, model=_pool_of(config, name)) for name in _tenants(config))


def terms_of(config: Config, override: Budgets, traffic: Mapping[str, Budgets] | None = None) -> Terms:
    """Budgets by class, weights by tenant.

    What a traffic file has of a class stands instead of what the configuration says, and `override` instead
    of both.
    """
    own = traffic or {}

    def given(budgets: Budgets) -> dict[str, float]:
        return {name: each for name, each in msgspec.structs.asdict(budgets).items() if each is not None}

    return Terms(
        budgets={
            name: msgspec.structs.replace(each.budgets, **(given(own.get(name, Budgets())) | given(override)))
            for name, each in config.classes.items()
        },
        weights={name: tenant.weight for name, tenant in config.tenants.items()},
    )


def _says_speed(pool: SimulatedPool) -> bool:
    said = (pool.profile, pool.profile_file, pool.curve, pool.table)
    return any(each is not None for each in said)


def _tenants(config: Config) -> list[str]:
    return [*(config.simulation.tenants or config.tenants)] or [ANONYMOUS]


def _class_of(config: Config, name: str) -> str:
    tenant = config.tenants.get(name)
    return (tenant.class_ if tenant else None) or config.usual_class


def _pool_of(config: Config, name: str) -> str:
    """The first pool that the tenant may use; empty if that is the first of all, which need not be named."""
    tenant = config.tenants.get(name)
    if tenant is None or tenant.pools is None:
        return ""
    pool = next(pool for pool in config.pools if pool in tenant.pools)
    return "" if pool == next(iter(config.pools)) else pool
