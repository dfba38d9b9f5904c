"""How are a live run and its simulation shown beside each other?"""

from __future__ import annotations

from math import nan

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.core.units import format_latency
from tidegate.demo.neighbours.agreement import JUDGED, TIMES, Agreement
from tidegate.demo.neighbours.view import ratio_text, verdict


def agreement(found: Agreement) -> RenderableType:
    """Live and simulated, at the end."""
    median, mean = (format_latency(each) for each in (found.round_trip_s.p50, found.round_trip_s.mean))
    how = (
        "TTFT of the others: as clients saw it, from the planned instant; as the live gateway did, from "
        f"arrival; and as a simulated one does, in {TIMES} runs with the same requests at the same instants. "
        f"Its wire takes as long as the live one did: {median} there and back at P50, {mean} on average."
    )
    return Group(verdict(found.live), _sides(found), Text(), Text(how), Text(), _agreed(found))


def _sides(found: Agreement) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for name in ("others under", "seen by"):
        table.add_column(name, no_wrap=True)
    for name in ("TTFT mean", "P50", "P95", "ratio", "noisy: of quota"):
        table.add_column(name, justify="right", no_wrap=True)
    for run in found.runs:
        sides = (("clients", run.clients), ("gateway", run.gateway), ("simulation", run.simulated))
        for name, side in sides:
            table.add_row(
                run.rule if side is run.clients else "",
                name,
                *(format_latency(getattr(side.ttft_s, each)) for each in JUDGED),
                ratio_text(side.slowdown),
                f"{side.quota_ratio:.0%}" if side.quota_ratio else "-",
            )
        far = (_difference(run.differences[each], found.tolerance) for each in JUDGED)
        table.add_row("", "difference", *far, end_section=True)
    return table


def _difference(ratio: float, tolerance: float) -> Text:
    return Text(f"{ratio:+.1%}", style="green" if abs(ratio) <= tolerance else "bold red")


def _agreed(found: Agreement) -> Text:
    order = "the same order" if found.same_ranking else "ANOTHER order"
    far = max((abs(each) for run in found.runs for each in run.differences.values()), default=nan)
    said = (
        f"The simulation puts the runs in {order}, and its TTFT is within {far:.1%} of the gateways' "
        f"(asked for: {found.tolerance:.0%})."
    )
    return Text(said, style="green" if found.agrees else "bold red")
