"""What comes in during a run, by the options of the command?

A trace is replayed as it was, or faster, or with more of such clients; without one, arrivals are drawn. Who
asks is drawn by the tenants' shares, with dice of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from math import inf, isfinite
from pathlib import Path

import msgspec

from tidegate.config import Config
from tidegate.config.traces import known_pairs, known_trace
from tidegate.config.traffic_loading import Traffic, load_traffic
from tidegate.core.errors import ConfigurationError
from tidegate.core.records import Budgets
from tidegate.core.units import format_duration
from tidegate.workload.dice import dice
from tidegate.workload.laws.arrivals import Arrivals, Poisson, Renewal
from tidegate.workload.laws.gaps import Gamma
from tidegate.workload.laws.lengths import Lengths, same_lengths
from tidegate.workload.requests import (
    OpenLoop,
    PlannedRequest,
    TenantShare,
    Workload,
    plan_requests,
    replayed,
)
from tidegate.workload.traces.rows import TraceRow
from tidegate.workload.traces.scaling import at_rate, part_of

DEFAULT_RATE_PER_S, DEFAULT_PROMPT_TOKENS, DEFAULT_OUTPUT_TOKENS = 5.0, 512, 128
DEFAULT_FOR_S = 600.0
"""Of arrivals that are drawn; a trace is replayed to its end."""


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant of the load."""

    name: str
    share: float = 1.0
    model: str = ""
    priority: str = ""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What comes in; None where the option was not given."""

    trace: str | None = None
    """Name or path; None: arrivals are drawn."""
    from_s: float = 0.0
    for_s: float | None = None
    requests: int | None = None
    """At most so many."""
    rate_per_s: float | None = None
    """With a trace: as many of its clients as make that rate."""
    cv: float | None = None
    """Coefficient of variation of the gaps; None: Poisson, which has 1."""
    time_scale: float = 1.0
    spread: bool = False
    """Spread what shares an instant because the trace rounds its times."""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    lengths: str | None = None
    """Trace whose pairs of lengths are drawn from."""
    traffic: str | None = None
    """A traffic file, which says all but how long."""
    askers: tuple[Asker, ...]

    @property
    def span_s(self) -> float:
        """How long requests come, at most; inf if only their number ends it."""
        if self.trace is None:
            # Where only a number of requests was asked for, the number ends the run.
            return self.for_s or (inf if self.requests else DEFAULT_FOR_S)
        return inf if self.for_s is None else self.for_s

    def __str__(self) -> str:
        """In a line."""
        return ", ".join(_words(self))


def check(load: Load) -> None:
    """Raise ConfigurationError for what cannot be; a trace is read, and judged, here."""
    positive = [
        ("--rate", load.rate_per_s),
        ("--for", load.for_s),
        ("--time-scale", load.time_scale),
        ("--cv", load.cv),
    ]
    problems = [
        f"{name} is above 0, not {value:g}"
        for name, value in positive
        if value is not None and not 0 < value < inf
    ]
    counts = [
        ("--requests", load.requests),
        ("--prompt-tokens", load.prompt_tokens),
        ("--output-tokens", load.output_tokens),
    ]
    problems += [
        f"{name} is at least 1, not {value}" for name, value in counts if value is not None and value < 1
    ]
    if load.traffic is not None:
        problems += [
            f"{name} and --traffic: the file says it; leave one out" for name in _beside_traffic(load)
        ]
    elif load.trace is None:
        needless = [
            ("--from", load.from_s),
            ("--time-scale", load.time_scale != 1),
            ("--spread", load.spread),
        ]
        problems += [f"{name} is for traces; name one with --trace" for name, given in needless if given]
    elif load.cv is not None or load.lengths is not None:
        problems.append("--cv and --lengths are for arrivals that are drawn, not for a trace")
    if problems:
        raise ConfigurationError(problems)
    if load.traffic is not None:
        _traffic(load.traffic)
    if load.trace is not None:
        _rows(load, seed=0)
    if load.lengths is not None:
        known_pairs(load.lengths)


def check_names(load: Load, config: Config) -> None:
    """Raise ConfigurationError for tenants, classes and models of a traffic file that the fleet has not."""
    if load.traffic is not None:
        _traffic(load.traffic).check(config)


def budgets_of(load: Load, config: Config) -> dict[str, Budgets]:
    """Those that a traffic file has, by class of the configuration; none without such a file."""
    return {} if load.traffic is None else _traffic(load.traffic).budgets(config)


def workload_of(load: Load, seed: int) -> Workload:
    """The requests of one run; the same for the same load and seed."""
    if load.traffic is not None:
        return _traffic(load.traffic).workload(seed)
    shares = [TenantShare(asker.name, asker.share) for asker in load.askers]
    planned = _replayed(load, shares, seed) if load.trace is not None else _drawn(load, shares, seed)
    return OpenLoop(_addressed(islice(planned, load.requests), load.askers))


def span_of(load: Load) -> float:
    """Seconds from the start to the last request, about; for a progress bar and for samples."""
    if load.trace is not None:
        rows = _rows(load, seed=0)
        span_s = rows[-1].arrived_s
        return span_s * min(1.0, load.requests / len(rows)) if load.requests else span_s
    if load.requests is None:
        return load.span_s
    return min(load.span_s, load.requests / (load.rate_per_s or DEFAULT_RATE_PER_S))


def _drawn(load: Load, shares: Sequence[TenantShare], seed: int) -> Iterator[PlannedRequest]:
    rate = DEFAULT_RATE_PER_S if load.rate_per_s is None else load.rate_per_s
    arrivals: Arrivals = Poisson(rate) if load.cv is None else Renewal.steady(rate, Gamma(load.cv))
    prompt, output = load.prompt_tokens, load.output_tokens
    lengths: Iterable[Lengths]
    if load.lengths is None:
        lengths = same_lengths(prompt or DEFAULT_PROMPT_TOKENS, output or DEFAULT_OUTPUT_TOKENS)
    else:
        drawn = known_pairs(load.lengths).lengths(dice(seed, "lengths"))
        lengths = (Lengths(prompt or own.prompt_tokens, output or own.output_tokens) for own in drawn)
    return plan_requests(arrivals, lengths, dice(seed, "arrivals"), tenants=shares, for_s=load.span_s)


def _replayed(load: Load, shares: Sequence[TenantShare], seed: int) -> Iterator[PlannedRequest]:
    return replayed(_rows(load, seed), dice(seed, "tenants"), tenants=shares, name=load.trace or "")


def _rows(load: Load, seed: int) -> list[TraceRow]:
    """The part of a trace that is replayed, at its new speed and rate."""
    trace = load.trace or ""
    for_s = inf if load.for_s is None else load.for_s
    step_rng = dice(seed, "spread") if load.spread else None
    found = part_of(known_trace(trace), load.from_s, for_s, load.time_scale, step_rng)
    if not found:
        raise ConfigurationError([f"trace {trace}: nothing arrives where --from and --for point"])
    if load.rate_per_s is not None:
        factor = load.rate_per_s / _rate_of(found, trace)
        try:
            found = at_rate(found, factor, seed)
        except ConfigurationError as error:
            problems = [f"--rate {load.rate_per_s:g} of trace {trace}: {text}" for text in error.problems]
            raise ConfigurationError(problems) from None
    if load.prompt_tokens is None and load.output_tokens is None:
        return found
    return [_resized(row, load.prompt_tokens, load.output_tokens) for row in found]


def _rate_of(rows: Sequence[TraceRow], trace: str) -> float:
    span_s = rows[-1].arrived_s
    if len(rows) < 2 or span_s <= 0:
        raise ConfigurationError([f"trace {trace}: too few requests to have a rate; leave out --rate"])
    return (len(rows) - 1) / span_s


def _resized(row: TraceRow, prompt_tokens: int | None, output_tokens: int | None) -> TraceRow:
    """With other lengths. A prompt of another length is another prompt, and shares nothing."""
    if output_tokens is not None:
        row = msgspec.structs.replace(row, output_tokens=output_tokens)
    if prompt_tokens is not None:
        row = msgspec.structs.replace(row, prompt_tokens=prompt_tokens, prefix=(), prefix_block_tokens=0)
    return row


def _addressed(planned: Iterable[PlannedRequest], askers: Sequence[Asker]) -> Iterator[PlannedRequest]:
    """Each asks for its tenant's model and class."""
    special = {asker.name: asker for asker in askers if asker.model or asker.priority}
    if not special:
        return iter(planned)
    return (
        msgspec.structs.replace(each, model=own.model, priority=own.priority)
        if (own := special.get(each.tenant))
        else each
        for each in planned
    )


@lru_cache(maxsize=4)
def _traffic(name: str) -> Traffic:
    return load_traffic(Path(name))


def _beside_traffic(load: Load) -> Iterator[str]:
    """Options that a traffic file leaves no room for."""
    for field in msgspec.structs.fields(Load):
        if field.name not in ("traffic", "for_s", "askers") and getattr(load, field.name) != field.default:
            yield "--" + field.name.removesuffix("_s").removesuffix("_per").replace("_", "-")


def _words(load: Load) -> Iterator[str]:
    if load.traffic is not None:
        yield f"traffic {load.traffic}"
    elif load.trace is not None:
        yield f"trace {load.trace}"
        if load.from_s:
            yield f"from {format_duration(load.from_s)} on"
        if load.spread:
            yield "spread"
        if load.time_scale != 1:
            yield f"{load.time_scale:g} times as fast"
        if load.rate_per_s is not None:
            yield f"at {load.rate_per_s:g} requests/s"
    else:
        rate = DEFAULT_RATE_PER_S if load.rate_per_s is None else load.rate_per_s
        yield f"{rate:g} requests/s, " + ("Poisson" if load.cv is None else f"gaps of CV {load.cv:g}")
    if load.lengths is not None:
        yield f"lengths of {load.lengths}"
    sized = load.trace is None and load.lengths is None and load.traffic is None
    prompt = load.prompt_tokens or (DEFAULT_PROMPT_TOKENS if sized else None)
    output = load.output_tokens or (DEFAULT_OUTPUT_TOKENS if sized else None)
    if prompt is not None:
        yield f"{prompt} prompt tokens"
    if output is not None:
        yield f"{output} output tokens"
    if load.requests is not None:
        yield f"{load.requests} requests"
    if isfinite(load.span_s):
        yield f"for {format_duration(load.span_s)}"
