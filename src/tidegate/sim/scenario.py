"""What is simulated? A fleet, its governor, its clients, and what befalls them; values only.

`check` says what of a scenario cannot be, all of it at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.policy.settings import GateSettings, GovernorSettings
from tidegate.sim import faults as fault_values
from tidegate.sim.clients import ClientSettings
from tidegate.sim.faults import Fault
from tidegate.sim.network import Network
from tidegate.sim.profiles import Profile


class ReplicaScenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One replica as it really is, and as the gateway is told of it."""

    name: str
    """Unique in the fleet."""
    profile: Profile
    weight: float = 1.0
    gate: GateSettings | None = None
    """Its own gate; None: its pool's."""
    asked_at_s: float = 0.0
    """When it is asked for."""
    provision_s: float = 0.0
    """From then until it serves and joins: a machine is found, weights are loaded."""

    @property
    def joins_at_s(self) -> float:
        """When it serves."""
        return self.asked_at_s + self.provision_s


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a run needs beside its workload and its seed."""

    governor: GovernorSettings
    pools: dict[str, tuple[ReplicaScenario, ...]]
    """Replicas of each pool. A pool without any refuses what comes."""
    network: Network = Network()
    clients: ClientSettings = ClientSettings()
    faults: tuple[Fault, ...] = ()
    callers: dict[str, str] = {}
    """Class of each tenant."""
    keys: dict[str, str] = {}
    """Key by which a tenant asks, whose limits count beside the tenant's own."""
    default_class: str = ""
    """Of a tenant that is not listed; empty: the first."""
    models: dict[str, str] = {}
    """Pool of each model name; a pool's own name needs no entry. Who names no model gets the first pool."""
    bytes_per_token: float = 4.0
    """Of the prompts' text: the gateway sees bytes, and learns how many make a token."""


def check(scenario: Scenario) -> None:
    """Raise ConfigurationError with everything that cannot be."""
    problems = [*scenario.network.problems(), *scenario.clients.problems()]
    governed = scenario.governor.pools
    if not scenario.pools:
        problems.append("pools: a scenario has at least one")
    problems += [
        f"pools.{pool}: is not a pool of the governor; there are: {_names(governed)}"
        for pool in scenario.pools
        if pool not in governed
    ]
    problems += _replica_problems(scenario)
    asked = {f"callers.{tenant}": name for tenant, name in scenario.callers.items()}
    if scenario.default_class:
        asked["default_class"] = scenario.default_class
    for where, name in asked.items():
        if name not in scenario.governor.classes:
            known = _names(scenario.governor.classes)
            problems.append(f"{where}: no class is named {name!r}; there are: {known}")
    for model, pool in scenario.models.items():
        if pool not in governed:
            problems.append(f"models.{model}: no pool is named {pool!r}; there are: {_names(governed)}")
    if not 0 < scenario.bytes_per_token < inf:
        problems.append(f"bytes_per_token: is above 0, not {scenario.bytes_per_token:g}")
    if problems:
        raise ConfigurationError(problems)


def _replica_problems(scenario: Scenario) -> list[str]:
    problems: list[str] = []
    names: dict[str, str] = {}
    for pool, replicas in scenario.pools.items():
        for replica in replicas:
            where = f"pools.{pool}.{replica.name}"
            if replica.name in names:
                problems.append(f"{where}: pool {names[replica.name]} has a replica of that name already")
            names[replica.name] = pool
            if not 0 < replica.weight < inf:
                problems.append(f"{where}.weight: is above 0, not {replica.weight:g}")
            problems += [
                f"{where}.{name}: is from 0 s on, not {value:g}"
                for name, value in (("asked_at_s", replica.asked_at_s), ("provision_s", replica.provision_s))
                if not 0 <= value < inf
            ]
    for fault in scenario.faults:
        problems += fault_values.problems(fault)
        if fault.replica not in names:
            tag = fault.__struct_config__.tag
            problems.append(f"fault {tag}: no replica is named {fault.replica!r}; there are: {_names(names)}")
    return problems


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
