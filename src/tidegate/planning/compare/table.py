"""How are two configurations told side by side at a terminal?"""

from __future__ import annotations

from math import isinf

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.core.units import format_latency, format_number, format_ratio
from tidegate.plan.answering import format_usd
from tidegate.planning.columns import table_of
from tidegate.planning.compare.differences import Comparison, names_of
from tidegate.planning.compare.side import Side

MISSING = "-"


def comparison_told(found: Comparison) -> RenderableType:
    """A sentence, what each does, what differs, and why each does not carry more."""
    first, second = names_of(found.a, found.b)
    parts: list[RenderableType] = [
        Text(found.summary, style="bold"),
        Text(""),
        _figures(found, first, second),
        Text(""),
    ]
    if found.differences:
        table = table_of("what differs", first, second)
        for each in found.differences:
            table.add_row(each.setting, each.a, each.b)
        parts.append(table)
    else:
        parts.append(Text("Nothing that decides differs."))
    parts.append(Text(""))
    parts += [
        Text(f"{name}: {side.because}")
        for name, side in ((first, found.a), (second, found.b))
        if side.because
    ]
    parts += [Text(f"{note}.", style="dim") for note in found.notes]
    return Group(*parts)


def _figures(found: Comparison, first: str, second: str) -> Table:
    table = table_of("", first, second)
    one, other = _told(found.a), _told(found.b)
    for name, value in one.items():
        if (value, other[name]) != (MISSING, MISSING):
            table.add_row(name, value, other[name])
    return table


def _told(side: Side) -> dict[str, str]:
    figures = {
        "replicas": f"{side.replicas:,}"
        + (f", {side.spare_replicas:,} spare" if side.spare_replicas else ""),
        "at once, per replica": f"{side.concurrency_per_replica:,}",
        "sustains": _rate(side.sustained_per_s),
        "carries, within budgets": MISSING if side.carried_per_s is None else _rate(side.carried_per_s),
        "its load": _rate(side.requests_per_s),
        "utilisation": format_ratio(side.utilisation),
        "TTFT P95": _time(side.ttft_p95_s),
        "TPOT P95": _time(side.tpot_p95_s),
        "E2E P95": _time(side.e2e_p95_s),
        "binds": side.binding.replace("_", " "),
        "an hour": MISSING if side.cost_per_hour is None else format_usd(side.cost_per_hour),
    }
    if side.impossible:
        return {name: f"{side.replicas:,}" if name == "replicas" else "impossible" for name in figures}
    return figures


def _rate(rate_per_s: float) -> str:
    return f"{format_number(rate_per_s)} requests/s"


def _time(seconds: float) -> str:
    return "endless" if isinf(seconds) else format_latency(seconds)
