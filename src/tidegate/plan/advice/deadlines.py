"""Where may the time of a request go, and when is it given up?

A budget is held by a share q of requests; a deadline ends those for which all is lost. It stands where only
one request in a thousand still is, if the tail falls off as an exponential does: at ln(0.001) / ln(1 - q)
times the budget, 2.3 times for 95 %. What may be waited is what a deadline leaves after the prompt is
computed and its token delivered.
"""

from __future__ import annotations

from math import isfinite, log

import msgspec

from tidegate.core.units import format_latency, format_number
from tidegate.plan.advice.operating import Operating
from tidegate.plan.advised import BudgetAdvice, DeadlineAdvice, Figure, rounded_down, rounded_up
from tidegate.plan.answer import Answer
from tidegate.plan.ask import Ask
from tidegate.policy.settings import ClassSettings, Deadlines

CUT_SHARE = 0.001
"""Of requests, 0..1, that a deadline may cut while all is well."""
SLACK = 2.0
"""A stream that takes so many times as long as planned is given up."""
LEAST_WAIT_S = 0.1
"""A queue that nobody may wait in would refuse whenever two requests come at once."""


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """What waits, deadlines and budgets are."""

    budgets: BudgetAdvice
    deadlines: DeadlineAdvice
    max_wait_s: Figure


def tail_ratio(share: float) -> float:
    """A deadline over the budget that `share` of requests hold, 0.5..1."""
    return max(1.0, log(CUT_SHARE) / log(1.0 - share))


def times_of(ask: Ask, answer: Answer, at: Operating, delivery_s: float) -> Times:
    """Of the one class that is planned for."""
    share = ask.terms.percentile
    ratio, budget = tail_ratio(share), ask.terms.budgets
    # Where more comes than is served no pace is known but that of a full batch.
    planned_s = answer.tpot_s.p99 if isfinite(answer.tpot_s.p99) else at.token_s
    pace_s = budget.tpot_s or max(planned_s, at.token_s)
    streamed_s = (max(kind.output_tokens for kind in ask.load.kinds) - 1) * pace_s
    tail = f"{format_number(ratio)} x the budget, beyond which 1 in 1,000 is while {100 * share:g} % hold it"
    if budget.ttft_s is not None:
        least_s, reason = ratio * budget.ttft_s, f"TTFT: {tail}."
    elif budget.e2e_s is not None:
        least_s, reason = ratio * budget.e2e_s - streamed_s, f"What streaming leaves of E2E, {tail}."
    else:
        least_s, reason = Deadlines().ttft_s, "The default: there is no TTFT or E2E budget."
    begun_s = at.full_step_s + delivery_s
    wait = _wait(ask, least_s, at.mean_prefill_s + begun_s)
    longest_s = float(wait.value or 0.0) + at.longest_prefill_s + begun_s
    if longest_s > least_s * (1 + 1e-6):
        least_s, reason = (
            longest_s,
            "The longest wait, and then the longest prompt: with less it never passed.",
        )
    ttft = Figure(value=rounded_up(least_s), reason=reason)
    return Times(
        budgets=_split(ask, at, delivery_s, pace_s),
        deadlines=DeadlineAdvice(ttft_s=ttft, total_s=_total(ask, float(ttft.value or 0), streamed_s, ratio)),
        max_wait_s=wait,
    )


def _total(ask: Ask, ttft_s: float, streamed_s: float, ratio: float) -> Figure:
    slow_s = ttft_s + SLACK * streamed_s
    e2e_s = ask.terms.budgets.e2e_s
    if e2e_s is not None and ratio * e2e_s >= slow_s:
        return Figure(value=rounded_up(ratio * e2e_s), reason=f"E2E: {format_number(ratio)} x the budget.")
    return Figure(
        value=rounded_up(slow_s),
        reason=f"The TTFT deadline, and the longest answer at {1 / SLACK:g} x the planned pace.",
    )


def _wait(ask: Ask, ttft_s: float, computed_s: float) -> Figure:
    budget = ask.terms.budgets
    if budget.ttft_s is None and budget.e2e_s is None:
        return Figure(value=ClassSettings().max_wait_s, reason="The default: there is no TTFT or E2E budget.")
    return Figure(
        value=max(LEAST_WAIT_S, rounded_down(ttft_s - computed_s, 4)),
        reason=(
            f"{format_latency(ttft_s)}, where a TTFT is lost, less {format_latency(computed_s)} to compute "
            "and deliver the mean prompt."
        ),
    )


def _split(ask: Ask, at: Operating, delivery_s: float, pace_s: float) -> BudgetAdvice:
    budget = ask.terms.budgets
    tail_s, known = at.tail_prefill_s, at.prefill_tokens_per_s is not None
    output = max(kind.output_tokens for kind in ask.load.kinds)
    computed = f"{format_latency(tail_s)} of prefill beside a full batch" if known else "no prefill"
    left = None if budget.ttft_s is None else max(0.0, budget.ttft_s - tail_s - at.full_step_s - delivery_s)
    queue = Figure(
        value=left,
        reason=(
            f"What {computed}, a step of {format_latency(at.full_step_s)} that is under way, and delivery "
            "leave of TTFT."
            if left is not None
            else "There is no TTFT budget."
        ),
    )
    prefill = Figure(
        value=tail_s if known else None,
        reason=f"The P{100 * ask.terms.percentile:g} prompt beside a full batch."
        if known
        else "Nothing is known of prompts.",
    )
    pace = "The budget." if budget.tpot_s else "No budget: the slowest that is planned."
    e2e_s = budget.e2e_s
    whole = (budget.ttft_s or 0.0) + (output - 1) * pace_s
    return BudgetAdvice(
        queue_s=queue,
        prefill_s=prefill,
        delivery_s=Figure(value=delivery_s, reason="Gateway to engine and back."),
        tpot_s=Figure(value=pace_s, reason=pace),
        e2e_s=Figure(
            value=whole if e2e_s is None else e2e_s,
            reason="The budget." if e2e_s else "TTFT, and the longest answer at that pace.",
        ),
    )
