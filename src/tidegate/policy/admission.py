"""Admission: may this request enter, at what charge, and degraded how?

Relief first (what pressure leaves it), then what could never fit, then the limits of every scope,
all or nothing. The answer is a `Call` that holds its charge, or a `Refusal` that holds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Final, NamedTuple

from tidegate.core.messages import Quota
from tidegate.core.reasons import Reason
from tidegate.core.request import Request
from tidegate.policy.calls import Call
from tidegate.policy.degradation import NO_RELIEF
from tidegate.policy.limits import Denial, Estimate, Scope, Weights, admit, quota
from tidegate.policy.pool import Pool
from tidegate.policy.queueing import Flow
from tidegate.policy.settings import Deadlines, GovernorSettings, LimitSettings, TenantSettings

UNLISTED = TenantSettings()

STANDINGS_KEPT: Final = 1024
"""They are only quicker to find than to make: with more than so many, all are made again."""


class Refusal(NamedTuple):
    """A request that does not enter. `retry_after_s` is None where no later try can succeed."""

    reason: Reason
    detail: str
    retry_after_s: float | None = None
    quota: Quota | None = None


class Asked:
    """A request after relief: the pool that will serve it and the output bound that it gets."""

    __slots__ = ("degraded", "max_tokens", "pool")

    def __init__(self, pool: Pool, max_tokens: int | None, degraded: tuple[str, ...] = ()) -> None:
        self.pool: Final = pool
        self.max_tokens: Final = max_tokens
        self.degraded: Final = degraded


class Standing:
    """What is the same for all requests of one key and class to one pool."""

    def __init__(
        self, scopes: tuple[Scope, ...], flow: Flow, max_wait_s: float, deadlines: Deadlines
    ) -> None:
        self.scopes: Final = scopes
        self.flow: Final = flow
        self.max_wait_s: Final = max_wait_s
        self.ttft_s: Final[float] = deadlines.ttft_s
        self.total_s: Final[float] = deadlines.total_s
        self.hard: Final = any(scope.hard for scope in scopes)
        """Some scope reserves the upper bound of a cost."""


@dataclass(slots=True, eq=False)
class Admission:
    """The door of the governor. Remembers one scope for each place where a limit is configured."""

    settings: GovernorSettings
    pools: dict[str, Pool]
    rng: Random
    _ranks: dict[str, int] = field(init=False)
    weights: Weights = field(init=False)
    _per_cheapest_input: float = field(init=False)  # credits per token
    _scopes: dict[tuple[str, ...], Scope] = field(default_factory=dict)
    _standings: dict[tuple[str, str, str, str], Standing] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ranks = {name: rank for rank, name in enumerate(self.settings.classes)}
        self.weights = weights = Weights(self.settings.weights)
        self._per_cheapest_input = min(weights.input, weights.cached_input)

    def admit(self, request: Request, now: float) -> Call | Refusal:
        """Take the request's charge, or say why not. Takes nothing when it refuses."""
        pool = self.pools.get(request.model)
        if pool is None:
            return Refusal(Reason.UNKNOWN_MODEL, f"no pool is named {request.model!r}")
        asked = self._relieve(request, pool, now)
        if isinstance(asked, Refusal):
            return asked
        certain = asked.pool.predictor.prompt_tokens_certain(request)
        return self._impossible(request, asked.pool, certain, now) or self._charge(
            request, asked, certain, now
        )

    def scopes(self) -> list[Scope]:
        """Every scope in use, for status and checks."""
        return list(self._scopes.values())

    # -- relief -----------------------------------------------------------------------------------

    def _relieve(self, request: Request, pool: Pool, now: float) -> Asked | Refusal:
        if not pool.ladder.steps:
            return Asked(pool, request.max_tokens)
        pool.press(now)
        protected = self.settings.classes[request.priority].protected
        relief = pool.ladder.relief(request.priority, protected)
        if relief is NO_RELIEF:
            return Asked(pool, request.max_tokens)
        if relief.shed:
            detail = f"{pool.name} is under pressure and sheds class {request.priority}"
            wait_s = pool.book(now, self.rng, pool.predictor.prompt_tokens(request))
            return Refusal(Reason.SHED, detail, wait_s)
        max_tokens = request.max_tokens
        degraded: tuple[str, ...] = ()
        clamp = relief.max_tokens
        if clamp is not None and request.generates and (max_tokens is None or max_tokens > clamp):
            max_tokens = clamp
            degraded = (f"clamp={max_tokens}",)
        if relief.pool is not None and self._could_start(self.pools[relief.pool], request, max_tokens, now):
            pool = self.pools[relief.pool]
            degraded = (*degraded, f"fallback={pool.name}")
        return Asked(pool, max_tokens, degraded)

    @staticmethod
    def _could_start(pool: Pool, request: Request, max_tokens: int | None, now: float) -> bool:
        """Whether a fallback would really help: nothing waits there and some replica has room."""
        prompt = pool.predictor.prompt_tokens(request)
        kv_tokens = prompt + pool.predictor.output_tokens(request, max_tokens)
        if pool.queue.requests or kv_tokens > pool.most_tokens:
            return False
        return any(
            member.available(now) and member.replica.has_room(now, kv_tokens, prompt)
            for member in pool.members.values()
        )

    # -- what cannot be ---------------------------------------------------------------------------

    def _impossible(self, request: Request, pool: Pool, certain: float, now: float) -> Refusal | None:
        if certain > pool.most_tokens:
            takes = f"{pool.name} takes {pool.most_tokens:.0f}"
            detail = f"the prompt has at least {certain:.0f} tokens and {takes}"
            return Refusal(Reason.NEVER_FITS, f"{detail}; send a shorter one")
        if pool.any_available(now):
            return None
        back_s = pool.back_at(now) - now
        if back_s <= self.settings.classes[request.priority].max_wait_s:
            return None
        if not pool.members:
            return Refusal(Reason.NO_REPLICA, f"{pool.name} has no replicas", 5.0)
        # A replica that probes found down comes back when a probe says so, at the earliest.
        wait_s = back_s if back_s < inf else pool.settings.health.interval_s * pool.settings.health.rise
        return Refusal(Reason.NO_REPLICA, f"no replica of {pool.name} is available", wait_s)

    # -- the charge -------------------------------------------------------------------------------

    def _charge(self, request: Request, asked: Asked, certain: float, now: float) -> Call | Refusal:
        pool, max_tokens = asked.pool, asked.max_tokens
        predictor, weights = pool.predictor, self.weights
        prompt = predictor.prompt_tokens(request)
        output = predictor.output_tokens(request, max_tokens)
        standing = self._standing(request, pool)
        bound = inf
        if standing.hard:
            bound = predictor.prompt_tokens_bound(request) * weights.input
            bound += predictor.output_tokens_bound(request, max_tokens, pool.context_tokens) * weights.output
        surest = certain * self._per_cheapest_input
        likely = prompt * weights.input + output * weights.output
        charge = admit(now, standing.scopes, Estimate(surest, likely, bound))
        if isinstance(charge, Denial):
            wait_s = charge.retry_after_s if charge.retry_after_s < inf else None
            return Refusal(charge.reason, charge.detail, wait_s, quota(now, standing.scopes))
        total_s, timeout_s = standing.total_s, request.timeout_s
        if timeout_s is not None and timeout_s < total_s:
            total_s = timeout_s
        return Call(
            request=request,
            pool=pool,
            flow=standing.flow,
            charge=charge,
            arrived_at=now,
            max_wait_s=standing.max_wait_s,
            ttft_until=now + standing.ttft_s,
            total_until=now + total_s,
            prompt_tokens=prompt,
            output_tokens=output,
            # An estimate must never make impossible what only might be too large.
            kv_tokens=prompt + output if prompt + output < pool.largest_kv else pool.largest_kv,
            max_tokens=max_tokens if asked.degraded else None,
            degraded=asked.degraded,
            caller_timeout=total_s < standing.total_s,
        )

    def _standing(self, request: Request, pool: Pool) -> Standing:
        who = (request.tenant, request.key, request.priority, pool.name)
        found = self._standings.get(who)
        if found is None or found.flow.forgotten:
            if len(self._standings) >= STANDINGS_KEPT:
                self._standings.clear()
            scopes = self._make_scopes(request.tenant, request.key, pool.name)
            weight = self.settings.tenants.get(request.tenant, UNLISTED).weight
            found = self._standings[who] = Standing(
                scopes=tuple(scopes),
                flow=pool.queue.flow(self._ranks[request.priority], request.tenant, weight),
                max_wait_s=self.settings.classes[request.priority].max_wait_s,
                deadlines=pool.settings.deadlines,
            )
        return found

    def _make_scopes(self, tenant_name: str, key: str, pool_name: str) -> list[Scope]:
        tenant = self.settings.tenants.get(tenant_name, UNLISTED)
        # Found by what they are about: names are free text, and two sentences of them may read the same.
        limited: list[tuple[tuple[str, ...], str, LimitSettings | None]] = [
            ((), "the fleet", self.settings.limits),
            (("tenant", tenant_name), f"tenant {tenant_name}", tenant.limits),
            (("key", tenant_name, key), f"key {tenant_name}/{key}", tenant.keys.get(key)),
            (("pool", pool_name), f"pool {pool_name}", self.settings.pools[pool_name].limits),
            (
                ("both", tenant_name, pool_name),
                f"tenant {tenant_name} in pool {pool_name}",
                tenant.pools.get(pool_name),
            ),
        ]
        return [
            self._scopes.setdefault(about, Scope.of(name, settings))
            for about, name, settings in limited
            if settings is not None
        ]
