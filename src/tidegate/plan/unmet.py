"""Which budgets do requests miss, and what would hold them if even those miss one that meet no others?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidegate.core.units import format_duration
from tidegate.plan.answer import Impossible
from tidegate.plan.ask import Terms
from tidegate.plan.station import Latencies

ROUNDING = 1 + 1e-9
"""A latency that is its budget to the digit is not above it."""


class Missed(NamedTuple):
    """A budget that does not hold."""

    figure: str
    """TTFT, TPOT or E2E."""
    seconds: float
    """At the percentile that was asked for."""
    budget_s: float
    class_name: str = ""
    """Whose own budget it is; empty: of all requests."""


def missed(found: Latencies, terms: Terms) -> Iterator[Missed]:
    """Of all requests, or the one that is furthest off where classes have budgets of their own."""
    if found.classes:
        from tidegate.plan.classes import nearest

        worst = nearest(found, terms)
        if worst is not None and worst.used > ROUNDING:
            yield Missed(worst.figure, worst.seconds, worst.budget_s, worst.name)
        return
    budgets = terms.budgets
    for figure, told, budget_s in (
        ("TTFT", found.ttft_s, budgets.ttft_s),
        ("TPOT", found.tpot_s, budgets.tpot_s),
        ("E2E", found.e2e_s, budgets.e2e_s),
    ):
        if budget_s is not None and told.at_percentile > budget_s * ROUNDING:
            yield Missed(figure, told.at_percentile, budget_s)


def over_budget(alone: Latencies, terms: Terms, what_takes: str) -> Impossible | None:
    """None if requests that meet no others are within all budgets; `what_takes`: "replicas take", say."""
    first = next(missed(alone, terms), None)
    if first is None:
        return None
    least, budget = format_duration(first.seconds, 3), format_duration(first.budget_s, 3)
    whose = f"class {first.class_name}: " if first.class_name else ""
    return Impossible(
        problem=(
            f"{whose}the {first.figure} budget of {budget} is below what {what_takes} for requests that meet "
            f"no others, {least} at P{100 * terms.percentile:g}"
        ),
        remedy=f"a budget above {least}, shorter requests, or faster replicas would do",
        binding="latency_budget",
        needed=first.seconds,
        available=first.budget_s,
        unit="s",
    )
