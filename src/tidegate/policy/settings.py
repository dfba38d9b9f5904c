"""What can be set of policy as a whole? The settings of each mechanism, put together per pool and tenant.

Each mechanism's own settings live beside it; here is only how they combine.
"""

from __future__ import annotations

import msgspec

from tidegate.policy.breakers import BreakerSettings
from tidegate.policy.degradation import Step
from tidegate.policy.limits import LimitSettings, TokenWeights
from tidegate.policy.prediction import PredictionSettings
from tidegate.policy.queueing import ClassSettings, QueueSettings
from tidegate.policy.replicas import GateSettings, HealthSettings
from tidegate.policy.retries import RetrySettings
from tidegate.policy.routing import RoutingSettings


class Deadlines(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Deadlines that the governor keeps, from arrival. (A class bounds the time in the queue.)"""

    ttft_s: float = 120.0
    total_s: float = 600.0


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How one pool is governed. Its replicas arrive as `ReplicaAdded`."""

    queue: QueueSettings = QueueSettings()
    routing: RoutingSettings = RoutingSettings()
    gate: GateSettings = GateSettings()
    """Of each replica, unless the replica has its own."""
    health: HealthSettings = HealthSettings()
    breaker: BreakerSettings = BreakerSettings()
    retry: RetrySettings = RetrySettings()
    prediction: PredictionSettings = PredictionSettings()
    degradation: tuple[Step, ...] = ()
    deadlines: Deadlines = Deadlines()
    context_tokens: int | None = None
    """Longest prompt plus output; None: what the engines tell."""
    limits: LimitSettings | None = None


class TenantSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What one tenant may use."""

    weight: float = 1.0
    """Share of a contended pool beside the other tenants of the same class."""
    limits: LimitSettings | None = None
    pools: dict[str, LimitSettings] = {}
    """Further limits of this tenant in single pools."""
    keys: dict[str, LimitSettings] = {}
    """Further limits of single keys, by the key's name."""


class GovernorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the governor is told before the first event."""

    pools: dict[str, PoolSettings]
    classes: dict[str, ClassSettings] = msgspec.field(default_factory=lambda: {"default": ClassSettings()})
    """Highest priority first."""
    tenants: dict[str, TenantSettings] = {}
    """A tenant that is not listed has weight 1 and no limits of its own."""
    limits: LimitSettings | None = None
    """Over everything."""
    weights: TokenWeights = TokenWeights()
