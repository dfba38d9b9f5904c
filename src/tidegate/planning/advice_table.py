"""How is advice told at a terminal?"""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.plan.advised import Advice, Figure
from tidegate.plan.answer import Answer


def advice_told(answer: Answer, *, whole: bool) -> RenderableType:
    """Every figure of a configuration with its reason if `whole`, and what is not as it should be."""
    advice = answer.advice
    assert advice is not None
    table = _table("configuration", "", "because")
    table.columns[1].justify = "right"
    for name, figure in _figures(advice):
        value = "-" if figure.value is None else f"{figure.value:,.6g}"
        table.add_row(name, value, figure.reason)
    for step in advice.degradation:
        if step.active:
            most = f", to {step.max_tokens:,} tokens" if step.max_tokens is not None else ""
            table.add_row(f"{step.step}{most}", f"above {step.above:g}", step.reason)
    table.add_row("routing", advice.routing.value, advice.routing.reason)
    warnings = [Text(f"warning: {warning}", style="yellow") for warning in advice.warnings]
    parts: list[RenderableType] = [Text(""), table] if whole else []
    return Group(*parts, *warnings)


def _figures(advice: Advice) -> Iterator[tuple[str, Figure]]:
    for section in (advice.gate, advice.queue, advice.deadlines, advice.weights, advice.budgets):
        head = type(section).__name__.removesuffix("Advice").lower()
        for name in section.__struct_fields__:
            found = getattr(section, name)
            if isinstance(found, Figure):
                yield f"{head} {name}", found
    for name, wait in advice.queue.max_wait_s.items():
        yield f"class {name} max_wait_s", wait
    for name, tenant in advice.tenants.items():
        yield f"tenant {name} tokens_per_minute", tenant.tokens_per_minute
        yield f"tenant {name} burst_s", tenant.burst_s
        yield f"tenant {name} TTFT bound", tenant.ttft_bound_s


def _table(*headings: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
