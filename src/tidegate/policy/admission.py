"""Admission: may this request enter, at what charge, and degraded how?

Relief first (what pressure leaves it), then what could never fit, then the limits of every scope,
all or nothing. The answer is a `Call` that holds its charge, or a `Refusal` that holds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from random import Random

import msgspec

from tidegate.core.messages import Quota
from tidegate.core.reasons import Reason
from tidegate.core.request import Request
from tidegate.policy.calls import Call
from tidegate.policy.degradation import NO_RELIEF
from tidegate.policy.limits import Denial, Estimate, LimitSettings, Scope, admit, quota
from tidegate.policy.pool import Pool
from tidegate.policy.settings import GovernorSettings, TenantSettings

UNLISTED = TenantSettings()


class Refusal(msgspec.Struct, frozen=True):
    """A request that does not enter. `retry_after_s` is None where no later try can succeed."""

    reason: Reason
    detail: str
    retry_after_s: float | None = None
    quota: Quota | None = None


class Asked(msgspec.Struct, frozen=True):
    """A request after relief: the pool that will serve it and the output bound that it gets."""

    pool: Pool
    max_tokens: int | None
    degraded: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Admission:
    """The door of the governor. Remembers one scope for each place where a limit is configured."""

    settings: GovernorSettings
    pools: dict[str, Pool]
    rng: Random
    _ranks: dict[str, int] = field(init=False)
    _scopes: dict[tuple[str, ...], Scope] = field(default_factory=dict)
    _scopes_of: dict[tuple[str, str, str], tuple[Scope, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ranks = {name: rank for rank, name in enumerate(self.settings.classes)}

    def admit(self, request: Request, now: float) -> Call | Refusal:
        """Take the request's charge, or say why not. Takes nothing when it refuses."""
        pool = self.pools.get(request.model)
        if pool is None:
            return Refusal(Reason.UNKNOWN_MODEL, f"no pool is named {request.model!r}")
        asked = self._relieve(request, pool, now)
        if isinstance(asked, Refusal):
            return asked
        return self._impossible(request, asked.pool, now) or self._charge(request, asked, now)

    def scopes(self) -> list[Scope]:
        """Every scope in use, for status and checks."""
        return list(self._scopes.values())

    # -- relief -----------------------------------------------------------------------------------

    def _relieve(self, request: Request, pool: Pool, now: float) -> Asked | Refusal:
        pool.press(now)
        protected = self.settings.classes[request.priority].protected
        relief = pool.ladder.relief(request.priority, protected) if pool.ladder.steps else NO_RELIEF
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
        if pool.queue.requests or kv_tokens > min(pool.context_tokens or inf, pool.largest_kv()):
            return False
        return any(
            member.available(now) and member.replica.has_room(now, kv_tokens, prompt)
            for member in pool.members.values()
        )

    # -- what cannot be ---------------------------------------------------------------------------

    def _impossible(self, request: Request, pool: Pool, now: float) -> Refusal | None:
        certain = pool.predictor.prompt_tokens_certain(request)
        limit = min(pool.context_tokens or inf, pool.largest_kv())
        if certain > limit:
            detail = f"the prompt has at least {certain:.0f} tokens and {pool.name} takes {limit:.0f}"
            return Refusal(Reason.NEVER_FITS, f"{detail}; send a shorter one")
        if pool.any_available(now):
            return None
        back_s = pool.back_at(now) - now
        if back_s <= self._max_wait_s(request):
            return None
        if not pool.members:
            return Refusal(Reason.NO_REPLICA, f"{pool.name} has no replicas", 5.0)
        # A replica that probes found down comes back when a probe says so, at the earliest.
        wait_s = back_s if back_s < inf else pool.settings.health.interval_s * pool.settings.health.rise
        return Refusal(Reason.NO_REPLICA, f"no replica of {pool.name} is available", wait_s)

    # -- the charge -------------------------------------------------------------------------------

    def _charge(self, request: Request, asked: Asked, now: float) -> Call | Refusal:
        pool, max_tokens = asked.pool, asked.max_tokens
        predictor, weights = pool.predictor, self.settings.weights
        prompt = predictor.prompt_tokens(request)
        output = predictor.output_tokens(request, max_tokens)
        scopes = self._scopes_for(request, pool)
        charge = admit(
            now,
            scopes,
            Estimate(
                predictor.prompt_tokens_certain(request) * min(weights.input, weights.cached_input),
                prompt * weights.input + output * weights.output,
                predictor.prompt_tokens_bound(request) * weights.input
                + predictor.output_tokens_bound(request, max_tokens, pool.context_tokens) * weights.output,
            ),
        )
        if isinstance(charge, Denial):
            wait_s = charge.retry_after_s if charge.retry_after_s < inf else None
            return Refusal(charge.reason, charge.detail, wait_s, quota(now, scopes))
        deadlines = pool.settings.deadlines
        total_s = min(deadlines.total_s, inf if request.timeout_s is None else request.timeout_s)
        weight = self.settings.tenants.get(request.tenant, UNLISTED).weight
        max_wait_s = self._max_wait_s(request)
        return Call(
            request=request,
            pool=pool,
            flow=pool.queue.flow(self._ranks[request.priority], request.tenant, weight),
            charge=charge,
            arrived_at=now,
            max_wait_s=max_wait_s,
            queue_until=now + max_wait_s,
            ttft_until=now + deadlines.ttft_s,
            total_until=now + total_s,
            prompt_tokens=prompt,
            output_tokens=output,
            # An estimate must never make impossible what only might be too large.
            kv_tokens=min(prompt + output, pool.largest_kv()),
            max_tokens=max_tokens if asked.degraded else None,
            degraded=asked.degraded,
            caller_timeout=total_s < deadlines.total_s,
        )

    def _max_wait_s(self, request: Request) -> float:
        return self.settings.classes[request.priority].max_wait_s

    def _scopes_for(self, request: Request, pool: Pool) -> tuple[Scope, ...]:
        who = (request.tenant, request.key, pool.name)
        found = self._scopes_of.get(who)
        if found is None:
            found = self._scopes_of[who] = tuple(self._make_scopes(*who))
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
