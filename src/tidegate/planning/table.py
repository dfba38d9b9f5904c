"""What does a plan say to somebody at a terminal? A sentence, what binds, the figures."""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.core.records import Budgets
from tidegate.core.units import format_latency, format_number, format_ratio
from tidegate.plan.advised import Advice
from tidegate.plan.answer import Answer, Change, HourAnswer, Percentiles
from tidegate.plan.answering import format_usd
from tidegate.plan.ask import Terms
from tidegate.plan.offline import comparison
from tidegate.plan.residence import Residence
from tidegate.planning.columns import table_of

REASONS = {"queue": "queue", "burst": "burst", "lost_replica": "lost replica", "batch": "batch"}
FIGURES = ("TTFT", "TPOT", "E2E")
WORDS = {"ttft": "TTFT", "tpot": "TPOT"}


def verdict(answer: Answer, terms: Terms) -> RenderableType:
    """How many, what binds, and what requests meet."""
    return Group(
        Text(answer.summary, style="bold"),
        *(Text(f"warning: {warning}", style="yellow") for warning in answer.warnings),
        Text(answer.because),
        *([Text(answer.opening.words)] if answer.opening is not None else []),
        *_apart(latencies(answer, terms)),
        *(_apart(classes(answer, terms)) if answer.classes else ()),
        *_apart(facts(answer)),
    )


def reasons(answer: Answer, terms: Terms) -> RenderableType:
    """Why not fewer, what changes it, and what the words mean."""
    return Group(
        *_apart(
            waits(answer, terms.percentile),
            room(answer),
            changes(answer),
            *([schedule(answer)] if answer.hours else []),
            *([_advice(answer.advice)] if answer.advice is not None else []),
            Text(_definitions(answer), style="dim"),
        )
    )


def batch_work(answer: Answer) -> RenderableType:
    """How many, what binds, against people who wait; no latencies."""
    assert answer.offline is not None
    return Group(
        Text(answer.summary, style="bold"),
        Text(answer.because),
        Text(comparison(answer, answer.offline)),
        *_apart(facts(answer), changes(answer), Text(_definitions(answer), style="dim")),
    )


def _apart(*parts: RenderableType) -> Iterator[RenderableType]:
    for part in parts:
        yield Text("")
        yield part


def latencies(answer: Answer, terms: Terms) -> Table:
    """What requests meet, beside the budgets."""
    asked = f"P{100 * terms.percentile:g}"
    columns = sorted({"P50", "P95", "P99", asked}, key=lambda name: float(name.removeprefix("P")))
    table = table_of("", *columns, "budget")
    budgets = Budgets() if answer.classes else terms.budgets  # those of classes stand beside these
    rows = (
        ("wait", answer.wait_s, None),
        ("TTFT", answer.ttft_s, budgets.ttft_s),
        ("TPOT", answer.tpot_s, budgets.tpot_s),
        ("E2E", answer.e2e_s, budgets.e2e_s),
    )
    for name, found, budget in rows:
        shown = [_time(_at(found, column)) for column in columns]
        held = "-" if budget is None else f"{format_latency(budget)} at {asked}"
        missed = budget is not None and found.at_percentile > budget * (1 + 1e-9)
        table.add_row(name, *shown, Text(held, style="bold red" if missed else ""))
    return table


def classes(answer: Answer, terms: Terms) -> Table:
    """What each class meets at the percentile that was asked for, beside its own budgets."""
    asked = f"P{100 * terms.percentile:g}"
    table = table_of(asked, "of all", *(f"{name}\n{what}" for name in FIGURES for what in ("", "budget")))
    for each in answer.classes:
        pairs = (
            (each.ttft_s, each.budgets.ttft_s),
            (each.tpot_s, each.budgets.tpot_s),
            (each.e2e_s, each.budgets.e2e_s),
        )
        cells: list[str | Text] = []
        for found, budget in pairs:
            missed = budget is not None and found.at_percentile > budget * (1 + 1e-9)
            held = "-" if budget is None else format_latency(budget)
            cells += [_time(found.at_percentile), Text(held, style="bold red" if missed else "")]
        table.add_row(each.name, format_ratio(each.share), *cells)
    return table


def _at(found: Percentiles, column: str) -> float:
    return {"P50": found.p50, "P95": found.p95, "P99": found.p99}.get(column, found.at_percentile)


def facts(answer: Answer) -> Table:
    """The load, what a replica does and holds, and its price."""
    gates = {"KV": answer.gates.kv, "batch": answer.gates.batch, "TPOT": answer.gates.tpot}
    known = {name: gate for name, gate in gates.items() if gate is not None}
    least = f" (the least of {', '.join(f'{name} {gate:,}' for name, gate in known.items())})"
    each = format_number(answer.requests_per_s_per_replica)
    tokens = f"{format_number(answer.output_tokens_per_s_per_replica)} output tokens/s"
    if answer.prompt_tokens_per_s_per_replica:
        tokens += f", {format_number(answer.prompt_tokens_per_s_per_replica)} prompt tokens/s"
    load = f"{format_number(answer.requests_per_s)} requests/s of {_lengths(answer)}"
    if answer.peak_ratio > 1:
        load += f", in the busiest minute, {format_number(answer.peak_ratio)} x the mean"
    grid = Table.grid(padding=(0, 2))
    grid.add_row("load", load)
    grid.add_row(
        "at once", f"{answer.concurrency_per_replica:,} requests per replica{least * (len(known) > 1)}"
    )
    grid.add_row("sustains", f"{each} requests/s per replica: {tokens}")
    if answer.step_times not in (None, "roofline", "measured"):
        grid.add_row("step times", answer.step_times)
    if answer.speculation is not None:
        grid.add_row("drafts", answer.speculation.because)
    if answer.price_per_accelerator_hour is not None:
        price = f"${answer.price_per_accelerator_hour:,.2f} per accelerator-hour"
        grid.add_row("price", f"{price} ({answer.price_source})")
    if answer.memory is not None:
        for name, words in _memory(answer.memory):
            grid.add_row(name, words)
    return grid


def _lengths(answer: Answer) -> str:
    output = f"{format_number(answer.output_tokens)} output tokens"
    return f"{format_number(answer.prompt_tokens)} prompt and {output}" if answer.prompt_tokens else output


def _memory(memory: Residence) -> Iterator[tuple[str, str]]:
    tokens = f"{memory.kv_tokens:,} tokens per replica"
    if memory.kv_bytes_per_token is not None:
        tokens += f", {format_bytes(memory.kv_bytes_per_token)} each in {memory.kv_precision} (--kv-quant)"
    yield "KV cache", tokens
    end = f"{memory.fit_at_end:,} requests of {memory.end_tokens:,} tokens at their end"
    if memory.kv_bytes_per_sequence is not None:
        end += f" ({format_bytes(memory.kv_bytes_per_sequence)} each)"
    resident = f"{memory.fit_resident:,} of {format_number(memory.resident_tokens)} resident on average"
    yield "holds", f"{end}, or {resident}, or {memory.fit_reserved:,} of {memory.reserved_tokens:,} reserved"
    if memory.weights_bytes is not None:
        parts = (
            ("usable", memory.usable_bytes),
            ("weights", memory.weights_bytes),
            ("reserve", memory.reserve_bytes),
            ("KV pool", memory.pool_bytes),
        )
        told = ", ".join(f"{name} {format_bytes(part)}" for name, part in parts if part is not None)
        yield "memory", f"of each accelerator: {told}"


def format_bytes(count: float) -> str:
    """In the largest unit of 1024 of which there is one: `320 KiB`."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{format_number(count / (1 << power))} {unit}"
    return f"{format_number(count)} B"


def waits(answer: Answer, percentile: float) -> Table:
    """The load-latency curve: what is met from light to full."""
    pooled = answer.waits[0].pooled_replicas
    if answer.waits[0].users is None:
        head, loads = "at", [format_ratio(each.utilisation) for each in answer.waits]
    else:
        head, loads = "of users", [f"{each.users:,}" for each in answer.waits]
    table = table_of(f"P{100 * percentile:g} {head}", *loads)
    table.add_row("wait, one replica", *(_time(each.isolated_s) for each in answer.waits))
    if pooled > 1:
        table.add_row(f"wait, {pooled} pooled", *(_time(each.pooled_s) for each in answer.waits))
    if answer.replica is not None:
        table.add_row("TTFT", *(_time(each.ttft_s) for each in answer.waits))
        table.add_row("TPOT", *(_time(each.tpot_s) for each in answer.waits))
    return table


def room(answer: Answer) -> Table:
    """Why the fleet is not fuller."""
    table = table_of("why not fuller", "up to", text=("",))
    for each in answer.room:
        up_to = "-" if each.utilisation is None else format_ratio(each.utilisation)
        table.add_row(REASONS[each.reason], up_to, each.words)
    return table


def changes(answer: Answer) -> Table:
    """What would be bought, or, of what there is, what it would carry."""
    here = Change(
        what="as asked",
        replicas=answer.replicas,
        prefill_replicas=answer.disaggregated.prefill_replicas if answer.disaggregated else None,
        requests_per_s=answer.requests_per_s,
        concurrency_per_replica=answer.concurrency_per_replica,
        requests_per_s_per_replica=answer.requests_per_s_per_replica,
        binding=answer.binding,
        cost_per_hour=answer.cost_per_hour,
    )
    found = [here, *answer.changes]
    counts, rates = ({getattr(each, name) for each in found} for name in ("replicas", "requests_per_s"))
    carries = len(counts - {None}) == 1 and len(rates - {None}) > 1
    if answer.disaggregated is not None:  # accelerators are as many, replicas of them may not be
        carries = answer.disaggregated.most_requests_per_s is not None
    priced = ["an hour"] if answer.cost_per_hour is not None else []
    first = "carries" if carries else "replicas"
    table = table_of("what changes it", first, "at once", "requests/s\neach", "binds", *priced)
    for each in found:
        style = "bold" if each is here else ""
        table.add_row(each.what, *_change_cells(each, carries=carries), style=style)
    return table


def _change_cells(change: Change, *, carries: bool) -> list[str]:
    if change.impossible or change.replicas is None:
        return ["impossible"]
    cells = [
        _carried(change) if carries else _replicas(change),
        f"{change.concurrency_per_replica or 0:,}",
        format_number(change.requests_per_s_per_replica or 0.0),
        (change.binding or "").replace("_", " "),
    ]
    return cells if change.cost_per_hour is None else [*cells, format_usd(change.cost_per_hour)]


def _carried(change: Change) -> str:
    """A rate, and how it is shared out."""
    rate = f"{format_number(change.requests_per_s or 0.0)}/s"
    return rate if change.prefill_replicas is None else f"{rate}, {_replicas(change)}"


def _replicas(found: Change | HourAnswer) -> str:
    """With those for prompts before those that decode."""
    replicas, prefill = found.replicas or 0, found.prefill_replicas
    return f"{replicas:,}" if prefill is None else f"{prefill:,}+{replicas - prefill:,}"


def schedule(answer: Answer) -> Table:
    """Replicas for each hour."""
    table = table_of("hour", "requests/s", "replicas", "utilisation")
    for each in answer.hours:
        rate, used = format_number(each.requests_per_s), format_ratio(each.utilisation)
        table.add_row(f"{each.hour:02}:00", rate, _replicas(each), used)
    always = answer.replicas * len(answer.hours)
    hours = sum(each.replicas for each in answer.hours)
    table.caption = f"{hours:,} replica-hours instead of {always:,}: {format_ratio(1 - hours / always)} less"
    return table


def _advice(advice: Advice) -> Table:
    """The figures that an operator sets first; JSON has all of them, and their reasons."""
    gate, queue = advice.gate, advice.queue
    figures = {
        "gate, per replica": {
            "requests": gate.max_concurrency,
            "KV tokens": gate.kv_tokens,
            "prefill tokens": gate.max_prefill_tokens,
        },
        "queue": {"requests": queue.max_requests, "tokens": queue.max_tokens},
        **{f"tenant {name}": {"tokens/min": each.tokens_per_minute} for name, each in advice.tenants.items()},
    }
    grid = Table.grid(padding=(0, 2))
    for name, own in figures.items():
        told = [f"{each.value:,.0f} {unit}" for unit, each in own.items() if each.value is not None]
        if told:
            grid.add_row(name, ", ".join(told))
    grid.add_row("routing", advice.routing.value)
    return grid


def _definitions(answer: Answer) -> str:
    return ". ".join(f"{name}: {text}" for name, text in definitions(answer).items()) + "."


def definitions(answer: Answer) -> dict[str, str]:
    """What words mean, by word."""
    words = msgspec.structs.asdict(answer.definitions)
    return {WORDS.get(name, name.capitalize()): text for name, text in words.items()}


def _time(seconds: float) -> str:
    return "0" if seconds == 0 else "endless" if isinf(seconds) else format_latency(seconds)
