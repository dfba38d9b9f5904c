"""What is shown of a running demo? Values only: how they are drawn is the view's business."""

from __future__ import annotations

import msgspec

from tidegate.core.records import Budgets

HELD_RATIO = 0.95


class ReplicaLook(msgspec.Struct, frozen=True, kw_only=True):
    """One replica: what the gateway believes of it, and what it really computes."""

    name: str
    state: str
    available: bool
    running: int
    running_limit: float
    kv_ratio: float
    """KV tokens held, prompt and reserved answer, over what fits; 0..1 and rarely more."""
    prompt_tokens_per_s: float
    output_tokens_per_s: float


class TenantLook(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant; rates are of the last seconds, refusals of the whole run."""

    name: str
    priority: str
    in_flight: int
    requests_per_s: float
    """Ended ones, refused ones among them."""
    tokens_per_s: float
    quota_ratio: float | None
    """Left in its token bucket, over the bucket; None without a limit."""
    refused: dict[str, int]


class BudgetLook(msgspec.Struct, frozen=True, kw_only=True):
    """One class against its budgets, over the last window; nan where nothing has ended."""

    priority: str
    budgets: Budgets
    ttft_p50_s: float
    ttft_p95_s: float
    tpot_p50_s: float
    tpot_p95_s: float
    goodput_per_s: float
    goodput_ratio: float
    """Of what was let in: a tenant's quota is not the fleet's failure."""
    ok_ratio: float
    """Answered to their end, of the same."""
    samples: int

    @property
    def held(self) -> bool | None:
        """Whether 95 % were answered, and both P95s of these are within budget; None: nothing to judge."""
        if not self.samples:
            return None
        ttft_s, tpot_s = self.budgets.ttft_s, self.budgets.tpot_s
        return self.ok_ratio >= HELD_RATIO and not (
            (ttft_s is not None and self.ttft_p95_s > ttft_s)
            or (tpot_s is not None and self.tpot_p95_s > tpot_s)
        )


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything, at one instant."""

    elapsed_s: float
    for_s: float
    """inf: until it is stopped."""
    offered_per_s: float
    replicas: list[ReplicaLook]
    queued: dict[str, int]
    pressure_ratio: float
    degradation: list[str]
    tenants: list[TenantLook]
    budgets: list[BudgetLook]
    window_s: float
    """What the budgets are judged over."""
    events: list[str]
    """Newest last."""
