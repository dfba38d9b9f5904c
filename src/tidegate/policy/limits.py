"""Rate limits: may this request spend now, and if not, when?

Token buckets, metered in LLM tokens because GPU cost scales with tokens. What a request will cost is
unknown when it arrives, so its charge is *reserved* at arrival, *extended* as the stream outgrows
the reservation, and *settled* once at what was really used. Over several scopes (global, tenant, key,
pool, tenant x pool) a charge takes all or nothing.

Promises, per bucket and for any trailing window of `w` seconds: a `hard` limit admits at most
`rate x w + burst` credits, what comes back in the window deducted (so a long reservation that was not used
can be spent later, on top of a burst); a `learned` limit overshoots that by at most what was unreserved in
flight, and the overshoot is debt that is repaid before anything new is admitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import Final, NamedTuple

from tidegate.core.messages import Quota
from tidegate.core.reasons import Reason
from tidegate.policy.settings import MINUTE_S, LimitSettings, Metering, TokenWeights

ROUNDING_S: Final = 1e-9
"""A shorter wait is rounding of our own arithmetic, not a debt."""


class Weights:
    """What tokens cost in credits."""

    def __init__(self, settings: TokenWeights) -> None:
        self.input: Final[float] = settings.input
        self.cached_input: Final[float] = settings.cached_input
        self.output: Final[float] = settings.output

    def cost(self, prompt_tokens: int, cached_tokens: int, output_tokens: int) -> float:
        """Credits for a usage; `cached_tokens` are some of `prompt_tokens`."""
        cached = min(cached_tokens, prompt_tokens)
        fresh = prompt_tokens - cached
        return fresh * self.input + cached * self.cached_input + output_tokens * self.output


class Estimate:
    """Credits that a request may cost, from the surest to the most that it can."""

    __slots__ = ("bound", "certain", "likely")

    def __init__(self, certain: float, likely: float, bound: float) -> None:
        self.certain: Final = certain
        """Lower bound: no tokeniser could make it less."""
        self.likely: Final = likely
        """What a learned scope reserves."""
        self.bound: Final = bound
        """What a hard scope reserves; inf where nothing bounds the output. For hard scopes only."""


@dataclass(slots=True)
class Bucket:
    """A token bucket kept as one instant, the generic cell rate algorithm.

    Refill is continuous: no window edges, and a poll between two refills throws nothing away.
    Source: ITU-T I.371, virtual scheduling algorithm.
    """

    rate_per_s: float
    burst: float  # credits
    full_at: float = 0.0  # when the bucket is full again; past means full now

    def fits(self, now: float, cost: float) -> bool:
        """Whether `cost` credits are there now."""
        return cost <= self.burst and self.full_at - now + (cost - self.burst) / self.rate_per_s <= ROUNDING_S

    def wait_s(self, now: float, cost: float) -> float:
        """Seconds until `cost` credits fit; 0 now, inf never."""
        if cost > self.burst:
            return inf
        return 0.0 if self.fits(now, cost) else self.full_at - now + (cost - self.burst) / self.rate_per_s

    def take(self, now: float, cost: float) -> None:
        """Take `cost` credits whether they are there or not; what is not there becomes debt."""
        full_at = self.full_at
        self.full_at = (full_at if full_at > now else now) + cost / self.rate_per_s

    def give_back(self, cost: float) -> None:
        """Return credits taken before. The bucket never holds more than its burst."""
        self.full_at -= cost / self.rate_per_s

    def available(self, now: float) -> float:
        """Credits there now; negative is debt."""
        missing_s = self.full_at - now
        return self.burst - missing_s * self.rate_per_s if missing_s > 0 else self.burst


@dataclass(slots=True)
class Scope:
    """One place where limits apply, such as a tenant: its buckets and how many requests it has open."""

    name: str
    settings: LimitSettings
    requests: Bucket | None = None
    tokens: Bucket | None = None
    in_flight: int = 0
    hard: bool = False  # metering
    max_in_flight: int | None = None

    @classmethod
    def of(cls, name: str, settings: LimitSettings) -> Scope:
        """A scope with full buckets."""
        return cls(
            name=name,
            settings=settings,
            requests=_bucket(settings.requests_per_minute, settings.burst_s),
            tokens=_bucket(settings.tokens_per_minute, settings.burst_s),
            hard=settings.metering is Metering.HARD,
            max_in_flight=settings.max_in_flight,
        )

    def reservation(self, estimate: Estimate) -> float:
        """Credits to reserve here. More than the burst could never be admitted: the rest becomes debt.

        A hard scope has no debt to fall back on, so there the bound stands as it is.
        """
        if self.hard:
            return estimate.bound
        likely, tokens = estimate.likely, self.tokens
        return tokens.burst if tokens is not None and likely > tokens.burst else likely

    # Every request passes these two in each of its scopes: what its buckets would be asked is written out.

    def offer(self, now: float, estimate: Estimate) -> float | None:
        """Credits to reserve for one more request, if it fits now; None if not: `_denial` says why."""
        reservation = self.reservation(estimate)
        bucket = self.tokens
        if bucket is not None:
            over = reservation - bucket.burst
            if over > 0 or bucket.full_at - now + over / bucket.rate_per_s > ROUNDING_S:
                return None
            if estimate.certain > bucket.burst:
                return None
        bucket = self.requests
        if bucket is not None and bucket.full_at - now + (1 - bucket.burst) / bucket.rate_per_s > ROUNDING_S:
            return None
        most = self.max_in_flight
        return reservation if most is None or self.in_flight < most else None

    def take(self, now: float, reservation: float) -> None:
        """One more request, with that reservation."""
        self.in_flight += 1
        bucket = self.requests
        if bucket is not None:
            bucket.full_at = (bucket.full_at if bucket.full_at > now else now) + 1 / bucket.rate_per_s
        bucket = self.tokens
        if bucket is not None:
            full_at = bucket.full_at if bucket.full_at > now else now
            bucket.full_at = full_at + reservation / bucket.rate_per_s


def _bucket(per_minute: float | None, burst_s: float) -> Bucket | None:
    if per_minute is None:
        return None
    rate_per_s = per_minute / MINUTE_S
    return Bucket(rate_per_s=rate_per_s, burst=max(rate_per_s * burst_s, 1.0))


class Denial(NamedTuple):
    """Why a charge was not taken: the scope that is tightest, and the wait it needs (inf: never)."""

    reason: Reason
    scope: str
    retry_after_s: float
    detail: str


class Charge:
    """What one logical request has reserved in each of its scopes; retries and hedges share it."""

    __slots__ = ("reserved", "scopes", "settled")

    def __init__(self, scopes: tuple[Scope, ...], reserved: list[float]) -> None:
        self.settled: bool = False
        self.scopes = scopes
        self.reserved = reserved

    def extend(self, now: float, credits: float) -> None:
        """The request has already cost `credits`: reserve the difference where less was reserved."""
        for index, scope in enumerate(self.scopes):
            more = credits - self.reserved[index]
            if more > 0 and scope.tokens is not None:
                scope.tokens.take(now, more)
                self.reserved[index] = credits

    def void(self) -> None:
        """The request was refused after all: return everything, its place among the requests too."""
        assert not self.settled, "a charge is settled once"
        self.settled = True
        for scope, reserved in zip(self.scopes, self.reserved, strict=True):
            scope.in_flight -= 1
            if scope.requests is not None:
                scope.requests.give_back(1)
            if scope.tokens is not None:
                scope.tokens.give_back(reserved)

    def settle(self, now: float, credits: float) -> None:
        """The request cost `credits` in all. Every ending of what was let in calls this once."""
        assert not self.settled, "a charge is settled once"
        self.settled = True
        for index, scope in enumerate(self.scopes):
            scope.in_flight -= 1
            bucket = scope.tokens
            if bucket is None:
                continue
            reserved = self.reserved[index]
            if credits > reserved:
                bucket.take(now, credits - reserved)
            else:
                bucket.full_at -= (reserved - credits) / bucket.rate_per_s


def admit(now: float, scopes: tuple[Scope, ...], estimate: Estimate) -> Charge | Denial:
    """Take one request and its reservation in every scope, or nothing in any."""
    reserved: list[float] = []
    for scope in scopes:
        reservation = scope.offer(now, estimate)
        if reservation is None:
            denials = [_denial(now, each, estimate) for each in scopes]
            return max((each for each in denials if each is not None), key=lambda each: each.retry_after_s)
        reserved.append(reservation)
    for index, scope in enumerate(scopes):
        scope.take(now, reserved[index])
    return Charge(scopes, reserved)


def _denial(now: float, scope: Scope, estimate: Estimate) -> Denial | None:
    """Why a scope does not let a request in; None if it does."""
    settings, reservation = scope.settings, scope.reservation(estimate)
    if scope.tokens is not None:
        wait_s = scope.tokens.wait_s(now, reservation)
        if wait_s == inf or estimate.certain > scope.tokens.burst:
            return _never_fits(scope, max(estimate.certain, reservation))
        if wait_s > 0:
            return Denial(
                Reason.TOKEN_QUOTA,
                scope.name,
                wait_s,
                f"{scope.name} may spend {settings.tokens_per_minute:g} tokens a minute and this request "
                f"needs {ceil(reservation)}; they are there in {wait_s:.1f} s",
            )
    if scope.requests is not None:
        wait_s = scope.requests.wait_s(now, 1)
        if wait_s > 0:
            return Denial(
                Reason.REQUEST_QUOTA,
                scope.name,
                wait_s,
                f"{scope.name} may send {settings.requests_per_minute:g} requests a minute; "
                f"the next fits in {wait_s:.1f} s",
            )
    if scope.max_in_flight is not None and scope.in_flight >= scope.max_in_flight:
        return Denial(
            Reason.CONCURRENCY_QUOTA,
            scope.name,
            1.0,
            f"{scope.name} may have {scope.max_in_flight} requests in flight, and has",
        )
    return None


def _never_fits(scope: Scope, cost: float) -> Denial:
    assert scope.tokens is not None
    needs = "an unbounded number of" if cost == inf else str(ceil(cost))
    return Denial(
        Reason.NEVER_FITS,
        scope.name,
        inf,
        f"this request needs {needs} tokens and {scope.name} may never hold more than "
        f"{scope.tokens.burst:.0f} at once; send a shorter prompt or a smaller max_tokens",
    )


def quota(now: float, scopes: tuple[Scope, ...]) -> Quota | None:
    """What is left in the tightest request bucket and the tightest token bucket; None without limits."""
    requests = tokens = None
    requests_left = tokens_left = inf
    for scope in scopes:
        bucket = scope.requests
        if bucket is not None and (left := bucket.available(now)) < requests_left:
            requests, requests_left = bucket, left
        bucket = scope.tokens
        if bucket is not None and (left := bucket.available(now)) < tokens_left:
            tokens, tokens_left = bucket, left
    if requests is None and tokens is None:
        return None
    return Quota(
        None if requests is None else int(requests.burst),
        None if requests is None else _whole(requests_left),
        None if requests is None else max(0.0, requests.full_at - now),
        None if tokens is None else int(tokens.burst),
        None if tokens is None else _whole(tokens_left),
        None if tokens is None else max(0.0, tokens.full_at - now),
    )


def _whole(left: float) -> int:
    return int(left + 1e-6) if left > 0 else 0
