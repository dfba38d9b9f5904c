"""What may each tenant send, so that none of them, whatever it does, keeps the others from their budget?

A token bucket of rate r and burst b lets in at most b + r t tokens in any t seconds (Cruz 1991). A fair
queue serves a tenant that waits at its guaranteed rate g, its weight's share of the fleet's prefill, after a
latency T, if r is no more than g. Then no request of it waits longer than

    T + (b + largest request) / g

for its first token (Parekh and Gallager 1993, for packets that are not divided; Stiliadis and Varma 1998, for
any latency-rate server, of which start-time fair queueing is one: Goyal, Vin and Cheng 1996). Whoever must
have the first token within the TTFT budget D may therefore burst b = g (D - T) - largest.

Nobody gets less than its largest request, nor less prefill than its own planned requests need (`own_burst`):
it waits for that itself, and the bound, then above the budget, is told.

Who may send more than that share is guaranteed what the rates of all others leave, after their bursts: of a
server of rate C any tenant has C t less what the others' buckets let in (Cruz 1991), in whatever order.

All of it counts tokens as the gateway's queue does, prompt and output alike: while prompts are what is waited
for, a fleet passes at least its prefill rate of such tokens. A burst also needs places in batches. Some are
free while every tenant sends at its rate, for f of its tokens; beyond these, places come free at its own rate
r at least. So the time is that of the slower of the two, g or (b + largest - f) / r. Prefill is guaranteed
whatever all others do at once; places while the others do not burst at the same moment. T is what cannot be
interrupted: the prompts that a replica has, one request of each other tenant, a step, the way.

Sources: R. L. Cruz, "A calculus for network delay, part I" (IEEE Trans. Inf. Theory 37, 1991); A. K. Parekh
and R. G. Gallager, "A generalized processor sharing approach to flow control" (IEEE/ACM Trans. Networking 1,
1993); D. Stiliadis and A. Varma, "Latency-rate servers" (IEEE/ACM Trans. Networking 6, 1998).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor, inf

import msgspec

from tidegate.core.units import format_latency, format_number, format_ratio
from tidegate.plan.advice.own_burst import REFUSED_SHARE, beyond_the_rate, burst_needed, refused_ratio
from tidegate.plan.advice.senders import Fleet, Sender
from tidegate.plan.advised import Figure, TenantAdvice, rounded_down, rounded_up

MOST_BURST_S = 60.0
"""Of its rate, where no budget bounds a burst: the gateway's default."""


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """What the fair queue guarantees a tenant, in tokens."""

    latency_s: float
    """T."""
    prefill_per_s: float
    """g; inf where prompts take no time."""
    free_tokens: float
    """f: of requests that find a place at once."""
    sustained_per_s: float
    """r."""

    def bound_s(self, burst_tokens: float, largest_tokens: float) -> float:
        """No request of a burst waits longer for its first token."""
        sent = burst_tokens + largest_tokens
        return self.latency_s + max(sent / self.prefill_per_s, self._placed_s(sent))

    def waits_for_places(self, burst_tokens: float, largest_tokens: float) -> bool:
        """Whether that bound is of places, not of prefill."""
        sent = burst_tokens + largest_tokens
        return self._placed_s(sent) > sent / self.prefill_per_s

    def bursts_within(self, budget_s: float, largest_tokens: float) -> dict[str, float]:
        """The burst whose bound is the budget, by prefill and by places; below 0: not even none holds it."""
        left_s = budget_s - self.latency_s
        bursts = {"places": self.free_tokens + self.sustained_per_s * left_s - largest_tokens}
        if self.prefill_per_s < inf:
            bursts["prefill"] = self.prefill_per_s * left_s - largest_tokens
        return bursts

    def _placed_s(self, tokens: float) -> float:
        return max(0.0, tokens - self.free_tokens) / self.sustained_per_s


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """A burst in tokens, and what bounded it."""

    burst_tokens: float
    bound: str
    """prefill, places, largest, planned, opening or default."""
    service: Service
    within: float
    """The burst that the TTFT budget allows, or the default where there is none."""


def limits_of(fleet: Fleet, senders: Sequence[Sender]) -> dict[str, TenantAdvice]:
    """Of each tenant."""
    # What others hold up depends on their bursts, and those on that: the first guess is free of it.
    buckets = {each.tenant.name: _bucket(fleet, each, service_of(fleet, each, senders)) for each in senders}
    # Whose promise depends on the bursts of others comes after them.
    for each in sorted(senders, key=lambda each: _may_send_more(fleet, each)):
        others = [other for other in senders if other is not each]
        taken = sum(_replicas_held(fleet, other, buckets) for other in others)
        bursts = sum(buckets[other.tenant.name].burst_tokens for other in others)
        services = [service_of(fleet, each, senders, long_prompts=taken, bursts_tokens=bursts)]
        if 0 < taken < fleet.replicas and each.longest_prompt_tokens <= fleet.gate_tokens:
            services += _service_apart(fleet, each, senders, taken)
        buckets[each.tenant.name] = max(
            (_bucket(fleet, each, service) for service in services), key=_by_worth
        )
    return {each.tenant.name: _advice(fleet, each, buckets[each.tenant.name]) for each in senders}


def _replicas_held(fleet: Fleet, sender: Sender, buckets: dict[str, Bucket]) -> int:
    """Replicas that its prompts longer than the gate keep busy at once, each by itself.

    While one is computed, what came before it and its rate's part of that time were let in.
    """
    longest = sender.longest_prompt_tokens
    if longest <= fleet.gate_tokens:
        return 0
    hold_s = longest / fleet.prefill_tokens_per_s
    let_in = buckets[sender.tenant.name].burst_tokens + sender.tokens_per_s(fleet) * hold_s
    return max(1, floor(let_in / longest))


def service_of(
    fleet: Fleet,
    sender: Sender,
    senders: Sequence[Sender],
    *,
    long_prompts: int = 0,
    bursts_tokens: float = 0.0,
) -> Service:
    """What `sender` is guaranteed, with so many prompts of others that each need a replica by itself.

    They wait until one has emptied for them, and all wait with them; and they may have all replicas. One
    request is computed by one replica, however large its tenant's share of all of them is. `bursts_tokens`
    of all others are before it where it is not its share that it is guaranteed.
    """
    per_replica = fleet.prefill_tokens_per_s
    per_s, by_share = _guaranteed_per_s(fleet, sender, senders), fleet.replicas * per_replica * sender.share
    others = [each.longest_prompt_tokens for each in senders if each is not sender]
    # What stands before a tenant that is alone is its own, and in its burst.
    ahead_tokens = (1 + long_prompts) * fleet.gate_tokens if others else 0.0
    if long_prompts >= fleet.replicas:
        ahead_tokens = max(ahead_tokens, *others)
    alone_s = max(0.0, sender.largest_tokens / per_replica - sender.largest_tokens / per_s)
    waits_s = ahead_tokens / per_replica + sum(others) / (fleet.replicas * per_replica)
    if per_s > by_share:
        waits_s += bursts_tokens / per_s
    return Service(
        latency_s=waits_s + alone_s + fleet.step_s + fleet.delivery_s,
        prefill_per_s=per_s,
        free_tokens=fleet.free_places * sender.request_tokens,
        sustained_per_s=sender.tokens_per_s(fleet),
    )


def _guaranteed_per_s(fleet: Fleet, sender: Sender, senders: Sequence[Sender]) -> float:
    """g: its share; of who may send more than that, what is left by all others, who have limits too."""
    whole = fleet.replicas * fleet.prefill_tokens_per_s
    if not _may_send_more(fleet, sender):
        return whole * sender.share
    return max(
        whole * sender.share, whole - sum(each.tokens_per_s(fleet) for each in senders if each is not sender)
    )


def _may_send_more(fleet: Fleet, sender: Sender) -> bool:
    """Than its share of prefill."""
    return sender.tokens_per_s(fleet) > fleet.replicas * fleet.prefill_tokens_per_s * sender.share


def _service_apart(fleet: Fleet, sender: Sender, senders: Sequence[Sender], taken: int) -> Iterator[Service]:
    """The same if long prompts have `taken` replicas to themselves, and all others share the rest."""
    short = [each for each in senders if each.longest_prompt_tokens <= fleet.gate_tokens]
    weights = sum(each.share for each in short)
    alone = msgspec.structs.replace(
        fleet,
        replicas=fleet.replicas - taken,
        free_places=fleet.free_places * (1 - taken / fleet.replicas),
    )
    same = [msgspec.structs.replace(each, share=each.share / weights) for each in short]
    own = next(each for each in same if each.tenant is sender.tenant)
    if _may_send_more(alone, own):
        return
    service = service_of(alone, own, same)
    drains_s = taken * fleet.gate_tokens / fleet.prefill_tokens_per_s
    yield msgspec.structs.replace(service, latency_s=service.latency_s + drains_s)


def _by_worth(bucket: Bucket) -> tuple[float, float]:
    """Which of two services promises more: a longer burst within the budget, else less to wait for."""
    return bucket.within, -bucket.service.latency_s


def _bucket(fleet: Fleet, sender: Sender, service: Service) -> Bucket:
    """Prefill is its own share, and whoever asks for more of it waits; places it would take from others."""
    most = MOST_BURST_S * service.sustained_per_s
    if sender.ttft_s is not None:
        bounds = service.bursts_within(sender.ttft_s, sender.largest_tokens)
        within = min(bounds.values())
    else:
        bounds, within = {"default": most}, most
    # A bound for the worst that all can do at once is no reason to refuse what is planned.
    needed = burst_needed(sender.load(fleet), fleet.arrivals_cv2 + sender.tokens_cv2)
    # What is reserved too much at first takes nobody's place.
    unlearned_tokens = sender.unlearned_credits(fleet) / sender.credits(fleet) * sender.request_tokens
    needed_tokens = needed * sender.request_tokens + unlearned_tokens
    if "places" in bounds:
        # Nor does who finds a free place, where the budget may be lost before anything is sent.
        free_tokens = service.free_tokens - sender.largest_tokens
        bounds["places"] = max(bounds["places"], free_tokens) + unlearned_tokens
    if max(bounds.get("prefill", inf), sender.largest_tokens) < needed_tokens < inf:
        bounds["planned"] = min(needed_tokens, most)
        del bounds["prefill"]
    # Who begins with all others asks again as often as he is refused; all places are free then.
    opening_tokens = _opening(fleet, sender) * sender.request_tokens
    if min(bounds.values()) < opening_tokens:
        bounds = {"opening": min(opening_tokens, most)}
    bound = min(bounds, key=lambda name: bounds[name])
    if bounds[bound] < sender.largest_tokens:
        bounds["largest"], bound = sender.largest_tokens, "largest"
    return Bucket(burst_tokens=bounds[bound], bound=bound, service=service, within=within)


def _opening(fleet: Fleet, sender: Sender) -> float:
    """Requests that its users send beyond its rate, who begin at the same instant with a thought."""
    if fleet.users is None:
        return 0.0
    users = fleet.users * sender.tenant.load_share
    return beyond_the_rate(users, fleet.think_s, sender.credits_per_s / sender.credits(fleet))


def _advice(fleet: Fleet, sender: Sender, bucket: Bucket) -> TenantAdvice:
    service = bucket.service
    per_minute = rounded_down(60 * sender.credits_per_s, 4)
    per_token = sender.credits(fleet) / sender.request_tokens
    largest_credits = sender.largest_credits(fleet)
    # No part of a burst that a budget bounds is rounded up; no request is rounded away.
    burst_s = rounded_down(60 * bucket.burst_tokens * per_token / per_minute)
    if burst_s * per_minute / 60 < largest_credits:
        burst_s = rounded_up(60 * largest_credits / per_minute)
    burst_tokens = burst_s * per_minute / 60 / per_token
    bound_s = service.bound_s(burst_tokens, sender.largest_tokens)
    cv2, load = fleet.arrivals_cv2 + sender.tokens_cv2, sender.load(fleet)
    first_credits = burst_s * per_minute / 60 - sender.unlearned_credits(fleet)
    first_requests = max(0.0, first_credits / sender.credits(fleet))
    return TenantAdvice(
        weight=sender.tenant.weight,
        tokens_per_minute=Figure(
            value=per_minute, reason=_rate_reason(fleet, sender, service, per_minute / 60)
        ),
        burst_s=Figure(value=burst_s, reason=_burst_reason(fleet, sender, bucket, burst_tokens)),
        burst_tokens=burst_tokens,
        burst_within_budget_tokens=None if sender.ttft_s is None else max(0.0, bucket.within),
        guaranteed_tokens_per_s=(
            service.prefill_per_s if service.prefill_per_s < inf else service.sustained_per_s
        ),
        ttft_bound_s=Figure(value=bound_s, reason=_bound_reason(sender, service, burst_tokens)),
        holds_budget=None if sender.ttft_s is None else bound_s <= sender.ttft_s * (1 + 1e-9),
        refused_ratio=refused_ratio(load, burst_tokens / sender.request_tokens, cv2),
        refused_at_first_ratio=refused_ratio(load, first_requests, cv2),
    )


def _rate_reason(fleet: Fleet, sender: Sender, service: Service, credits_per_s: float) -> str:
    """What it may use, and what it is guaranteed."""
    ratio = sender.credits_per_s / (fleet.admitted_per_s * fleet.request_credits)
    may = (
        f"{format_ratio(ratio)} of the {format_number(fleet.admitted_per_s)} requests/s that may be admitted"
    )
    may = f"{may}: {format_number(credits_per_s)} credits/s"
    if sender.share == 1:
        return f"{may}."
    planned = sender.planned_credits_per_s(fleet)
    return f"{may}; {format_number(planned)} are planned, and {sender.shared}. {_guaranteed(service)}"


def _guaranteed(service: Service) -> str:
    if service.prefill_per_s < inf:
        kept, per_s = "prefill", service.prefill_per_s
    else:
        kept, per_s = "places", service.sustained_per_s
    return (
        f"Guaranteed, whatever the others do within their limits: {kept} of {format_number(per_s)} tokens/s."
    )


def _burst_reason(fleet: Fleet, sender: Sender, bucket: Bucket, burst_tokens: float) -> str:
    tokens, service = f"{format_number(burst_tokens)} tokens", bucket.service
    largest = f"{format_number(sender.largest_tokens)} tokens"
    if bucket.bound == "default":
        return f"{tokens}: {MOST_BURST_S:g} s of its rate; no TTFT budget bounds it."
    if bucket.bound == "largest":
        return f"{tokens}: its largest request, {largest}; with less that could never pass."
    if bucket.bound == "planned":
        within = format_number(max(0.0, bucket.within))
        return (
            f"{tokens}: its own planned requests need it, or more than {REFUSED_SHARE:.1%} of them would be "
            f"refused, from the first on; {within} are what the TTFT budget allows whatever all others do."
        )
    if bucket.bound == "opening":
        return f"{tokens}: its users may all begin in the same instant, whatever that does to TTFT."
    assert sender.ttft_s is not None
    left_s = format_latency(max(0.0, sender.ttft_s - service.latency_s))
    budget = format_latency(sender.ttft_s)
    if bucket.bound == "prefill":
        rate = f"its {format_number(service.prefill_per_s)} tokens/s of prefill compute"
    else:
        free = format_number(service.free_tokens)
        rate = f"{free} tokens in free places and {format_number(service.sustained_per_s)} tokens/s take"
    return (
        f"{tokens}: what {rate} in the {left_s} that are left of {budget} TTFT, less a request of {largest}."
    )


def _bound_reason(sender: Sender, service: Service, burst_tokens: float) -> str:
    latency = format_latency(service.latency_s)
    sent = f"({format_number(burst_tokens)} + {format_number(sender.largest_tokens)}"
    if service.waits_for_places(burst_tokens, sender.largest_tokens):
        free, per_s = format_number(service.free_tokens), format_number(service.sustained_per_s)
        rate = f" - {free}) tokens / {per_s} tokens/s"
    elif service.prefill_per_s < inf:
        rate = f") tokens / {format_number(service.prefill_per_s)} tokens/s"
    else:
        return f"{latency}: {sent}) tokens fit into free places; what prompts take is not known."
    return f"{latency} + {sent}{rate}, by network calculus (Parekh and Gallager 1993)."
