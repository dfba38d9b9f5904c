"""What came of a calibration, as a profile file and for people?"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tidegate.calibrate.advice import LETTERS, Judged, warnings_of
from tidegate.calibrate.points import Point
from tidegate.calibrate.repeats import repeat_errors, undisturbed
from tidegate.calibrate.sources import Found
from tidegate.calibrate.told import MAX_BATCHED_TOKENS, Told
from tidegate.config.profiles import Measured, ProfileFile, Span
from tidegate.core.curve import Linear
from tidegate.core.errors import ConfigurationError
from tidegate.core.text import printable
from tidegate.core.units import format_latency, format_number
from tidegate.perf.regression import OVERHEAD, Fit, fit
from tidegate.sim.settings import ReplicaSettings

BLOCK_TOKENS = 16


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Points of one name: seconds of a step, or of a whole prompt, in the mean."""

    name: str
    held_out: bool
    points: int
    sequences: float
    context_tokens: float
    measured_s: float
    fitted_s: float
    error_ratio: float
    """Mean of the points' own relative errors, without their signs."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A calibration in figures."""

    source: str
    file: str
    profile: ProfileFile
    first_token_overhead_s: float
    held_out_error_ratio: float | None
    fitted_error_ratio: float
    beyond: tuple[str, ...]
    """What the replica's bounds allow that was not measured."""
    rows: tuple[Row, ...]


def report_of(of: Found, *, file: str, date: str) -> Report:
    """Fit what is not held out, and judge the line by what is. ConfigurationError for too few points."""
    points = undisturbed(of.points) if of.repeated else of.points
    fitted = [each for each in points if not each.held_out]
    held_out = [each for each in points if each.held_out]
    found = fit([each.observation for each in fitted])
    errors = [abs(found.error(each.observation)) for each in held_out]
    repeats = repeat_errors(held_out) if of.repeated else []
    judged = Judged(
        error_ratio=fmean(errors) if errors else None,
        repeat_error_ratio=fmean(repeats) if repeats else None,
        disturbed_ratio=1 - len(points) / len(of.points),
        whole_error_ratio=_mean_error(found, [each for each in of.points if each.held_out]),
    )
    replica, assumed = _replica(points, of.told)
    measured = Measured(
        source=of.source,
        date=date,
        points=len(fitted),
        held_out_points=len(held_out),
        held_out_error_ratio=_rounded(judged.error_ratio),
        held_out_worst_ratio=_rounded(max(errors, default=None)),
        repeat_error_ratio=_rounded(judged.repeat_error_ratio),
        disturbed_ratio=round(judged.disturbed_ratio, 4),
        sequences=_span([each.sequences for each in points if not each.prompt_tokens]),
        context_tokens=_span([each.context_tokens for each in points if not each.prompt_tokens]),
        sequence_tokens=_span([each.context_tokens / each.sequences for each in points if _decodes(each)]),
        prompt_tokens=_prompts(points),
        first_token_overhead_s=_digits(found.first_token_overhead_s),
        standard_errors={name: _digits(each) for name, each in found.standard_errors.items()},
        assumed=assumed,
        warnings=(*of.missing, *warnings_of(found, points, judged)),
    )
    curve = Linear(**{name: _digits(getattr(found.curve, name)) for name in Linear.__struct_fields__})
    profile = ProfileFile(curve=curve, replica=replica, measured=measured)
    return Report(
        source=of.source,
        file=file,
        profile=profile,
        first_token_overhead_s=measured.first_token_overhead_s,
        held_out_error_ratio=measured.held_out_error_ratio,
        fitted_error_ratio=_mean_error(found, fitted) or 0.0,
        beyond=tuple(profile.beyond()),
        rows=_rows(points, found),
    )


def _mean_error(found: Fit, points: Sequence[Point]) -> float | None:
    return fmean(abs(found.error(each.observation)) for each in points) if points else None


def _replica(points: Sequence[Point], told: Told) -> tuple[ReplicaSettings, tuple[str, ...]]:
    """Bounds as they are told, else no more than was measured; and which of them that is."""
    decoded = [each for each in points if _decodes(each)]
    if not decoded:
        raise ConfigurationError(["no decode steps were measured: ask for answers of 32 tokens or more"])
    seats = told.max_num_seqs or max(1, round(max(each.sequences for each in decoded)))
    longest = max(each.context_tokens / each.sequences for each in decoded)
    context = told.context_tokens or int(max(longest, *(each.prompt_tokens for each in points)))
    block = told.block_tokens or BLOCK_TOKENS
    most = int(max(each.context_tokens for each in decoded))
    settings = ReplicaSettings(
        max_num_seqs=seats,
        max_batched_tokens=told.max_batched_tokens or max(MAX_BATCHED_TOKENS, seats),
        kv_tokens=told.kv_tokens or max(most, context, block),
        context_tokens=context,
        block_tokens=block,
        prefix_cache=told.prefix_cache,
    )
    names = ("max_num_seqs", "max_batched_tokens", "kv_tokens", "context_tokens")
    return settings, tuple(name for name in names if getattr(told, name) is None)


def _decodes(point: Point) -> bool:
    return not point.prompt_tokens and point.sequences > 0


def _span(values: Sequence[float]) -> Span:
    return Span(least=_digits(min(values)), most=_digits(max(values)))


def _prompts(points: Sequence[Point]) -> Span | None:
    """Of prompts alone; of those computed beside others nobody knows the lengths well."""
    lengths = [each.prompt_tokens for each in points if each.prompt_tokens]
    return _span(lengths) if lengths else None


def _digits(value: float) -> float:
    """As many as mean something."""
    return float(f"{value:.5g}")


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 4)


def _rows(points: Sequence[Point], found: Fit) -> tuple[Row, ...]:
    by_name: dict[tuple[bool, bool, str], list[Point]] = {}
    for each in points:
        by_name.setdefault((bool(each.prompt_tokens), each.held_out, each.name), []).append(each)
    rows = [_row(name, held_out, own, found) for (_, held_out, name), own in by_name.items()]
    prompts = {name for is_prompt, _, name in by_name if is_prompt}
    return tuple(
        sorted(rows, key=lambda row: (row.name in prompts, row.sequences, row.context_tokens, row.measured_s))
    )


def _row(name: str, held_out: bool, points: Sequence[Point], found: Fit) -> Row:
    fitted = [each.step_s * (1 + found.error(each.observation)) for each in points]
    return Row(
        name=name,
        held_out=held_out,
        points=len(points),
        sequences=fmean(each.sequences for each in points),
        context_tokens=fmean(each.context_tokens for each in points),
        measured_s=fmean(each.step_s for each in points),
        fitted_s=fmean(fitted),
        error_ratio=fmean(abs(found.error(each.observation)) for each in points),
    )


# -- for the terminal -----------------------------------------------------------------------------


def as_text(report: Report) -> RenderableType:
    """A sentence, the points, the constants, what is wrong, and where the profile is."""
    parts: list[RenderableType] = [Text(_sentence(report)), _points(report), _constants(report)]
    measured = report.profile.measured
    assert measured is not None
    notes = [*measured.warnings]
    if measured.assumed:
        settings = msgspec.structs.asdict(report.profile.replica)
        taken = ", ".join(f"{name} {settings[name]:,}" for name in measured.assumed)
        notes.append(f"not told by the engine, and assumed: {taken}; options of these names say better")
    if "max_batched_tokens" in measured.assumed:
        notes.append(_BUDGET)
    if report.beyond:
        notes.append(f"extrapolated up to {', '.join(report.beyond)}")
    parts += [Text(f"- {printable(note)}", style="yellow") for note in notes]
    parts.append(Text(f"written to {printable(report.file)}"))
    return Group(*parts)


_BUDGET = (
    "max_batched_tokens is how long prompts are cut into steps: vLLM takes 8,192 by itself on GPUs of 70 GiB "
    "and more, 16,384 from 160 GiB, and 2,048 on others and on an A100; its log says which as it starts, and "
    "--max-batched-tokens takes it"
)


def _sentence(report: Report) -> str:
    measured = report.profile.measured
    assert measured is not None
    told = f"{printable(report.source)}: {measured.points} points fitted, {report.fitted_error_ratio:.1%} off"
    if measured.held_out_error_ratio is None or measured.held_out_worst_ratio is None:
        return f"{told}; none held out."
    mean, worst = measured.held_out_error_ratio, measured.held_out_worst_ratio
    return f"{told}; {measured.held_out_points} held out, {mean:.1%} off in the mean and {worst:.1%} at most."


def _points(report: Report) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("sequences x prompt, or a prompt alone")
    for name in ("points", "context", "measured", "fitted", "error", ""):
        table.add_column(name, justify="right")
    for row in report.rows:
        context = format_number(row.context_tokens) if row.context_tokens else "-"
        times = (format_latency(row.measured_s), format_latency(row.fitted_s))
        kept = "held out" if row.held_out else ""
        table.add_row(escape(row.name), f"{row.points}", context, *times, f"{row.error_ratio:.1%}", kept)
    return table


def _constants(report: Report) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("constant", "seconds", "standard error"):
        table.add_column(name, justify="left" if name == "constant" else "right")
    measured = report.profile.measured
    assert measured is not None
    values = msgspec.structs.asdict(report.profile.curve) | {OVERHEAD: report.first_token_overhead_s}
    for name, value in values.items():
        error = measured.standard_errors.get(name)
        shown = "-" if error is None else f"{error:.2g}"
        table.add_row(LETTERS[name], f"{value:.4g}", shown)
    return table
