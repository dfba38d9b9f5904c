"""What can be set of policy? One section for each mechanism, then how they combine per pool and tenant.

What a setting does is told where its algorithm is: in the module that the section is named after.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

MINUTE_S = 60.0


# -- limits ---------------------------------------------------------------------------------------


class Metering(StrEnum):
    """How much of an unknown cost is reserved at arrival."""

    LEARNED = "learned"
    """The prompt's estimate and a learned quantile of the output; the rest becomes debt."""
    HARD = "hard"
    """The upper bound of both: never overshot, and fewer requests run side by side."""


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one scope. Absent means unlimited."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    burst_s: float = MINUTE_S
    """Depth of both buckets, in seconds of their rate."""
    max_in_flight: int | None = None
    """Requests admitted and not yet ended, waiting ones included."""
    metering: Metering = Metering.LEARNED


class TokenWeights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Credits per LLM token. The default counts every token once, as the engines' own usage does."""

    input: float = 1.0
    cached_input: float = 1.0
    output: float = 1.0


# -- queueing -------------------------------------------------------------------------------------


class ClassSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A priority class. The order of classes in the configuration is their priority, highest first."""

    guaranteed_share: float = 0.05
    """Share of dispatched tokens, 0..1, that waiting work of this class gets whatever waits above it."""
    guaranteed_places: int = 0
    """Queued requests of this class that are never displaced by others."""
    max_wait_s: float = 30.0
    protected: bool = False
    """Never degraded or shed."""


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of a pool's queue over all classes."""

    max_requests: int = 1_000
    max_tokens: float = 8_000_000
    max_bytes: int = 256 * 2**20


# -- routing --------------------------------------------------------------------------------------


class RoutingPolicy(StrEnum):
    """How a pool spreads its requests."""

    ROUND_ROBIN = "round_robin"
    RANDOM = "random"
    POWER_OF_TWO = "power_of_two"
    LEAST_REQUESTS = "least_requests"
    LEAST_TOKENS = "least_tokens"
    CONSISTENT_HASH = "consistent_hash"
    PREFIX_AFFINITY = "prefix_affinity"


class RoutingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The policy of a pool and its constants."""

    policy: RoutingPolicy = RoutingPolicy.LEAST_TOKENS
    load_factor: float = 1.25
    """consistent_hash: no replica above this times its share of the load. HAProxy advises 1.25 to 2."""
    virtual_nodes: int = 160
    """consistent_hash: points on the ring per replica. Source: Ketama's 160."""
    match_ratio: float = 0.25
    """prefix_affinity: share of a prompt, 0..1, that a replica must have been sent to be preferred."""
    leave_ratio: float = 1.5
    """prefix_affinity: nobody is preferred who holds this times the tokens of the least loaded one …"""
    leave_tokens: int = 16_384
    """… and as many tokens more (per weight). The pair is as in SGLang's router, there in requests."""
    explore_share: float = 0.01
    """prefix_affinity: share of the requests with a match that go by load all the same, so that what many ask
    comes to be known in several places. Source: llm-d's 1 %."""
    index_blocks: int = 32_768
    """prefix_affinity: blocks remembered per replica, some 200 bytes each; fewer where its KV holds fewer."""


# -- replicas -------------------------------------------------------------------------------------


class GateSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much a replica is given at once. None: what the engine tells, else unlimited."""

    max_concurrency: int | None = None
    """Requests at a time; an engine's batch limit plus a small look-ahead."""
    kv_tokens: int | None = None
    """KV cache, in tokens."""
    max_prefill_tokens: int | None = None
    """Prompt tokens sent whose first output token has not come back."""


class HealthSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Active probes. Source of rise and fall: HAProxy's defaults (2, 3; its interval is 2 s)."""

    interval_s: float = 2.0
    rise: int = 2
    fall: int = 3
    max_ejected_share: float = 0.5
    """Breakers may be open on at most this share of a pool, 0..1, though always on one."""
    slow_start_s: float = 0.0
    """A replica that comes (back) into the set grows from a tenth of its gate to all of it."""
    stale_after_s: float = 10.0
    """A scrape older than this no longer counts."""


# -- breakers -------------------------------------------------------------------------------------


class BreakerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults follow Envoy's outlier detection: five in a row, 30 s, at most 300 s."""

    consecutive_failures: int = 5
    failure_ratio: float = 0.5
    """Opens at this share of failures, 0..1, once `min_samples` fell into the window."""
    min_samples: int = 20
    window_s: float = 10.0
    open_s: float = 5.0
    open_max_s: float = 300.0
    half_open_trials: int = 1
    """Requests let through at a time while half open."""
    successes_to_close: int = 2


# -- retries --------------------------------------------------------------------------------------


class RetrySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Retries happen only before the first byte reached the client, and on another replica."""

    max_attempts: int = 3
    budget_ratio: float = 0.2
    """Retries per request over the window. Source: Finagle's and Linkerd's default."""
    floor: float = 3.0
    """Retries that are always allowed per window. Source: Envoy's retry budget, minimum concurrency 3."""
    window_s: float = 10.0


# -- prediction -----------------------------------------------------------------------------------


class PredictionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where learning starts and how it moves."""

    bytes_per_token: float = 4.0
    """First guess: English text under GPT-like vocabularies."""
    output_tokens: float = 256.0
    """First guess of an output's length."""
    output_quantile: float = 0.8
    """Quantile that a learned scope reserves, 0..1."""


# -- degradation ----------------------------------------------------------------------------------


class ClampStep(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="step", tag="clamp"
):
    """Bound the output of each choice."""

    above: float
    below: float
    max_tokens: int
    classes: tuple[str, ...] | None = None
    """Names of the classes it applies to; None: every class that is not protected."""
    dwell_s: float = 5.0


class FallbackStep(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="step", tag="fallback"
):
    """Serve the request from another pool, if that one has room."""

    above: float
    below: float
    pool: str
    classes: tuple[str, ...] | None = None
    dwell_s: float = 5.0


class ShedStep(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="step", tag="shed"
):
    """Refuse what arrives."""

    above: float
    below: float
    classes: tuple[str, ...] | None = None
    dwell_s: float = 5.0


Step = ClampStep | FallbackStep | ShedStep

# -- all of it, put together ----------------------------------------------------------------------


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
