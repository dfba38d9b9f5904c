"""How is a running demo drawn? One screen that fits 80 columns and 24 lines, and gains by more."""

from __future__ import annotations

from math import inf, isnan

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.core.units import format_duration
from tidegate.demo.snapshot import BudgetLook, ReplicaLook, Snapshot, TenantLook

LINES = 21
"""Of the screen with four replicas, three tenants, two classes, and no events."""
BAR = 10
WORDS = ("state", "class", "refused", "")
STATE_STYLES = {"up": "green", "busy": "yellow", "draining": "yellow"}


def screen(look: Snapshot, curl: str, admin_url: str | None, height: int) -> RenderableType:
    """The whole screen, at most `height` lines."""
    by_hand = Text(curl, style="cyan", no_wrap=True, overflow="ellipsis")
    if admin_url:
        by_hand.append(f"\n{admin_url}/status  {admin_url}/metrics", style="dim")
    parts: list[RenderableType] = [
        _title(look),
        _replicas(look),
        _queues(look),
        _tenants(look),
        _budgets(look),
        by_hand,
    ]
    spare = height - LINES
    if spare > len(parts):
        spare -= len(parts) - 1
        parts = [each for part in parts for each in (part, Text())][:-1]
    if spare > 0 and look.events:
        events = "\n".join(look.events[-spare:])
        parts.insert(-1, Text(events, style="dim", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def _title(look: Snapshot) -> Text:
    end = " until Ctrl-C" if look.for_s == inf else f" of {look.for_s:.0f} s"
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append("tidegate demo", style="bold")
    text.append(f"  {look.elapsed_s:.0f} s{end}, {look.offered_per_s:.0f} requests/s of a real chat trace")
    return text


def _table(*columns: str) -> Table:
    """Words to the left, figures to the right."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column(columns[0], no_wrap=True, min_width=11)
    for name in columns[1:]:
        table.add_column(name, justify="left" if name in WORDS else "right", no_wrap=True)
    return table


def _replicas(look: Snapshot) -> Table:
    table = _table("replica", "state", "running", "KV cache", "prompt tok/s", "output tok/s")
    for each in look.replicas:
        table.add_row(
            each.name,
            Text(each.state, style=STATE_STYLES.get(each.state, "red")),
            _running(each),
            _bar(each.kv_ratio),
            f"{each.prompt_tokens_per_s:,.0f}",
            f"{each.output_tokens_per_s:,.0f}",
        )
    return table


def _running(each: ReplicaLook) -> str:
    return f"{each.running}" if each.running_limit == inf else f"{each.running}/{each.running_limit:.0f}"


def _bar(ratio: float) -> Text:
    full = min(BAR, round(ratio * BAR))
    style = "red" if ratio > 0.9 else "yellow" if ratio > 0.7 else "green"
    return Text.assemble(("━" * full, style), ("━" * (BAR - full), "bright_black"), f" {ratio:4.0%}")


def _queues(look: Snapshot) -> Text:
    text = Text("queued      ", style="bold", no_wrap=True, overflow="ellipsis")
    for name, requests in look.queued.items():
        text.append(f" {name} ", style="not bold")
        text.append(f"{requests:<4}", style="yellow" if requests else "not bold")
    text.append(f"  pressure {look.pressure_ratio:.0%}", style="not bold")
    if look.degradation:
        text.append(f"  degraded: {', '.join(look.degradation)}", style="bold yellow")
    return text


def _tenants(look: Snapshot) -> Table:
    table = _table("tenant", "class", "open", "req/s", "tok/s", "quota left", "refused")
    for each in look.tenants:
        table.add_row(
            each.name,
            each.priority,
            f"{each.in_flight}",
            f"{each.requests_per_s:.1f}",
            f"{each.tokens_per_s:,.0f}",
            _quota(each),
            refusals(each.refused),
        )
    return table


def _quota(each: TenantLook) -> Text:
    if each.quota_ratio is None:
        return Text("no limit")
    return Text(f"{each.quota_ratio:.0%}", style="yellow" if each.quota_ratio < 0.1 else "")


def refusals(refused: dict[str, int]) -> str:
    """Counts by reason, the most frequent first, in few characters."""
    ordered = sorted(refused.items(), key=lambda item: -item[1])
    return ", ".join(f"{count} {_short(reason)}" for reason, count in ordered) or "-"


def _short(reason: str) -> str:
    return reason.removesuffix("_exceeded").replace("_", " ")


def _budgets(look: Snapshot) -> Table:
    columns = ("TTFT P50", "P95 / budget", "TPOT P50", "P95 / budget", "goodput", "")
    table = _table(f"last {look.window_s:.0f} s", *columns)
    for each in look.budgets:
        table.add_row(
            each.priority,
            duration(each.ttft_p50_s),
            f"{duration(each.ttft_p95_s)} / {duration(each.budgets.ttft_s)}",
            duration(each.tpot_p50_s),
            f"{duration(each.tpot_p95_s)} / {duration(each.budgets.tpot_s)}",
            "-" if isnan(each.goodput_ratio) else f"{each.goodput_per_s:.1f}/s",
            verdict(each),
        )
    return table


def verdict(each: BudgetLook) -> Text:
    """Held, missed, or nothing to judge."""
    match each.held:
        case None:
            return Text("-")
        case True:
            return Text("HELD", style="bold green")
        case False:
            return Text("MISSED", style="bold red")


def duration(seconds: float | None) -> str:
    """In three digits at most; a dash for what is not there."""
    return "-" if seconds is None or isnan(seconds) else format_duration(seconds, 2)
