"""With which limits, queues and gates should a plan be served, and why?

`advise` makes every figure of a configuration from what was asked and answered, each with its reason. It
assumes what the answer does, and promises what `limits` says: no tenant that keeps to its own limits waits
longer than its bound, whatever the others do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil, floor, inf, isfinite

import msgspec

from tidegate.core.units import format_latency, format_number, format_ratio
from tidegate.plan.advice.deadlines import times_of
from tidegate.plan.advice.ladder import ladder
from tidegate.plan.advice.limits import limits_of
from tidegate.plan.advice.marginal import token_seconds
from tidegate.plan.advice.operating import Batch, Operating, operating_point
from tidegate.plan.advice.senders import Fleet, senders_of
from tidegate.plan.advice.shares import ABOVE_PLAN, shared_out
from tidegate.plan.advised import (
    Advice,
    Choice,
    DeadlineAdvice,
    Figure,
    GateAdvice,
    PredictionAdvice,
    QueueAdvice,
    TenantAdvice,
    WeightAdvice,
    rounded_up,
)
from tidegate.plan.answer import Answer
from tidegate.plan.ask import Ask, HandFigures, Replica
from tidegate.plan.tenants import DEFAULT, Tenant, classes_of, tenants_of
from tidegate.policy.settings import RoutingPolicy

DELIVERY_S = 0.001
"""Gateway to engine and back, where nothing else is known: the simulator's default."""
STEPS_AHEAD = 2
"""Steps' worth of prompts that a replica is given: one is computed, the next is there when it ends."""
MOST_ADMITTED = 0.9
"""Of what the fleet sustains: at all of it every burst would wait."""
FEW_REFUSED = 0.01
"""Of planned requests: more is worth a word."""
FEW_HITS = 0.01
"""A prefix hit ratio below which no prompt is worth steering."""


class Basis(msgspec.Struct, frozen=True, kw_only=True):
    """What replicas do at their gates, and what tokens cost there."""

    at: Operating
    gate: GateAdvice
    weights: WeightAdvice


def advise(ask: Ask, answer: Answer, tenants: Sequence[Tenant] = ()) -> Advice:
    """What the answer means for a configuration. Without `tenants`: those that the load names."""
    return advised_on(ask, answer, basis_of(ask, answer), tenants)


def basis_of(ask: Ask, answer: Answer) -> Basis:
    """Of replicas that do both."""
    at = operating_point(ask, answer)
    return Basis(at=at, gate=_gate(ask, answer, at), weights=_weights(ask, answer))


def advised_on(ask: Ask, answer: Answer, basis: Basis, tenants: Sequence[Tenant] = ()) -> Advice:
    """The same, of replicas that do what `basis` says."""
    tenants, at = tenants or tenants_of(ask.load, {}), basis.at
    times = times_of(ask, answer, at, DELIVERY_S)
    by_class = dict.fromkeys(classes_of(ask.load), times)
    if ask.terms.classes:
        by_class = {name: times_of(_of(ask, name), answer, at, DELIVERY_S) for name in by_class}
    limits = _limits(ask, answer, basis, tenants)
    queue = _queue(answer, at, {name: each.max_wait_s for name, each in by_class.items()})
    return Advice(
        gate=basis.gate,
        queue=queue,
        tenants=limits,
        weights=basis.weights,
        budgets=times.budgets,
        deadlines=_latest([each.deadlines for each in by_class.values()]),
        prediction=_prediction(tenants),
        degradation=ladder(ask.load, answer, at, float(queue.max_requests.value or 1)),
        routing=_routing(ask, answer),
        warnings=tuple(_warnings(ask, limits, tenants)),
    )


def _of(ask: Ask, name: str) -> Ask:
    """As if the budgets of a class were those of all."""
    terms = msgspec.structs.replace(ask.terms, budgets=ask.terms.budgets_of(name), classes=())
    return msgspec.structs.replace(ask, terms=terms)


def _latest(deadlines: Sequence[DeadlineAdvice]) -> DeadlineAdvice:
    """A pool has one of each for all classes: that of the class that may take longest."""

    def last(figures: Iterable[Figure]) -> Figure:
        return max(figures, key=lambda each: each.value or 0.0)

    return DeadlineAdvice(
        ttft_s=last(each.ttft_s for each in deadlines), total_s=last(each.total_s for each in deadlines)
    )


def admitted_per_s(ask: Ask, answer: Answer) -> float:
    """Requests per second that limits let in: by the target utilisation, and with the spare ones lost.

    More where more is planned, with a little above it; never so much that no burst finds a place.
    """
    per_s = answer.requests_per_s_per_replica
    all_per_s, serving_per_s = answer.replicas * per_s, (answer.replicas - answer.spare_replicas) * per_s
    target_per_s = min(ask.terms.target_utilisation * all_per_s, serving_per_s)
    return max(target_per_s, min(ABOVE_PLAN * answer.requests_per_s, MOST_ADMITTED * all_per_s))


def _gate(ask: Ask, answer: Answer, at: Operating) -> GateAdvice:
    concurrency = Figure(
        value=answer.concurrency_per_replica,
        reason="The least of the KV, batch and TPOT gates; the rest waits where it can still be reordered.",
    )
    if isinstance(ask.replica, HandFigures):
        nothing = Figure(value=None, reason="Two figures say nothing of it: what the engine tells.")
        return GateAdvice(max_concurrency=concurrency, kv_tokens=nothing, max_prefill_tokens=nothing)
    return GateAdvice(
        max_concurrency=concurrency,
        kv_tokens=kv_gate(ask, ask.replica, answer),
        max_prefill_tokens=prefill_gate(ask, at),
    )


def kv_gate(ask: Ask, replica: Replica, answer: Answer) -> Figure:
    """The gateway counts tokens, the engine whole blocks; and what is shared the engine holds once."""
    engine, load = replica.engine, ask.load
    lost = answer.concurrency_per_replica * (engine.block_tokens - 1)
    held = (1 - load.prefix_hit_ratio) * load.prompt_tokens + load.output_tokens
    counted = (load.prompt_tokens + load.output_tokens) / held
    tokens = max(floor((engine.kv_tokens - lost) * counted), ceil(load.longest_tokens))
    reason = (
        f"{format_number(engine.kv_tokens)} in the cache, less {format_number(lost)} that as many requests "
        f"leave unused in blocks of {engine.block_tokens}"
    )
    if counted > 1:
        reason += f"; {format_number(counted)} x as many, for prefixes are held once and counted each time"
    return Figure(value=tokens, reason=f"{reason}.")


def prefill_gate(ask: Ask, at: Operating) -> Figure:
    """Prompt tokens that a replica is given before it has computed them."""
    assert at.chunk_tokens is not None
    assert at.prefill_tokens_per_s is not None
    tokens, budget_s = STEPS_AHEAD * at.chunk_tokens, ask.terms.budgets.ttft_s
    reason = "One step's prompt tokens, and the next one's, so that no step goes empty"
    if budget_s is not None and at.prefill_tokens_per_s * budget_s / 2 < tokens:
        tokens = max(at.chunk_tokens, at.prefill_tokens_per_s * budget_s / 2)
        reason = f"What is computed in half of the TTFT budget ({format_latency(budget_s)}), or in one step"
    took = format_latency(tokens / at.prefill_tokens_per_s)
    return Figure(value=floor(tokens), reason=f"{reason}: {took} at the most that a prompt finds before it.")


def _queue(answer: Answer, at: Operating, waits: dict[str, Figure]) -> QueueAdvice:
    serving = answer.replicas - answer.spare_replicas
    per_s = serving * at.sustained_per_s
    wait_s = max(float(each.value or 0.0) for each in waits.values())
    requests = max(1, floor(per_s * wait_s))
    rate = f"{format_number(per_s)} requests/s" + (" without the spare ones" if answer.spare_replicas else "")
    return QueueAdvice(
        max_requests=Figure(
            value=requests,
            reason=f"{rate} x {format_latency(wait_s)}: further back nobody meets the deadline.",
        ),
        max_tokens=Figure(
            value=ceil(requests * at.request_tokens),
            reason=f"The same at {format_number(at.request_tokens)} tokens each: fewer, if they are longer.",
        ),
        max_wait_s=waits,
    )


def _prediction(tenants: Sequence[Tenant]) -> PredictionAdvice:
    """Too low a guess would let the first burst of a tenant in several times over."""
    most = max(tenants, key=lambda tenant: tenant.output_tokens)
    who = f" of {most.name}, whose are the longest" if len(tenants) > 1 else ""
    return PredictionAdvice(
        output_tokens=Figure(
            value=ceil(most.output_tokens),
            reason=f"The mean answer{who}; each tenant's own is learned. Less lets in too much at first.",
        )
    )


def _weights(ask: Ask, answer: Answer) -> WeightAdvice:
    if isinstance(ask.replica, HandFigures):
        plain = Figure(value=1.0, reason="As the engine counts: two figures do not tell tokens apart.")
        return WeightAdvice(input=plain, cached_input=plain, output=plain)
    batch = Batch(ask.replica.engine, ask.load, answer.concurrency_per_replica)
    seconds = token_seconds(batch, ask.load)
    unit_s = max(seconds.input_s, seconds.output_s / 1000)

    def weight(seconds_each: float, what: str) -> Figure:
        value = float(f"{seconds_each / unit_s:.3g}")
        return Figure(value=value, reason=f"{format_latency(seconds_each)} of a replica: {what}.")

    return WeightAdvice(
        input=weight(unit_s, "computed once, and read by each output token after it"),
        cached_input=weight(seconds.cached_input_s, "not computed, and read all the same"),
        output=weight(seconds.output_s, f"one of {batch.sequences} places for a step"),
    )


def _limits(ask: Ask, answer: Answer, basis: Basis, tenants: Sequence[Tenant]) -> dict[str, TenantAdvice]:
    at, gate, weights = basis.at, basis.gate, basis.weights
    serving, admitted = answer.replicas - answer.spare_replicas, admitted_per_s(ask, answer)
    met = answer.going_on
    fleet = Fleet(
        replicas=serving,
        prefill_tokens_per_s=at.prefill_tokens_per_s or inf,
        admitted_per_s=admitted,
        request_credits=0.0,
        free_places=max(0.0, answer.replicas - admitted / at.sustained_per_s) * at.sequences,
        gate_tokens=float(gate.max_prefill_tokens.value or 0.0),
        step_s=at.full_step_s,
        delivery_s=DELIVERY_S,
        credits=(
            float(weights.input.value or 0),
            float(weights.cached_input.value or 0),
            float(weights.output.value or 0),
        ),
        hit_ratio=ask.load.prefix_hit_ratio,
        first_output_tokens=max(tenant.output_tokens for tenant in tenants),
        arrivals_cv2=ask.load.gap_cv**2,
        ttft_mean_s=met.ttft_s.mean if isfinite(met.ttft_s.mean) else 0.0,
        tpot_mean_s=met.tpot_s.mean if isfinite(met.tpot_s.mean) else at.step_s,
        users=ask.load.users,
        think_s=ask.load.think_s,
    )
    rate = answer.requests_per_s
    everybody = senders_of([Tenant(kinds=ask.load.kinds)], rate)[0]
    fleet = msgspec.structs.replace(fleet, request_credits=everybody.credits(fleet))
    senders = [
        msgspec.structs.replace(each, ttft_s=tightest_ttft_s(ask, each.tenant))
        for each in shared_out(fleet, senders_of(tenants, rate))
    ]
    return limits_of(fleet, senders)


def tightest_ttft_s(ask: Ask, tenant: Tenant) -> float | None:
    """The least TTFT budget of the classes that a tenant asks in; None: none of them has one."""
    names = {kind.class_ or DEFAULT for kind in tenant.kinds}
    own = [ask.terms.budgets_of(name).ttft_s for name in sorted(names)]
    return min((each for each in own if each is not None), default=None)


def _routing(ask: Ask, answer: Answer) -> Choice:
    hits = ask.load.prefix_hit_ratio
    if hits >= FEW_HITS and answer.replicas > 1:
        return Choice(
            value=RoutingPolicy.PREFIX_AFFINITY.value,
            reason=(
                f"{format_ratio(hits)} of prompt tokens are planned to come from the cache: a prompt must go "
                "where its beginning is, or each replica finds its share of them only."
            ),
        )
    reason = "Lengths differ, and a replica is as busy as the tokens that it holds; no prefixes are shared."
    if answer.replicas == 1:
        reason = "There is one replica: any policy does the same."
    return Choice(value=RoutingPolicy.LEAST_TOKENS.value, reason=reason)


def _warnings(ask: Ask, limits: dict[str, TenantAdvice], tenants: Sequence[Tenant]) -> Iterator[str]:
    budget = ask.terms.budgets
    budgets_s = {each.name: tightest_ttft_s(ask, each) or 0.0 for each in tenants}
    for name, each in limits.items():
        if each.holds_budget is False:
            bound_s, budget_s = each.ttft_bound_s.value or 0.0, budgets_s[name]
            yield (
                f"tenant {name}: if it and all others send all they may at once, its TTFT may reach "
                f"{format_latency(bound_s)}, and the budget is {format_latency(budget_s)}. Shorter prompts, "
                "a larger share or more replicas lower that bound."
            )
        if each.refused_ratio > FEW_REFUSED:
            yield (
                f"tenant {name}: about {format_ratio(each.refused_ratio)} of its planned requests will find "
                "its bucket empty: its rate, or the places that are free for a burst of it, are too few. A "
                "larger weight or more replicas let more of them in."
            )
        elif each.refused_at_first_ratio > FEW_REFUSED:
            yield (
                f"tenant {name}: about {format_ratio(each.refused_at_first_ratio)} of its planned requests "
                "will find its bucket empty at first, while as much is reserved for its answers as for the "
                "longest; some hundred requests later its own are learned."
            )
    if len(classes_of(ask.load)) > 1:
        yield (
            "bounds are those of the highest class: what waits in a lower one is guaranteed no more than its "
            "guaranteed_share, beside the tenants of its class."
        )
    output = max(kind.output_tokens for kind in ask.load.kinds)
    if budget.e2e_s is not None and budget.ttft_s is not None and budget.tpot_s is not None:
        sum_s = budget.ttft_s + (output - 1) * budget.tpot_s
        if sum_s > budget.e2e_s:
            yield (
                f"TTFT and TPOT budgets allow the longest answer {format_latency(rounded_up(sum_s))}, and "
                f"E2E is {format_latency(budget.e2e_s)}: a request may hold both and miss it."
            )
