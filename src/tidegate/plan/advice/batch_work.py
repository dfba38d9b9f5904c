"""With which gates, queue and deadlines should batch work be served, for which nobody waits?

Everything is let in that keeps replicas at their gates, and nothing is given up before the deadline of all:
no first token is late, and a request that is refused or cut comes again and is paid for twice. Whoever sends
the work keeps a bounded number of requests open (`workers_of`), for a queue that held all of it would be
memory and nothing else. Tenants share what there is by their weights; limits would only slow them down.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import msgspec

from tidegate.core.units import format_number, format_span
from tidegate.plan.advice.advising import Basis, advised_on, basis_of
from tidegate.plan.advised import (
    Advice,
    BudgetAdvice,
    DeadlineAdvice,
    Figure,
    QueueAdvice,
    TenantAdvice,
)
from tidegate.plan.answer import Answer
from tidegate.plan.ask import Ask
from tidegate.plan.tenants import Tenant, classes_of

CLASS = "batch"
"""Of batch work that names no other."""
OPEN = 1.25
"""Requests that are kept open, over places behind the gates: the next one is there when a place is free."""
NOBODY = "Nobody waits for it."


def batch_ask(ask: Ask) -> Ask:
    """The question, of requests in a class of their own where the load names none."""
    kinds = (msgspec.structs.replace(kind, class_=kind.class_ or CLASS) for kind in ask.load.kinds)
    return msgspec.structs.replace(ask, load=msgspec.structs.replace(ask.load, kinds=tuple(kinds)))


def with_workers(ask: Ask, answer: Answer) -> Ask:
    """The same, of as many who always have a request open: for files and simulations."""
    ask = batch_ask(ask)
    load = msgspec.structs.replace(ask.load, requests_per_s=None, users=workers_of(answer), think_s=0.0)
    return msgspec.structs.replace(ask, load=load)


def workers_of(answer: Answer) -> int:
    """Requests that whoever sends the work keeps open, so that no replica goes empty."""
    return ceil(OPEN * answer.replicas * answer.concurrency_per_replica)


def advise_batch_work(ask: Ask, answer: Answer, tenants: Sequence[Tenant] = ()) -> Advice:
    """What the answer means for a configuration. Without `tenants`: those that the load names."""
    ask, within_s = batch_ask(ask), ask.terms.within_s
    assert within_s is not None
    basis = basis_of(ask, answer)
    open_gate = msgspec.structs.replace(
        basis.gate,
        max_prefill_tokens=Figure(value=None, reason=f"{NOBODY} Whatever fits may be in a replica's queue."),
    )
    basis = Basis(at=basis.at, gate=open_gate, weights=basis.weights)
    found = advised_on(ask, answer, basis, tenants)
    return msgspec.structs.replace(
        found,
        queue=_queue(ask, answer, within_s),
        tenants={name: _unlimited(each) for name, each in found.tenants.items()},
        deadlines=_deadlines(within_s),
        budgets=_budgets(found.budgets),
        degradation=(),
        warnings=(),
    )


def _queue(ask: Ask, answer: Answer, within_s: float) -> QueueAdvice:
    workers, places = workers_of(answer), answer.replicas * answer.concurrency_per_replica
    tokens = ask.load.prompt_tokens + ask.load.output_tokens
    whole = Figure(value=within_s, reason=f"{NOBODY} All of it has {format_span(within_s)}.")
    return QueueAdvice(
        max_requests=Figure(
            value=workers,
            reason=(
                f"Keep {workers:,} requests open, {format_number(OPEN)} x the {places:,} places behind the "
                "gates: no place is empty for want of one, and none is refused."
            ),
        ),
        max_tokens=Figure(
            value=ceil(workers * tokens),
            reason=f"The same at {format_number(tokens)} tokens each: fewer, if they are longer.",
        ),
        max_wait_s=dict.fromkeys(classes_of(ask.load), whole),
    )


def _unlimited(own: TenantAdvice) -> TenantAdvice:
    nothing = Figure(value=None, reason="Batch work is not limited: its weight is its share.")
    return msgspec.structs.replace(
        own,
        tokens_per_minute=nothing,
        burst_s=nothing,
        ttft_bound_s=Figure(value=None, reason=NOBODY),
        burst_within_budget_tokens=None,
        holds_budget=None,
        refused_ratio=0.0,
        refused_at_first_ratio=0.0,
    )


def _deadlines(within_s: float) -> DeadlineAdvice:
    last = Figure(
        value=within_s,
        reason="The deadline of all of it: what is cut before comes again, and is paid for twice.",
    )
    return DeadlineAdvice(ttft_s=last, total_s=last)


def _budgets(found: BudgetAdvice) -> BudgetAdvice:
    nothing = Figure(value=None, reason=NOBODY)
    return msgspec.structs.replace(found, queue_s=nothing, e2e_s=nothing)
