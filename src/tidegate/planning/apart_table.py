"""What do disaggregated replicas say at a terminal? Both sides, the link, and replicas that do both."""

from __future__ import annotations

from math import isfinite

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.core.units import format_latency, format_number, format_ratio
from tidegate.plan.alternatives import Apart
from tidegate.plan.answer import Answer
from tidegate.plan.answering import format_usd
from tidegate.plan.ask import Terms
from tidegate.plan.disaggregated.answering import comparison_of
from tidegate.plan.disaggregated.shortfalls import format_bytes_per_s
from tidegate.planning.columns import table_of

STAGES = {
    "queue": "queue for prompts",
    "prefill": "prefill",
    "transfer": "transfer, its queue",
    "decode": "decoding, its queue",
}
SHORT_S = 1e-6
"""Less is nothing."""


def sides(answer: Answer, terms: Terms) -> RenderableType:
    """Below the verdict."""
    apart = answer.disaggregated
    assert apart is not None
    stages: list[RenderableType] = [_stages(apart, terms), Text("")] if apart.stages else []
    return Group(
        Text(""),
        _parts(apart),
        Text(""),
        *stages,
        Text(_link(apart)),
        Text(comparison_of(answer)),
        Text(""),
        _whole(answer, apart),
    )


def _parts(apart: Apart) -> Table:
    table = table_of("apart", "replicas", "spare", "requests/s\neach", "used")
    table.add_row(
        f"prompts, {apart.prefill_replica}",
        f"{apart.prefill_replicas:,}",
        f"{apart.prefill_spare_replicas:,}",
        format_number(apart.prefill_requests_per_s_per_replica),
        format_ratio(apart.prefill_utilisation),
    )
    table.add_row(
        f"decoding, {apart.decode_replica}",
        f"{apart.decode_replicas:,}",
        f"{apart.decode_spare_replicas:,}",
        format_number(apart.decode_requests_per_s_per_replica),
        format_ratio(apart.decode_utilisation),
    )
    link = format_bytes_per_s(apart.link_bytes_per_s)
    table.add_row(f"link, {link}", "", "", "", format_ratio(apart.link_utilisation))
    return table


def _stages(apart: Apart, terms: Terms) -> Table:
    """Where the time goes, and what it may take."""
    asked = f"P{100 * terms.percentile:g}"
    table = table_of("where time goes", "mean", asked, "may take", text=("of",))
    for each in apart.stages:
        budget = "-" if each.budget_s is None else format_latency(each.budget_s)
        of = {"ttft_s": "TTFT", "tpot_s": "TPOT x gaps"}[each.of] if each.budget_s is not None else ""
        table.add_row(STAGES[each.stage], _brief(each.mean_s), _brief(each.at_percentile_s), budget, of)
    return table


def _brief(seconds: float) -> str:
    return "0" if seconds < SHORT_S else format_latency(seconds)


def _link(apart: Apart) -> str:
    """What the rate asks of it, and what one transfer does."""
    sent = f"{format_number(apart.kv_bytes_per_request / 1e9)} GB of KV cache per request"
    needed = f"the rate needs {format_bytes_per_s(apart.link_needed_bytes_per_s)} (at 70 %)"
    one = f"one takes {format_latency(apart.transfer_s)}"
    if apart.transfer_budget_s is not None and apart.link_needed_for_one_bytes_per_s is not None:
        one += f" of the {format_latency(apart.transfer_budget_s)} that TPOT leaves, for which "
        one += f"{format_bytes_per_s(apart.link_needed_for_one_bytes_per_s)} would do"
    gap = f"the first gap is {format_latency(apart.first_gap_s)}"
    return f"The link: {sent}; {needed}; {one}; {gap}."


def _whole(answer: Answer, apart: Apart) -> Table:
    whole = apart.whole
    table = table_of("", "accelerators", "an hour", "TTFT", "TPOT", "E2E", "ITL P99")
    here = [answer.ttft_s.at_percentile, answer.tpot_s.at_percentile, answer.e2e_s.at_percentile]
    gap_s = answer.itl_s.p99 if answer.itl_s is not None else None
    for name, accelerators, cost, times in (
        ("disaggregated", answer.accelerators, answer.cost_per_hour, [*here, gap_s]),
        (
            "aggregated",
            whole.accelerators,
            whole.cost_per_hour,
            [whole.ttft_s, whole.tpot_s, whole.e2e_s, whole.itl_p99_s],
        ),
    ):
        count = "-" if accelerators is None else f"{accelerators:,}"
        table.add_row(name, count, "-" if cost is None else format_usd(cost), *map(_time, times))
    return table


def _time(seconds: float | None) -> str:
    return format_latency(seconds) if seconds is not None and isfinite(seconds) else "-"
