"""What does a run say in figures, and what do the runs of several seeds say together?

Latencies and ratios are of the requests that arrived within the window, which begins where warm-up ends and
ends with the last arrival that is no client's retry; rates are of what ended within it, so that neither the
filling nor the draining of the fleet weighs in. Latencies are of answered requests only, as everywhere in
tidegate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan, nan

import msgspec
import numpy as np

from tidegate.core.records import Budgets
from tidegate.simulate.columns import (
    ANSWERED,
    REASONS,
    Columns,
    Mask,
    Rows,
    e2e_s,
    held,
    ok,
    queued_s,
    tpot_s,
    ttft_s,
)
from tidegate.simulate.fairness import jain_index
from tidegate.simulate.intervals import (
    Estimate,
    Spread,
    estimate_over,
    mean_within,
    spread_over,
    spread_within,
)
from tidegate.simulate.spectrum import Values

MOST_TENANTS = 100
"""Tenants with figures of their own: those with the most requests."""
SLICES = 256
"""Equal parts of the window; what the interval of a rate within a run rests on."""


class Window(msgspec.Struct, frozen=True):
    """Seconds from the start of the run."""

    from_s: float
    until_s: float

    @property
    def span_s(self) -> float:
        """Its length."""
        return self.until_s - self.from_s

    def holds(self, instants: Values) -> Mask:
        """Which of them lie within it, both ends included."""
        within: Mask = (instants >= self.from_s) & (instants <= self.until_s)
        return within


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """All requests, or those of a tenant, of a class, of a pool."""

    requests: int
    ok: int
    """Answered by an engine, to the natural end."""
    reasons: dict[str, int]
    """Why the others were refused or cut, or with which status an engine failed; the most frequent first."""
    goodput_ratio: Estimate
    """Requests that held every budget of their class, over all requests; 0..1."""
    goodput_per_s: Estimate
    offered_per_s: Estimate
    answered_per_s: Estimate
    prompt_tokens_per_s: Estimate
    """Of answered requests, as the next."""
    output_tokens_per_s: Estimate
    token_share: Estimate
    """Of all prompt and output tokens that were served; 0..1."""
    ttft_s: Spread
    tpot_s: Spread
    e2e_s: Spread
    queued_s: Spread
    """In the gateway, to the last dispatch."""

    @property
    def refused_ratio(self) -> float:
        """Requests that were refused or cut, over all; nan without any."""
        return (self.requests - self.ok) / self.requests if self.requests else nan


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One run, or the runs of several seeds."""

    total: Group
    classes: dict[str, Group]
    """Of those that asked for anything, by name; the highest first."""
    tenants: dict[str, Group]
    """The `MOST_TENANTS` with the most requests, by name."""
    pools: dict[str, Group]
    fairness: Estimate
    """Jain's index over all tenants, of tokens served to their fair share of them; 1 is fair."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What requests are judged by."""

    budgets: dict[str, Budgets]
    """By class, the highest first."""
    weights: dict[str, float]
    """By tenant; 1 for one that is not there."""


def measure(columns: Columns, window: Window, terms: Terms) -> Figures:
    """The figures of one run."""
    rows = columns.rows()
    classes = columns.names("priority")
    good = np.zeros(len(rows), np.bool_)
    for number, name in enumerate(classes):
        good |= (rows["priority"] == number) & held(rows, terms.budgets.get(name, Budgets()))
    served = float(_tokens(rows)[window.holds(rows["ended_at"]) & ok(rows)].sum())

    def groups(field: str, names: Sequence[str]) -> dict[str, Group]:
        numbers = {name: number for number, name in enumerate(columns.names(field))}
        found = {}
        for name in names:
            if name in numbers:
                own = rows[field] == numbers[name]
                found[name] = _group(rows[own], good[own], window, served)
        return found

    order = [*terms.budgets, *(name for name in classes if name not in terms.budgets)]
    return Figures(
        total=_group(rows, good, window, served),
        classes=groups("priority", order),
        tenants=groups("tenant", _largest(columns, rows)),
        pools=groups("pool", sorted(columns.names("pool"))),
        fairness=Estimate(_fairness(columns, rows, window, terms.weights)),
    )


def figures_over(runs: Sequence[Figures]) -> Figures:
    """Of one seed each; at least one."""
    if len(runs) == 1:
        return runs[0]
    return Figures(
        total=_over([run.total for run in runs]),
        classes=_each_over([run.classes for run in runs]),
        tenants=_each_over([run.tenants for run in runs]),
        pools=_each_over([run.pools for run in runs]),
        fairness=estimate_over([run.fairness.value for run in runs]),
    )


def rate_within(instants: Values, amounts: Values, window: Window) -> Estimate:
    """Amount per second of what happened within the window."""
    if window.span_s <= 0:
        return Estimate()
    edges = np.linspace(window.from_s, window.until_s, SLICES + 1)
    sums, _ = np.histogram(instants, edges, weights=amounts)
    return mean_within(sums * (SLICES / window.span_s))


def share_of(estimate: Estimate, count: int) -> Estimate:
    """The share of `count` that an estimate is: within 0..1, and never certain.

    Where all or none of them count, the interval reaches 3 / n inwards. Source: the rule of three (Hanley and
    Lippman-Hand 1983).
    """
    if not count or isnan(estimate.low):
        return estimate
    low, high = max(0.0, estimate.low), min(1.0, estimate.high)
    if low == high:
        low, high = max(0.0, low - 3 / count), min(1.0, high + 3 / count)
    return Estimate(estimate.value, low, high)


def _group(rows: Rows, good: Mask, window: Window, served: float) -> Group:
    """`served`: tokens of all groups together, of which this one has its share."""
    arrived, ended, answers = window.holds(rows["arrived_at"]), window.holds(rows["ended_at"]), ok(rows)
    answered, within = arrived & answers, ended & answers
    ratio = mean_within(good[arrived].astype(np.float64))
    requests = int(arrived.sum())

    def per_s(mask: Mask, amounts: Values | None = None, instants: str = "ended_at") -> Estimate:
        weights = np.ones(int(mask.sum())) if amounts is None else amounts[mask].astype(np.float64)
        return rate_within(rows[instants][mask], weights, window)

    return Group(
        requests=requests,
        ok=int(answered.sum()),
        reasons=_reasons(rows, arrived, answers),
        goodput_ratio=share_of(ratio, requests),
        goodput_per_s=per_s(ended & good),
        offered_per_s=per_s(arrived, instants="arrived_at"),
        answered_per_s=per_s(within),
        prompt_tokens_per_s=per_s(within, rows["prompt_tokens"]),
        output_tokens_per_s=per_s(within, rows["output_tokens"]),
        token_share=Estimate(float(_tokens(rows)[within].sum()) / served if served else nan),
        ttft_s=_spread(ttft_s(rows)[answered]),
        tpot_s=_spread(tpot_s(rows)[answered]),
        e2e_s=_spread(e2e_s(rows)[answered]),
        queued_s=_spread(queued_s(rows)[answered]),
    )


def _spread(values: Values) -> Spread:
    return spread_within(values[~np.isnan(values)])


def _tokens(rows: Rows) -> Values:
    tokens: Values = rows["prompt_tokens"].astype(np.float64) + rows["output_tokens"]
    return tokens


def _reasons(rows: Rows, counted: Mask, answers: Mask) -> dict[str, int]:
    """By reason; answers of an engine that are no 2xx by their status."""
    reason = rows["reason"]
    counts = np.bincount(reason[counted & (reason != ANSWERED)], minlength=len(REASONS))
    found = {str(reason): int(count) for reason, count in zip(REASONS, counts, strict=True) if count}
    failed = counted & (reason == ANSWERED) & ~answers
    statuses, times = np.unique(rows["status"][failed], return_counts=True)
    found |= {f"status_{status}": int(count) for status, count in zip(statuses, times, strict=True)}
    return _by_count(found)


def _by_count(counts: Mapping[str, int]) -> dict[str, int]:
    """The most frequent first."""
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))


def _largest(columns: Columns, rows: Rows) -> list[str]:
    names = columns.names("tenant")
    counts = np.bincount(rows["tenant"], minlength=len(names))
    return sorted(names[number] for number in np.argsort(-counts, kind="stable")[:MOST_TENANTS])


def _fairness(columns: Columns, rows: Rows, window: Window, weights: Mapping[str, float]) -> float:
    """Answers to refused requests are taken to be as long as the tenant's others: nobody knows."""
    names = columns.names("tenant")
    within = rows[window.holds(rows["ended_at"])]
    answered = within[ok(within)]
    if not len(answered):
        return nan
    served: Values = np.zeros(len(names))
    np.add.at(served, answered["tenant"], _tokens(answered))
    answers = np.bincount(answered["tenant"], minlength=len(names))
    asked = np.bincount(within["tenant"], minlength=len(names))
    usual = served.sum() / answers.sum()
    each: Values = np.where(answers > 0, served / np.maximum(answers, 1), usual)
    return jain_index(served, asked * each, np.array([weights.get(name, 1.0) for name in names]))


# -- over seeds -----------------------------------------------------------------------------------


def _each_over(runs: Sequence[dict[str, Group]]) -> dict[str, Group]:
    names = list(dict.fromkeys(name for run in runs for name in run))
    return {name: _over([run[name] for run in runs if name in run]) for name in names}


def _over(runs: Sequence[Group]) -> Group:
    def estimate(name: str) -> Estimate:
        return estimate_over([getattr(run, name).value for run in runs])

    def spread(name: str) -> Spread:
        return spread_over([getattr(run, name) for run in runs])

    reasons: dict[str, int] = {}
    for run in runs:
        for reason, count in run.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
    requests = sum(run.requests for run in runs)
    return Group(
        requests=requests,
        ok=sum(run.ok for run in runs),
        reasons=_by_count(reasons),
        goodput_ratio=share_of(estimate("goodput_ratio"), requests),
        goodput_per_s=estimate("goodput_per_s"),
        offered_per_s=estimate("offered_per_s"),
        answered_per_s=estimate("answered_per_s"),
        prompt_tokens_per_s=estimate("prompt_tokens_per_s"),
        output_tokens_per_s=estimate("output_tokens_per_s"),
        token_share=estimate("token_share"),
        ttft_s=spread("ttft_s"),
        tpot_s=spread("tpot_s"),
        e2e_s=spread("e2e_s"),
        queued_s=spread("queued_s"),
    )
