"""What is going on? The gateway's own figures and those of its clients, looked at twice a second.

Latencies are the clients', from the instant at which each request was planned. Everything else is what an
operator of the gateway can see: its status and its metrics. Only the tokens that a replica computes at this
moment come from the engine's side.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import inf, nan
from typing import Any

from prometheus_client.core import Metric

from tidegate.bench.load import UNFINISHED, LoadRecord, Progress
from tidegate.core.reasons import Reason
from tidegate.core.records import Budgets, RequestRecord, summarise
from tidegate.demo.snapshot import BudgetLook, ReplicaLook, Snapshot, TenantLook
from tidegate.demo.stage import Stage
from tidegate.gateway.status import status

RATE_WINDOW_S = 4.0
BUDGET_WINDOW_S = 15.0
EVENTS_KEPT = 50
COUNTED = ("tidegate_requests", "tidegate_tokens", "tidegate_refusals")
QUOTAS = (Reason.TOKEN_QUOTA, Reason.REQUEST_QUOTA, Reason.CONCURRENCY_QUOTA)


class Rates:
    """How fast named totals grow, over the last seconds."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[str, float]]] = deque()

    def see(self, now: float, totals: dict[str, float]) -> None:
        """The totals as they stand."""
        self._seen.append((now, totals))
        while len(self._seen) > 2 and self._seen[1][0] <= now - RATE_WINDOW_S:
            self._seen.popleft()

    def per_s(self, name: str) -> float:
        """Growth per second; 0 until there is something to compare."""
        if len(self._seen) < 2:
            return 0.0
        (first_at, first), (last_at, last) = self._seen[0], self._seen[-1]
        return (last.get(name, 0.0) - first.get(name, 0.0)) / (last_at - first_at)


class Watch:
    """Looks at a stage and remembers what it must to speak of rates, windows and events."""

    def __init__(self, stage: Stage, for_s: float, on_event: Callable[[str], None] | None = None) -> None:
        self.records: list[LoadRecord] = []
        """What clients have seen of their requests, in order of their ends."""
        self._stage = stage
        self._for_s = for_s
        self._on_event = on_event
        self._now: Callable[[], float] = stage.service.driver.now
        self._started_at = self._now()
        self._rates, self._offered = Rates(), Rates()
        self._events: deque[str] = deque(maxlen=EVENTS_KEPT)
        self._states: dict[str, str] = {}
        self._steps: list[str] = []
        self._refused_once: set[tuple[str, str]] = set()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self._now() - self._started_at

    @property
    def classes(self) -> dict[str, str]:
        """Class of each tenant."""
        config = self._stage.service.config
        return {name: tenant.class_ or config.usual_class for name, tenant in config.tenants.items()}

    def on_progress(self, progress: Progress) -> None:
        """How far the load has come."""
        self._offered.see(self._now(), {"sent": float(progress.sent)})

    def on_record(self, record: LoadRecord) -> None:
        """A client has its answer."""
        self.records.append(record)

    def say(self, text: str) -> None:
        """Something worth a line has happened."""
        event = f"{self.elapsed_s:5.1f}s {text}"
        self._events.append(event)
        if self._on_event:
            self._on_event(event)

    def look(self) -> Snapshot:
        """How things stand now."""
        service = self._stage.service
        now = self._now()
        state = status(service.governor, now, service.server.connections, service.not_ready())
        pool = state["pools"][self._stage.pool]
        totals, refused = _totals(service.metrics.collect())
        for name, engine in self._stage.engines.items():
            totals[f"prompt {name}"] = float(engine.engine.meter.prompt_tokens)
            totals[f"output {name}"] = float(engine.engine.meter.generation_tokens)
        self._rates.see(now, totals)
        self._notice(pool, refused)
        return Snapshot(
            elapsed_s=now - self._started_at,
            for_s=self._for_s,
            offered_per_s=self._offered.per_s("sent"),
            replicas=[self._replica(name, each) for name, each in pool["replicas"].items()],
            queued=pool["queued_by_class"],
            pressure_ratio=pool["pressure_ratio"],
            degradation=pool["degradation"],
            tenants=self._tenants(state["limits"], refused),
            budgets=self.judge(BUDGET_WINDOW_S),
            window_s=BUDGET_WINDOW_S,
            events=list(self._events),
        )

    def judge(self, window_s: float = inf) -> list[BudgetLook]:
        """Each class against its budgets, over what ended in the last `window_s`."""
        since = self._now() - window_s
        recent: list[LoadRecord] = []
        for record in reversed(self.records):
            if record.ended_at < since:
                break
            if record.error != UNFINISHED:
                recent.append(record)
        span_s = min(window_s, self.elapsed_s)
        classes = self.classes
        return [
            budget_look(name, each.budgets, [r for r in recent if classes.get(r.tenant) == name], span_s)
            for name, each in self._stage.service.config.classes.items()
        ]

    # -- parts ------------------------------------------------------------------------------------

    def _replica(self, name: str, state: dict[str, Any]) -> ReplicaLook:
        limit, kv_limit = state["concurrency_limit"], state["kv_limit_tokens"]
        return ReplicaLook(
            name=name,
            state=state["state"],
            available=state["available"],
            running=state["in_flight"],
            running_limit=inf if limit is None else limit,
            kv_ratio=state["kv_held_tokens"] / kv_limit if kv_limit else 0.0,
            prompt_tokens_per_s=self._rates.per_s(f"prompt {name}"),
            output_tokens_per_s=self._rates.per_s(f"output {name}"),
        )

    def _tenants(self, limits: list[dict[str, Any]], refused: dict[str, dict[str, int]]) -> list[TenantLook]:
        scopes = {scope["scope"]: scope for scope in limits}
        looks = []
        for name, priority in self.classes.items():
            scope = scopes.get(f"tenant {name}", {})
            looks.append(
                TenantLook(
                    name=name,
                    priority=priority,
                    in_flight=scope.get("in_flight", 0),
                    requests_per_s=self._rates.per_s(f"requests {name}"),
                    tokens_per_s=self._rates.per_s(f"tokens {name}"),
                    quota_ratio=self._quota_ratio(name, scope),
                    refused=refused.get(name, {}),
                )
            )
        return looks

    def _quota_ratio(self, tenant: str, scope: dict[str, Any]) -> float | None:
        """A tenant that has not asked yet has no scope, and all of its quota."""
        limits = self._stage.service.config.tenants[tenant].limits
        if limits is None or limits.tokens_per_minute is None:
            return None
        return max(0.0, scope["tokens_available"] / scope["tokens_burst"]) if scope else 1.0

    def _notice(self, pool: dict[str, Any], refused: dict[str, dict[str, int]]) -> None:
        for name, replica in pool["replicas"].items():
            before = self._states.get(name, replica["state"])
            self._states[name] = replica["state"]
            if before != replica["state"]:
                self.say(f"{name} is {replica['state']}, and was {before}")
        for step in pool["degradation"]:
            if step not in self._steps:
                self.say(f"degradation: {step} begins")
        for step in self._steps:
            if step not in pool["degradation"]:
                self.say(f"degradation: {step} ends")
        self._steps = pool["degradation"]
        for tenant, reasons in refused.items():
            for reason in reasons:
                if (tenant, reason) not in self._refused_once:
                    self._refused_once.add((tenant, reason))
                    self.say(f"first refusal of {tenant}: {reason}")


def budget_look(
    priority: str, budgets: Budgets, records: Sequence[RequestRecord], span_s: float
) -> BudgetLook:
    """A class against its budgets. What a tenant's own quota refused is left out."""
    admitted = [record for record in records if record.reason not in QUOTAS]
    summary = summarise(admitted, budgets, span_s)
    return BudgetLook(
        priority=priority,
        budgets=budgets,
        ttft_p50_s=summary.ttft_s.p50,
        ttft_p95_s=summary.ttft_s.p95,
        tpot_p50_s=summary.tpot_s.p50,
        tpot_p95_s=summary.tpot_s.p95,
        goodput_per_s=summary.goodput_per_s,
        goodput_ratio=summary.goodput_ratio,
        ok_ratio=summary.ok / summary.requests if summary.requests else nan,
        samples=summary.requests,
    )


def _totals(families: Iterable[Metric]) -> tuple[dict[str, float], dict[str, dict[str, int]]]:
    """Requests and tokens by tenant, and refusals by tenant and reason."""
    totals: dict[str, float] = {}
    refused: dict[str, dict[str, int]] = {}
    samples = [
        (family.name, each) for family in families if family.name in COUNTED for each in family.samples
    ]
    for family_name, sample in samples:
        tenant, reason = sample.labels["tenant"], sample.labels.get("reason")
        if reason is None and sample.labels.get("type") != "cached_input":
            name = f"{family_name.removeprefix('tidegate_')} {tenant}"
            totals[name] = totals.get(name, 0.0) + sample.value
        elif reason is not None and reason != Reason.CLIENT_GONE:
            refused.setdefault(tenant, {})[reason] = int(sample.value)
    return totals, refused
