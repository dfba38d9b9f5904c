"""How is advice told at a terminal?"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from tidegate.core.units import format_latency, format_number
from tidegate.plan.advised import Advice, Figure
from tidegate.plan.answer import Answer
from tidegate.planning.columns import table_of


def advice_told(answer: Answer, *, whole: bool) -> RenderableType:
    """Every figure of a configuration with its reason if `whole`, and what is not as it should be."""
    advice = answer.advice
    assert advice is not None
    table = table_of("configuration", "", text=("because",))
    for name, figure in _figures(advice):
        table.add_row(name, _shown(name, figure.value), figure.reason)
    for step in advice.degradation:
        if step.active:
            most = f", to {step.max_tokens:,} tokens" if step.max_tokens is not None else ""
            table.add_row(f"{step.step}{most}", f"above {step.above:g}", step.reason)
    table.add_row("routing", advice.routing.value, advice.routing.reason)
    warnings = [Text(f"warning: {warning}", style="yellow") for warning in advice.warnings]
    parts: list[RenderableType] = [Text(""), table] if whole else []
    return Group(*parts, *warnings)


def _shown(name: str, value: float | None) -> str:
    """In three digits, a time with its unit; the file that is written has all."""
    if value is None:
        return "-"
    return format_latency(value) if name.endswith(("_s", "bound")) else format_number(value)


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
