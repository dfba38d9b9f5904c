"""What does it prove? The three runs side by side, judged by what was promised.

Under token limits the others' TTFT at P95 stays within 1.2 times that of a run without the noisy tenant, and
the noisy tenant gets at least 95 % of its quota, which is no smaller than an equal share of the fleet.
"""

from __future__ import annotations

from math import nan

import msgspec

from tidegate.config import Config
from tidegate.core.records import Distribution
from tidegate.demo.neighbours import scenario
from tidegate.demo.neighbours.figures import RunFigures
from tidegate.policy.settings import MINUTE_S

SLOWDOWN_MAX = 1.2
QUOTA_RATIO_MIN = 0.95


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """The noisy tenant's token limit, and what it is to be compared with; at the pinned speed."""

    tokens_per_minute: float
    burst_tokens: float
    """Full at the start, hence up to so many tokens may be had beyond rate x time."""
    capacity_tokens_per_minute: float
    tenants: int
    equal_share_tokens_per_minute: float

    def ratio(self, run: RunFigures, *, with_burst: bool = False) -> float:
        """What the noisy tenant got, over rate x time, or over that and the burst; nan before any of it."""
        allowed = self.tokens_per_minute * run.sent_s / MINUTE_S + (self.burst_tokens if with_burst else 0.0)
        return run.noisy.tokens / allowed if allowed else nan


def quota_of(config: Config) -> Quota:
    """The noisy tenant's, as shipped, beside an equal share of the fleet."""
    (pool,) = config.pools.values()
    limits = config.tenants[scenario.NOISY].limits
    assert limits is not None
    assert limits.tokens_per_minute is not None
    capacity = scenario.capacity_tokens_per_minute(len(pool.replicas))
    return Quota(
        tokens_per_minute=limits.tokens_per_minute,
        burst_tokens=limits.tokens_per_minute * limits.burst_s / MINUTE_S,
        capacity_tokens_per_minute=capacity,
        tenants=len(config.tenants),
        equal_share_tokens_per_minute=capacity / len(config.tenants),
    )


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    seed: int
    speed: float
    complete: bool
    """False if it was stopped before its time; then it proves nothing."""
    simulated: bool
    quota: Quota
    baseline: RunFigures
    by_requests: RunFigures
    by_tokens: RunFigures
    slowdown_by_requests: float
    """The others' TTFT at P95 over that of the baseline."""
    slowdown_by_tokens: float
    quota_ratio: float
    """What the noisy tenant got under token limits, over rate x time."""
    quota_ratio_with_burst: float
    """The same over rate x time + burst, which is the most that it could have got."""
    log: list[str] = []
    """What the gateways logged meanwhile, its beginning; nothing if all is well."""

    @property
    def held(self) -> bool:
        """Whether the promise was kept."""
        return (
            self.complete
            and self.slowdown_by_tokens <= SLOWDOWN_MAX
            and self.quota_ratio >= QUOTA_RATIO_MIN
            and self.quota.tokens_per_minute >= self.quota.equal_share_tokens_per_minute
        )


def compare(
    runs: list[RunFigures],
    quota: Quota,
    *,
    seed: int,
    speed: float,
    complete: bool,
    simulated: bool = False,
    log: list[str] | None = None,
) -> Comparison:
    """Baseline, request limits, token limits, in this order."""
    baseline, by_requests, by_tokens = runs
    before_s = baseline.others.ttft_s
    return Comparison(
        seed=seed,
        speed=speed,
        complete=complete,
        simulated=simulated,
        quota=quota,
        baseline=baseline,
        by_requests=by_requests,
        by_tokens=by_tokens,
        slowdown_by_requests=slowdown(by_requests.others.ttft_s, before_s),
        slowdown_by_tokens=slowdown(by_tokens.others.ttft_s, before_s),
        quota_ratio=quota.ratio(by_tokens),
        quota_ratio_with_burst=quota.ratio(by_tokens, with_burst=True),
        log=log or [],
    )


def slowdown(ttft_s: Distribution, baseline_s: Distribution) -> float:
    """TTFT at P95, in times of the baseline's; nan while either has none."""
    return ttft_s.p95 / baseline_s.p95
