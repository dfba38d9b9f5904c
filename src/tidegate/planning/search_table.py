"""What does a search say at a terminal? What is best and what it saves, then cost against latency."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.core.units import format_latency, format_number, format_ratio
from tidegate.plan.alternatives import Found, Point
from tidegate.plan.answering import format_usd
from tidegate.plan.ask import Terms
from tidegate.plan.search.cheapest import Searched
from tidegate.planning.columns import table_of

SPEEDS = 12
"""Of the fastest that are printed; JSON has all."""


def headline(searched: Searched) -> str:
    """The best, what it saves against the next, and what the published precision costs: two sentences."""
    best, following = searched.best, searched.following
    if best.cost_per_hour is None:
        more = ""
        if following is not None:
            more = f", the next being {following.accelerators:,} {following.accelerator}"
        return (
            f"No price is known of what holds the budgets: the fewest accelerators are {named(best)}{more}. "
            "Give prices with --price or in a catalogue file."
        )
    told = f"The cheapest is {named(best)}: {_cost(best, searched)}"
    if following is not None:
        saved = 1 - _amount(best, searched) / _amount(following, searched)
        told += f", {format_ratio(saved)} less than the next, {named(following)}"
        told += f" at {format_usd(_amount(following, searched))}"
    published = searched.found.as_published
    if published is None or (published.weights, published.kv) == (best.weights, best.kv):
        return f"{told}."
    cost = format_usd(_amount(published, searched))
    return f"{told}. As published, in {published.weights}: {named(published)} at {cost}."


def _amount(point: Point, searched: Searched) -> float:
    """An hour's, where all carry the same load."""
    return (point.cost_per_hour if searched.same_load else point.cost_per_million_output_tokens) or 0.0


def _cost(point: Point, searched: Searched) -> str:
    per = "an hour" if searched.same_load else "per million output tokens"
    return f"{format_usd(_amount(point, searched))} {per}"


def named(point: Point) -> str:
    """As `4 replicas of 2 x h100-sxm (fp8 weights, bf16 KV)`."""
    each = f"{_devices(point)} x {point.accelerator}"
    replicas = f"{point.replicas:,} replica{'s' * (point.replicas != 1)}"
    if point.prefill_replicas is not None:
        own = "" if _alike(point) else f" of {_prefill(point)}"
        replicas = f"{point.prefill_replicas:,} replica{'s' * (point.prefill_replicas != 1)}{own} for prompts"
        replicas += f" and {point.replicas - point.prefill_replicas:,} that decode"
    return f"{replicas} of {each} ({point.weights} weights, {point.kv} KV)"


def _devices(point: Point) -> int:
    """Of a replica that decodes, where prompts are apart."""
    prefill = (point.prefill_replicas or 0) * (point.prefill_accelerators_per_replica or 0)
    return (point.accelerators - prefill) // (point.replicas - (point.prefill_replicas or 0))


def _prefill(point: Point) -> str:
    return f"{point.prefill_accelerators_per_replica} x {point.prefill_accelerator}"


def _alike(point: Point) -> bool:
    """Whether prompts are computed on replicas like those that decode."""
    return _prefill(point) == f"{_devices(point)} x {point.accelerator}"


def alternatives(found: Found, terms: Terms) -> RenderableType:
    """Cost against latency; those without a price; those with which nothing holds; one sequence's speed."""
    return Group(*_parts(found, terms))


def _parts(found: Found, terms: Terms) -> Iterator[RenderableType]:
    if found.points:
        yield _points("cost against latency", found.points, terms)
        yield Text(
            "* nothing is as cheap and as fast, and better in one. 3+2: for prompts, and that decode.",
            style="dim",
        )
    if found.unpriced:
        yield Text("")
        yield _points("no price known", found.unpriced, terms)
    if found.ruled_out:
        yield Text("")
    for each in found.ruled_out:
        yield Text(f"not {each.accelerator}: {each.because}", style="dim")
    if found.speeds:
        yield Text("")
        yield _speeds(found)


def _points(title: str, points: tuple[Point, ...], terms: Terms) -> Table:
    at = f"P{100 * terms.percentile:g}"
    batch_work = terms.within_s is not None
    latencies = ["TPOT"] if batch_work else [f"TTFT\n{at}", f"TPOT\n{at}"]
    costs = ["an hour", "1M out"] if points[0].cost_per_hour is not None else []
    table = table_of(title, "bits", "replicas", *costs, *latencies)
    for point in points:
        told = [format_latency(point.tpot_s)]
        if not batch_work:
            told.insert(0, format_latency(point.ttft_s))
        table.add_row(
            f"{'*' if point.on_front else ' '} {_short(point)}",
            f"{point.weights}/{point.kv}",
            _replicas(point),
            *_costs(point),
            *told,
        )
    return table


def _costs(point: Point) -> list[str]:
    if point.cost_per_hour is None or point.cost_per_million_output_tokens is None:
        return []
    return [format_usd(point.cost_per_hour), format_usd(point.cost_per_million_output_tokens)]


def _short(point: Point) -> str:
    copies = f" dp {point.attention_dp}" if point.attention_dp > 1 else ""
    told = f"{_devices(point)} x {point.accelerator}{copies}"
    if point.prefill_replicas is None or _alike(point):
        return told
    same = point.prefill_accelerator == point.accelerator
    own = f"{point.prefill_accelerators_per_replica}" if same else _prefill(point)
    return f"{own} + {told}"


def _replicas(point: Point) -> str:
    if point.prefill_replicas is None:
        return f"{point.replicas:,}"
    return f"{point.prefill_replicas:,}+{point.replicas - point.prefill_replicas:,}"


def _speeds(found: Found) -> Table:
    table = table_of(
        "one sequence decodes", "weights", "GB read", "TB/s", "tokens/s\nat most", "tokens/s\nabout"
    )
    for each in found.speeds[:SPEEDS]:
        table.add_row(
            f"{each.tp} x {each.accelerator}",
            each.weights,
            format_number(each.weights_bytes / 1e9),
            format_number(each.bandwidth_bytes_per_s / 1e12),
            format_number(each.most_tokens_per_s),
            format_number(each.tokens_per_s),
        )
    if len(found.speeds) > SPEEDS:
        table.caption = f"{len(found.speeds) - SPEEDS} more with --json"
    return table
