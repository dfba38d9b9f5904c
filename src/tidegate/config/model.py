"""What does the gateway ask of its configuration?

`Config` is what the file says, with the few answers that are derived from it: whom a key stands for,
which pool serves a model name, what the governor is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import TypeVar

import msgspec

from tidegate.config.schema import File, ReplicaConfig, TenantConfig
from tidegate.net.limits import ClientLimits
from tidegate.policy.settings import ClassSettings, GovernorSettings, PoolSettings, TenantSettings

ANONYMOUS = "anonymous"
"""The tenant of every request where no keys are configured."""

S = TypeVar("S", bound=msgspec.Struct)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a key stands for, and what it may ask for."""

    tenant: str
    key: str
    """Name of the key, not the key."""
    default_class: str
    classes: tuple[str, ...]
    """Classes that it may ask for, the default one among them, highest first."""
    pools: frozenset[str] | None = None
    """None: every pool."""
    expires: date | None = None

    def valid_at(self, unix_s: float) -> bool:
        """Whether the key is still taken; its last day counts to its end in UTC."""
        if self.expires is None:
            return True
        end = datetime.combine(self.expires, time(), UTC) + timedelta(days=1)
        return unix_s < end.timestamp()


class Config(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole configuration, checked."""

    def governor_settings(self) -> GovernorSettings:
        """What the governor is told before the first event."""
        return GovernorSettings(
            pools={name: _plain(PoolSettings, pool) for name, pool in self.pools.items()},
            classes={name: _plain(ClassSettings, each) for name, each in self.classes.items()},
            tenants={name: _tenant_settings(tenant) for name, tenant in self.tenants.items()},
            limits=self.limits,
            weights=self.weights,
        )

    def client_limits(self) -> ClientLimits:
        """What each upstream client is told."""
        return _plain(ClientLimits, self.upstream)

    def replicas(self) -> Iterator[tuple[str, ReplicaConfig]]:
        """Every replica with the name of its pool."""
        return ((name, replica) for name, pool in self.pools.items() for replica in pool.replicas)

    def replica_ids(self) -> dict[str, tuple[str, ReplicaConfig]]:
        """Every replica, with its pool's name, by an id that is unique in the fleet.

        The id is the replica's name where no other pool has one of that name, else pool/name.
        """
        times = Counter(replica.name for _, replica in self.replicas())
        return {
            replica.name if times[replica.name] == 1 else f"{pool}/{replica.name}": (pool, replica)
            for pool, replica in self.replicas()
        }

    def models(self) -> dict[str, str]:
        """Pool by the names that clients may send: its own and its aliases."""
        names = {name: name for name in self.pools}
        return names | {alias: name for name, pool in self.pools.items() for alias in pool.aliases}

    @property
    def open(self) -> bool:
        """Whether anybody who can connect is served: no keys are configured."""
        return not any(tenant.keys for tenant in self.tenants.values())

    @property
    def usual_class(self) -> str:
        """The class that a request has when nothing says otherwise."""
        return self.default_class or list(self.classes)[-1]

    def callers(self) -> dict[str, Caller]:
        """Whom each key stands for, by its digest in lower-case hex."""
        return {
            key.sha256.lower(): Caller(
                tenant=tenant_name,
                key=key_name,
                default_class=tenant.class_ or self.usual_class,
                classes=self.classes_of(tenant),
                pools=_both(tenant.pools, key.pools),
                expires=key.expires,
            )
            for tenant_name, tenant in self.tenants.items()
            for key_name, key in tenant.keys.items()
        }

    def anonymous(self) -> Caller:
        """Whom a request without a key stands for, where no keys are configured."""
        return Caller(tenant=ANONYMOUS, key="", default_class=self.usual_class, classes=tuple(self.classes))

    def classes_of(self, tenant: TenantConfig) -> tuple[str, ...]:
        """Those that it may ask for, the highest first."""
        own = tenant.class_ or self.usual_class
        order = list(self.classes)
        if tenant.classes is None:
            return tuple(order[order.index(own) :])
        return tuple(name for name in order if name == own or name in tenant.classes)


def _both(first: tuple[str, ...] | None, second: tuple[str, ...] | None) -> frozenset[str] | None:
    if first is None or second is None:
        only = first if second is None else second
        return None if only is None else frozenset(only)
    return frozenset(first) & frozenset(second)


def _tenant_settings(tenant: TenantConfig) -> TenantSettings:
    keys = {name: key.limits for name, key in tenant.keys.items() if key.limits is not None}
    return TenantSettings(weight=tenant.weight, limits=tenant.limits, pools=tenant.pool_limits, keys=keys)


def _plain(kind: type[S], value: S) -> S:
    """The part of `value` that `kind` declares, so that policy never sees (or records) the rest."""
    return kind(**{name: getattr(value, name) for name in kind.__struct_fields__})
