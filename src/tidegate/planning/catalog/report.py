"""What does the catalogue say of a model or an accelerator, to people and to programs?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from tidegate.catalog.accelerators import Accelerator, Price
from tidegate.catalog.models import (
    Attention,
    CompressedAttention,
    Dense,
    Experts,
    FeedForward,
    GroupedAttention,
    LatentAttention,
    Layers,
    Model,
    RecurrentAttention,
)
from tidegate.core.text import printable
from tidegate.core.units import format_duration
from tidegate.perf.memory import cached_elements
from tidegate.perf.parameters import parameters_of
from tidegate.planning.columns import table_of

GIB = 2**30
KV_BYTES_PER_ELEMENT = 2
"""In bf16, which is what engines do unless told otherwise."""
BLOCK_TOKENS = 16

_FIGURES = (
    "memory_bytes",
    "usable_bytes",
    "bandwidth_bytes_per_s",
    "flops_per_s",
    "link_bytes_per_s",
    "link_latency_s",
    "node_link_bytes_per_s",
    "host_link_bytes_per_s",
    "per_node",
    "power_w",
)


class ModelReport(msgspec.Struct, frozen=True, kw_only=True):
    """A model, and what follows from its shape."""

    name: str
    parameters: int
    parameters_active: int
    """That a token is multiplied with."""
    kv_bytes_per_token: float
    """Of a bf16 cache: what grows with the sequence."""
    bounded_bytes_per_sequence: float
    """Windows and states, once full."""
    context_tokens: int
    hidden: int
    vocabulary: int
    tied_embeddings: bool
    precision: str
    attention_precision: str
    dense_precision: str
    layers: tuple[Layers, ...]
    left_out: tuple[str, ...]
    source: str
    dated: str


def model_report(model: Model) -> ModelReport:
    """Sums over its layers."""
    parameters = parameters_of(model)
    growing = bounded = 0.0
    for group in model.layers:
        per_token, kept = cached_elements(group.attention, 1, BLOCK_TOKENS)
        growing += group.count * per_token * KV_BYTES_PER_ELEMENT
        bounded += group.count * kept * KV_BYTES_PER_ELEMENT
        if isinstance(group.attention, RecurrentAttention):
            state = group.attention.state_elements * group.attention.state_element_bytes
            bounded += group.count * state
    return ModelReport(
        name=model.name,
        parameters=parameters.total,
        parameters_active=parameters.active,
        kv_bytes_per_token=growing,
        bounded_bytes_per_sequence=bounded,
        context_tokens=model.context_tokens,
        hidden=model.hidden,
        vocabulary=model.vocabulary,
        tied_embeddings=model.tied_embeddings,
        precision=model.precision,
        attention_precision=model.attention_precision or model.precision,
        dense_precision=model.dense_precision or model.precision,
        layers=model.layers,
        left_out=model.left_out,
        source=model.source,
        dated=model.dated,
    )


def sourced(accelerator: Accelerator) -> Accelerator:
    """The same, where `sources` and `dates` have every figure."""
    figures = [figure for figure in _FIGURES if getattr(accelerator, figure) is not None]
    return msgspec.structs.replace(
        accelerator,
        sources={figure: accelerator.sources.get(figure, accelerator.source) for figure in figures},
        dates={figure: accelerator.dates.get(figure, accelerator.dated) for figure in figures},
    )


def accelerators_table(accelerators: Iterable[Accelerator]) -> Table:
    """A line each."""
    memory, rates = ("memory\nGiB", "usable\nGiB", "memory\nGB/s"), ("TFLOPS\nbf16", "fp8", "fp4")
    table = table_of("", *memory, *rates, "link\nGB/s", "USD/h", title="accelerators")
    for each in accelerators:
        table.add_row(
            escape(printable(each.name)),
            f"{each.memory_bytes / GIB:.4g}",
            f"{each.usable_bytes / GIB:.4g}",
            f"{each.bandwidth_bytes_per_s / 1e9:,.4g}",
            *(_tera(each.flops_per_s.get(precision)) for precision in ("bf16", "fp8", "fp4")),
            f"{each.link_bytes_per_s / 1e9:,.4g}",
            "-" if each.price is None else f"{each.price.per_hour_usd:.2f}",
        )
    table.caption = "TFLOPS are dense; `tidegate catalog show NAME` has sources and dates"
    return table


def models_table(models: Iterable[Model]) -> Table:
    """A line each."""
    table = table_of("", "parameters", "active", "stored in", "KV/token", "context", title="models")
    for report in map(model_report, models):
        table.add_row(
            escape(printable(report.name)),
            _count(report.parameters),
            _count(report.parameters_active),
            report.precision,
            _bytes(report.kv_bytes_per_token),
            f"{report.context_tokens:,}",
        )
    table.caption = "KV of one token in bf16, where it grows with the sequence"
    return table


def accelerator_page(accelerator: Accelerator) -> RenderableType:
    """Every figure with its source and its date."""
    table = table_of("", text=("", "source", "read on"), title=_title(accelerator.title, accelerator.name))
    each = sourced(accelerator)
    above = ""
    for label, shown in _shown(each):
        figure = figure_of(label)
        source = each.sources[figure]
        cited = '"' if source == above else escape(printable(source))
        table.add_row(label, shown, cited, each.dates[figure] or "-")
        above = source
    if each.price is not None:
        table.add_row(
            "price", _price(each.price), escape(printable(each.price.source)), each.price.dated or "-"
        )
    return Group(table, *_lines("also", [", ".join(each.aliases)]), *_lines("note", each.notes))


def model_page(model: Model) -> RenderableType:
    """Its layers by kind, and what follows from them."""
    report = model_report(model)
    layers = table_of("", text=("attention", "feed-forward"), title=escape(printable(model.name)))
    for group in model.layers:
        layers.add_row(
            f"{group.count} layers", _attention(group.attention), _feed_forward(group.feed_forward)
        )
    facts = _grid()
    facts.add_row("parameters", f"{_count(report.parameters)}, {_count(report.parameters_active)} active")
    facts.add_row("stored in", _stored(report))
    facts.add_row("KV per token", f"{_bytes(report.kv_bytes_per_token)} in bf16")
    if report.bounded_bytes_per_sequence:
        facts.add_row(
            "kept per sequence", f"{_bytes(report.bounded_bytes_per_sequence)} at most, however long"
        )
    facts.add_row("context", f"{report.context_tokens:,} tokens")
    facts.add_row("hidden, vocabulary", f"{report.hidden:,}, {report.vocabulary:,}")
    if report.left_out:
        facts.add_row("not described", escape(printable(", ".join(report.left_out))))
    facts.add_row("source", escape(printable(f"{report.source or '-'}, read on {report.dated or '-'}")))
    return Group(layers, facts)


def figure_of(label: str) -> str:
    """The field that a line shows: a rate of computing belongs to all of them."""
    return "flops_per_s" if label.startswith("flops_per_s") else label


def _shown(each: Accelerator) -> Iterator[tuple[str, str]]:
    yield "memory_bytes", f"{each.memory_bytes / GIB:.4g} GiB"
    yield "usable_bytes", f"{each.usable_bytes / GIB:.4g} GiB"
    yield "bandwidth_bytes_per_s", _rate(each.bandwidth_bytes_per_s)
    for precision, rate in each.flops_per_s.items():
        yield f"flops_per_s, {escape(printable(precision))}", f"{_tera(rate)} TFLOPS, dense"
    yield "link_bytes_per_s", _rate(each.link_bytes_per_s)
    yield "link_latency_s", format_duration(each.link_latency_s)
    yield "node_link_bytes_per_s", _rate(each.node_link_bytes_per_s)
    if each.host_link_bytes_per_s is not None:
        yield "host_link_bytes_per_s", _rate(each.host_link_bytes_per_s)
    yield "per_node", f"{each.per_node}"
    if each.power_w is not None:
        yield "power_w", f"{each.power_w:g} W"


def _price(price: Price) -> str:
    low, high = price.low_usd, price.high_usd
    spread = "" if low is None or high is None else f" ({low:.2f} to {high:.2f})"
    return f"{price.per_hour_usd:.2f} USD/h{spread}"


def _attention(attention: Attention) -> str:
    match attention:
        case GroupedAttention():
            return ", ".join(_grouped(attention))
        case LatentAttention():
            text = f"latent, {attention.heads} heads, rank {attention.kv_rank} + {attention.rope_dim}"
            return text + _chosen(attention.top_tokens, "tokens") + (", gated" if attention.gated else "")
        case CompressedAttention():
            entries = f", one entry for {attention.ratio} tokens" if attention.ratio else ""
            text = f"compressed, {attention.heads} heads of {attention.head_dim}"
            text += f", window {attention.window_tokens}"
            return text + entries + _chosen(attention.top_entries, "entries")
        case RecurrentAttention():
            state = attention.state_elements * attention.state_element_bytes
            return f"recurrent, state of {_bytes(state)}"
    return "none"


def _grouped(attention: GroupedAttention) -> Iterator[str]:
    yield f"grouped, {attention.heads} heads, {attention.kv_heads} KV heads of {attention.head_dim}"
    if attention.value_dim not in (None, attention.head_dim):
        yield f"values of {attention.value_dim}"
    if attention.window_tokens is not None:
        yield f"window {attention.window_tokens:,}"
    if attention.top_tokens is not None:
        yield f"top {attention.top_tokens:,} tokens"
    if attention.shared_kv:
        yield "value made from key"
    if attention.gated:
        yield "gated"


def _chosen(top: int | None, what: str) -> str:
    return "" if top is None else f", top {top:,} {what}"


def _feed_forward(part: FeedForward) -> str:
    match part:
        case Experts():
            text = f"{part.chosen} of {part.count} experts of {part.size:,}"
            shared = f", {part.shared_size:,} shared" if part.shared_size else ""
            return text + shared + (f", on {part.latent:,}" if part.latent else "")
        case Dense():
            return f"dense, {part.size:,}" if part.size else "none"


def _stored(report: ModelReport) -> str:
    parts = {"attention": report.attention_precision, "dense parts": report.dense_precision}
    other = [f"{part} in {precision}" for part, precision in parts.items() if precision != report.precision]
    return ", ".join([report.precision, *other])


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    return grid


def _title(title: str, name: str) -> str:
    return f"{escape(printable(title))} ({escape(printable(name))})"


def _lines(word: str, texts: Iterable[str]) -> list[RenderableType]:
    return [f"[dim]{word}:[/] {escape(printable(text))}" for text in texts if text]


def _count(number: float) -> str:
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:,.0f}"


def _bytes(number: float) -> str:
    for size, unit in ((GIB, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if number >= size:
            return f"{number / size:.4g} {unit}"
    return f"{number:.4g} B"


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:,.4g} GB/s"


def _tera(flops_per_s: float | None) -> str:
    return "-" if flops_per_s is None else f"{flops_per_s / 1e12:,.5g}"
