"""What came of a demo, for people and for programs?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.bench.load import UNFINISHED, LoadRecord
from tidegate.core.records import Distribution, RequestRecord
from tidegate.demo.snapshot import BudgetLook
from tidegate.demo.view import duration, refusals, verdict
from tidegate.demo.watching import Watch, budget_look

LATE_S = 0.05
"""A generator that is later than this at P99 shows this machine's load, not the fleet's."""


class TenantOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one tenant got."""

    name: str
    requests: int
    ok: int
    ttft_s: Distribution
    tpot_s: Distribution
    prompt_tokens: int
    output_tokens: int
    refused: dict[str, int]
    goodput_ratio: float
    """Held every budget, of what its quota let in."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run."""

    elapsed_s: float
    url: str
    seed: int
    unfinished: int
    """Still under way when the demo ended, and counted nowhere else."""
    lag_s: Distribution
    tenants: list[TenantOutcome]
    budgets: list[BudgetLook]


def outcome_of(watch: Watch, by_hand: Sequence[RequestRecord], url: str, seed: int) -> Outcome:
    """From what clients have seen; of what was sent `by_hand`, from what the gateway has."""
    played = [record for record in watch.records if record.error != UNFINISHED]
    ended: list[RequestRecord] = [*played, *by_hand]
    looks = {each.priority: each for each in watch.judge()}
    return Outcome(
        elapsed_s=watch.elapsed_s,
        url=url,
        seed=seed,
        unfinished=len(watch.records) - len(played),
        lag_s=Distribution.of(r.queued_s for r in watch.records if r.dispatched_at is not None),
        tenants=[
            _tenant(name, [r for r in ended if r.tenant == name], looks[priority], watch.elapsed_s)
            for name, priority in watch.classes.items()
        ],
        budgets=list(looks.values()),
    )


def _tenant(name: str, records: list[RequestRecord], look: BudgetLook, span_s: float) -> TenantOutcome:
    good = [record for record in records if record.ok]
    refused = Counter(_why(record) for record in records if not record.ok)
    return TenantOutcome(
        name=name,
        requests=len(records),
        ok=len(good),
        ttft_s=Distribution.of(t for r in good if (t := r.ttft_s) is not None),
        tpot_s=Distribution.of(t for r in good if (t := r.tpot_s) is not None),
        prompt_tokens=sum(record.prompt_tokens for record in good),
        output_tokens=sum(record.output_tokens for record in good),
        refused=dict(refused),
        goodput_ratio=budget_look(look.priority, look.budgets, records, span_s).goodput_ratio,
    )


def _why(record: RequestRecord) -> str:
    if record.reason is not None:
        return record.reason.value
    return record.error if isinstance(record, LoadRecord) else f"answered {record.status}"


def as_table(outcome: Outcome) -> RenderableType:
    """The end of the show."""
    parts: list[RenderableType] = [
        Text(f"{outcome.elapsed_s:.0f} s at {outcome.url}, seed {outcome.seed}", style="bold"),
        _tenants(outcome),
        _budgets(outcome),
    ]
    if outcome.unfinished:
        parts.append(Text(f"{outcome.unfinished} answers were still under way and are not counted."))
    if outcome.lag_s.p99 > LATE_S:
        late = duration(outcome.lag_s.p99)
        parts.append(Text(f"This machine was busy: requests left up to {late} late.", style="yellow"))
    return Group(*parts)


def _tenants(outcome: Outcome) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("tenant", no_wrap=True)
    for name in ("ok", "TTFT P50", "P95", "TPOT P50", "P95", "tokens", "goodput"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("refused", no_wrap=True)
    for each in outcome.tenants:
        if each.requests:
            table.add_row(
                each.name,
                f"{each.ok}",
                *(duration(s) for d in (each.ttft_s, each.tpot_s) for s in (d.p50, d.p95)),
                f"{each.prompt_tokens + each.output_tokens:,}",
                f"{each.goodput_ratio:.1%}",
                refusals(each.refused),
            )
    return table


def _budgets(outcome: Outcome) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("budget", no_wrap=True)
    for name in ("TTFT P95", "within", "TPOT P95", "within", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for each in outcome.budgets:
        table.add_row(
            each.priority,
            duration(each.ttft_p95_s),
            duration(each.budgets.ttft_s),
            duration(each.tpot_p95_s),
            duration(each.budgets.tpot_s),
            verdict(each),
        )
    return table
