"""Who shares a fleet, and what does each of them send?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log, sqrt

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.plan.ask import Kind, Load

DEFAULT = "default"
"""The tenant, and the class, of a load that names none."""


LONGEST_SIGMAS = 3.09
"""Of the logarithm of a length: one in a thousand is longer."""


class Tenant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who shares the fleet."""

    name: str = DEFAULT
    weight: float = 1.0
    """Its share of what is sustained, beside the weights of the others."""
    kinds: tuple[Kind, ...]
    """What it sends."""
    load_share: float = 1.0
    """Of all requests, 0..1."""

    @property
    def output_tokens(self) -> float:
        """The mean."""
        shares = sum(kind.share for kind in self.kinds)
        return sum(kind.share * kind.output_tokens for kind in self.kinds) / shares


def longest(mean: float, cv: float) -> float:
    """The length that one in a thousand is beyond, of lognormal lengths; the mean, where they do not vary."""
    variance = log(1 + cv * cv)
    return mean * exp(LONGEST_SIGMAS * sqrt(variance) - variance / 2)


def tenants_of(load: Load, weights: Mapping[str, float]) -> tuple[Tenant, ...]:
    """The tenants that a load names, or those of `weights`, who then all send alike; one at least.

    `weights` by tenant; 1 for one that is not there. ConfigurationError for a tenant of whom the load says
    nothing, although it names others.
    """
    named = list(dict.fromkeys(kind.tenant for kind in load.kinds if kind.tenant))
    if not named:
        whole = sum(weights.values())
        return tuple(
            Tenant(name=name, weight=weight, kinds=_merged(load.kinds), load_share=weight / whole)
            for name, weight in weights.items()
        ) or (Tenant(kinds=_merged(load.kinds)),)
    if unknown := [name for name in weights if name not in named]:
        there = ", ".join(named)
        raise ConfigurationError(
            [f"tenant {name}: the load has no requests of it; it has those of {there}" for name in unknown]
        )
    whole = sum(kind.share for kind in load.kinds)
    tenants = []
    for name in dict.fromkeys(kind.tenant or DEFAULT for kind in load.kinds):
        own = _merged([kind for kind in load.kinds if (kind.tenant or DEFAULT) == name])
        share = sum(kind.share for kind in own) / whole
        tenants.append(Tenant(name=name, weight=weights.get(name, 1.0), kinds=own, load_share=share))
    return tuple(tenants)


def _merged(kinds: Sequence[Kind]) -> tuple[Kind, ...]:
    """Kinds that differ in their shares only, as one."""
    shares: dict[Kind, float] = {}
    for kind in kinds:
        alike = msgspec.structs.replace(kind, share=1.0)
        shares[alike] = shares.get(alike, 0.0) + kind.share
    return tuple(msgspec.structs.replace(kind, share=share) for kind, share in shares.items())


def classes_of(load: Load) -> tuple[str, ...]:
    """Classes that a load names, in its order; one at least."""
    return tuple(dict.fromkeys(kind.class_ or DEFAULT for kind in load.kinds))


def of_class(load: Load, name: str) -> Load:
    """What one class sends."""
    kinds = tuple(kind for kind in load.kinds if (kind.class_ or DEFAULT) == name)
    return msgspec.structs.replace(load, kinds=kinds)


def share_of(load: Load, name: str) -> float:
    """Requests of a class, of all, 0..1."""
    whole = sum(kind.share for kind in load.kinds)
    return sum(kind.share for kind in load.kinds if (kind.class_ or DEFAULT) == name) / whole
