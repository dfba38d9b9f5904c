"""Within which bounds does each number of the configuration make sense?

One table over the settings of every mechanism. The upper bounds are far above any use; they keep sums
and products of settings finite and timers representable.
"""

from __future__ import annotations

from math import isfinite
from typing import NamedTuple

import msgspec

from tidegate.config import schema
from tidegate.config.simulation import (
    CurveConfig,
    EngineConfig,
    SimulatedReplica,
    SimulatedTenant,
    SimulationConfig,
)
from tidegate.core.records import Budgets
from tidegate.net.limits import ClientLimits, ServerLimits
from tidegate.policy.prediction import BYTES_PER_TOKEN_MAX
from tidegate.policy.settings import (
    BreakerSettings,
    ClampStep,
    ClassSettings,
    Deadlines,
    FallbackStep,
    GateSettings,
    HealthSettings,
    LimitSettings,
    PoolSettings,
    PredictionSettings,
    QueueSettings,
    RetrySettings,
    RoutingSettings,
    ShedStep,
    TenantSettings,
    TokenWeights,
)
from tidegate.sim.clients import ClientSettings
from tidegate.sim.faults import Crash, Drain, Errors, Flap, Leave, Slow
from tidegate.sim.network import Network
from tidegate.sim.settings import Disaggregation, Link, Speculation


class Range(NamedTuple):
    """`low` to `high`; `low` itself is out where `above`, `high` itself where `under`."""

    low: float
    high: float
    above: bool = False
    under: bool = False

    def holds(self, value: float) -> bool:
        """Whether `value` is within; NaN and infinity never are."""
        low_ok = value > self.low if self.above else value >= self.low
        high_ok = value < self.high if self.under else value <= self.high
        return isfinite(value) and low_ok and high_ok

    def __str__(self) -> str:
        low = f"above {self.low:,.12g}" if self.above else f"at least {self.low:,.12g}"
        high = f"below {self.high:,.12g}" if self.under else f"at most {self.high:,.12g}"
        return f"{low} and {high}"


YEAR_S = 365 * 86_400.0
SECONDS = Range(0, YEAR_S, above=True)
SECONDS_OR_NONE = Range(0, YEAR_S)
RATIO = Range(0, 1)
RATIO_ABOVE_0 = Range(0, 1, above=True)
COUNT = Range(1, 1e9)
COUNT_OR_NONE = Range(0, 1e9)
TOKENS = Range(1, 1e12)
PER_MINUTE = Range(0, 1e12, above=True)
WEIGHT = Range(0, 1e6, above=True)
CREDITS = Range(0, 1e6)

_STEP = {"above": RATIO_ABOVE_0, "below": RATIO_ABOVE_0, "dwell_s": SECONDS_OR_NONE}

RANGES: dict[type[msgspec.Struct], dict[str, Range]] = {
    schema.File: {"shutdown_delay_s": SECONDS_OR_NONE, "shutdown_grace_s": SECONDS_OR_NONE},
    schema.UpstreamConfig: {"inter_token_timeout_s": SECONDS},
    schema.ProbeConfig: {"timeout_s": SECONDS},
    schema.ReplicaConfig: {"weight": WEIGHT},
    schema.TenantConfig: {"weight": WEIGHT},
    schema.MediaConfig: {"tokens_per_image": COUNT_OR_NONE, "tokens_per_audio": COUNT_OR_NONE},
    ServerLimits: {
        # Below these a request of an ordinary SDK does not fit.
        "head_bytes": Range(1_024, 2**24),
        "headers": Range(16, 10_000),
        "target_bytes": Range(64, 2**20),
        "body_bytes": Range(1_024, 2**32),
        "pipelined": COUNT,
        "head_timeout_s": SECONDS,
        "body_timeout_s": SECONDS,
        "idle_timeout_s": SECONDS,
        "write_timeout_s": SECONDS,
    },
    ClientLimits: {
        "connect_timeout_s": SECONDS,
        "idle_timeout_s": SECONDS_OR_NONE,
        "head_bytes": Range(1_024, 2**24),
        "max_idle": COUNT_OR_NONE,
    },
    PoolSettings: {"context_tokens": TOKENS},
    TenantSettings: {"weight": WEIGHT},
    Deadlines: {"ttft_s": SECONDS, "total_s": SECONDS},
    Budgets: {"ttft_s": SECONDS, "tpot_s": SECONDS, "e2e_s": SECONDS},
    ClassSettings: {"guaranteed_share": RATIO, "guaranteed_places": COUNT_OR_NONE, "max_wait_s": SECONDS},
    QueueSettings: {
        "max_requests": COUNT_OR_NONE,
        "max_tokens": Range(0, 1e12),
        "max_bytes": Range(0, 2**40),
    },
    RoutingSettings: {
        "load_factor": Range(1, 100),
        "virtual_nodes": Range(1, 10_000),
        "match_ratio": RATIO,
        "leave_ratio": Range(1, 1_000),
        "leave_tokens": Range(0, 1e12),
        "explore_share": RATIO,
        "index_blocks": Range(1, 10_000_000),
    },
    GateSettings: {"max_concurrency": COUNT, "kv_tokens": TOKENS, "max_prefill_tokens": TOKENS},
    HealthSettings: {
        "interval_s": Range(0.05, YEAR_S),
        "rise": COUNT,
        "fall": COUNT,
        "max_ejected_share": RATIO,
        "slow_start_s": SECONDS_OR_NONE,
        "stale_after_s": SECONDS,
    },
    BreakerSettings: {
        "consecutive_failures": COUNT,
        "failure_ratio": RATIO_ABOVE_0,
        "min_samples": COUNT,
        "window_s": SECONDS,
        "open_s": SECONDS,
        "open_max_s": SECONDS,
        "half_open_trials": COUNT,
        "successes_to_close": COUNT,
    },
    RetrySettings: {
        "max_attempts": Range(1, 100),
        "budget_ratio": RATIO,
        "floor": Range(0, 1e6),
        "window_s": SECONDS,
    },
    PredictionSettings: {
        "bytes_per_token": Range(0.5, BYTES_PER_TOKEN_MAX),
        "output_tokens": TOKENS,
        "output_quantile": Range(0, 1, above=True, under=True),
    },
    ClampStep: _STEP | {"max_tokens": TOKENS},
    FallbackStep: _STEP,
    ShedStep: _STEP,
    LimitSettings: {
        "requests_per_minute": PER_MINUTE,
        "tokens_per_minute": PER_MINUTE,
        "burst_s": SECONDS,
        "max_in_flight": COUNT,
    },
    SimulationConfig: {"bytes_per_token": Range(0.5, BYTES_PER_TOKEN_MAX)},
    SimulatedTenant: {"share": WEIGHT},
    SimulatedReplica: {"asked_at_s": SECONDS_OR_NONE, "provision_s": SECONDS_OR_NONE},
    EngineConfig: {
        "max_num_seqs": COUNT,
        "max_batched_tokens": TOKENS,
        "kv_tokens": TOKENS,
        "context_tokens": TOKENS,
        "block_tokens": Range(1, 2**20),
        "long_prefill_tokens": Range(0, 1e12),
        "speed": WEIGHT,
    },
    Speculation: {"draft_tokens": Range(1, 1_000), "acceptance_ratio": RATIO},
    Disaggregation: {"prefill_replicas": COUNT, "decode_replicas": COUNT},
    Link: {
        "bandwidth_bytes_per_s": Range(1, 1e15),
        "kv_bytes_per_token": Range(0, 1e9),
        "latency_s": SECONDS_OR_NONE,
    },
    CurveConfig: {
        "a_s": SECONDS,
        "b_s_per_sequence": SECONDS_OR_NONE,
        "c_s_per_context_token": SECONDS_OR_NONE,
        "d_s_per_prefill_token": SECONDS_OR_NONE,
        "e_s_per_prefill_token_squared": SECONDS_OR_NONE,
    },
    Network: {"delay_s": SECONDS_OR_NONE, "jitter_s": SECONDS_OR_NONE, "scrape_delay_s": SECONDS_OR_NONE},
    ClientSettings: {"max_retries": Range(0, 100), "patience_s": SECONDS, "hang_up_after_s": SECONDS},
    Crash: {"at_s": SECONDS_OR_NONE, "restart_after_s": SECONDS},
    Flap: {"at_s": SECONDS_OR_NONE, "down_s": SECONDS, "up_s": SECONDS, "times": Range(1, 100_000)},
    Slow: {"at_s": SECONDS_OR_NONE, "factor": WEIGHT, "for_s": SECONDS},
    Errors: {"at_s": SECONDS_OR_NONE, "share": RATIO, "status": Range(429, 599), "for_s": SECONDS},
    Drain: {"at_s": SECONDS_OR_NONE, "for_s": SECONDS},
    Leave: {"at_s": SECONDS_OR_NONE, "grace_s": SECONDS},
    TokenWeights: {"input": CREDITS, "cached_input": CREDITS, "output": CREDITS},
}


def range_of(kind: type, field: str) -> Range | None:
    """The bounds of a struct's field, also where a base of it declares the field."""
    for base in kind.__mro__:
        bounds = RANGES.get(base, {}).get(field)
        if bounds is not None:
            return bounds
    return None
