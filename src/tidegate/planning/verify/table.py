"""How is what a simulation says of a plan told at a terminal?"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from tidegate.core.units import format_latency, format_ratio, format_span
from tidegate.plan.answer import Answer
from tidegate.planning.columns import table_of
from tidegate.planning.verify.verdict import Compared, Verification, Verified, interval_of, label_of, shown


def told_of(answer: Answer) -> RenderableType:
    """Of an answer that was simulated."""
    assert isinstance(answer, Verified)
    return Group(Text(""), verification_told(answer.verify))


def verification_told(found: Verification) -> RenderableType:
    """First whether both say the same; then whether the budgets hold, and each figure twice."""
    table = table_of("", "closed form", "simulated", text=("95 % interval", ""))
    for each in found.figures:
        interval = interval_of(each).strip(" ()")
        table.add_row(
            label_of(each),
            shown(each, each.closed_form),
            shown(each, each.simulated.value),
            interval or "-",
            _verdict(each),
        )
    lines: list[RenderableType] = [
        Text(found.sentence, style="bold" if found.agrees else "bold yellow"),
        Text(found.budgets, style="bold red" if found.budgets_hold is False else "bold"),
        table,
    ]
    for bound in found.bounds:
        kept = "kept" if bound.holds else "broken"
        worst, most = format_latency(bound.worst_s), format_latency(bound.bound_s)
        lines.append(Text(f"bound of tenant {bound.tenant}: {kept}; the worst TTFT was {worst} of {most}"))
    lines.append(
        Text(
            f"{found.seeds} seeds, {found.requests:,} requests in {format_span(found.measured_s)} measured, "
            f"{format_ratio(found.refused_ratio)} refused",
            style="dim",
        )
    )
    lines += [Text(f"warning: {warning}", style="yellow") for warning in found.warnings]
    return Group(*lines)


def _verdict(figure: Compared) -> Text:
    if figure.agrees:
        return Text("agrees", style="green")
    words = {"simulation": "trust the simulation", "closed_form": "trust the closed form"}
    return Text(words.get(figure.trust, "trust neither"), style="yellow")
