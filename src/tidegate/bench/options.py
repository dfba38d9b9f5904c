"""What do the options of a run mean, and which of them cannot be?"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from random import Random

from tidegate.config.traces import load_trace
from tidegate.core.errors import ConfigurationError
from tidegate.core.records import Budgets
from tidegate.core.units import seconds_of
from tidegate.workload.laws.arrivals import Arrivals, Constant, Poisson, Replay
from tidegate.workload.laws.lengths import Lengths, same_lengths, trace_lengths
from tidegate.workload.requests import PlannedRequest, TenantShare, plan_requests
from tidegate.workload.traces.rows import TraceRow
from tidegate.workload.traces.scaling import part_of

DEFAULT_RATE_PER_S, DEFAULT_PROMPT_TOKENS, DEFAULT_OUTPUT_TOKENS = 5.0, 512, 128


def budgets_of(ttft: str | None, tpot: str | None, e2e: str | None, stream: bool) -> Budgets:
    """Budgets as durations; None leaves one out."""
    if not stream and (ttft or tpot):
        raise ConfigurationError(["--ttft and --tpot need streams: a whole answer shows no first token"])
    return Budgets(
        ttft_s=seconds_of("--ttft", ttft) if ttft else None,
        tpot_s=seconds_of("--tpot", tpot) if tpot else None,
        e2e_s=seconds_of("--e2e", e2e) if e2e else None,
    )


def tenants_of(text: str, api_key: str) -> tuple[list[TenantShare], dict[str, str]]:
    """Shares and keys of `name[*weight]=key,...`; without any, one tenant with the API key."""
    if not text:
        return [TenantShare("default")], {"default": api_key} if api_key else {}
    shares, keys = [], {}
    for part in text.split(","):
        left, _, key = part.strip().partition("=")
        name, star, weight = left.partition("*")
        if not name or name in keys:
            raise ConfigurationError(
                [f"--tenants: {left!r} is no tenant, or stands twice; write name=key,..."]
            )
        try:
            shares.append(TenantShare(name, float(weight) if star else 1.0))
        except ValueError:
            raise ConfigurationError([f"--tenants: {weight!r} is not a weight, as in {name}*3=KEY"]) from None
        keys[name] = key
    return shares, keys


def plan_of(
    arrivals: str,
    rate: float | None,
    seed: int,
    *,
    tenants: list[TenantShare],
    for_s: float,
    from_s: float = 0.0,
    time_scale: float = 1.0,
    prompt_tokens: int | None = None,
    output_tokens: int | None = None,
) -> Iterator[PlannedRequest]:
    """The requests of a run; a trace is read, and judged, before the first."""
    if for_s <= 0:
        raise ConfigurationError(["--for is above 0"])
    rows = _rows(arrivals, rate, from_s, for_s, time_scale)
    lengths = _lengths(rows, prompt_tokens, output_tokens)
    return plan_requests(_arrivals(arrivals, rate, rows), lengths, Random(seed), tenants=tenants, for_s=for_s)


def _rows(
    arrivals: str, rate: float | None, from_s: float, for_s: float, time_scale: float
) -> list[TraceRow] | None:
    """The part of a trace that is replayed, at its new speed; None for arrivals that are made up."""
    if arrivals in ("poisson", "constant"):
        if from_s or time_scale != 1:
            raise ConfigurationError(
                [f"--from and --time-scale are for traces, not for --arrivals {arrivals}"]
            )
        return None
    if rate is not None:
        raise ConfigurationError(["--rate is for poisson and constant; a trace is sped up by --time-scale"])
    if not 0 < time_scale < inf:
        raise ConfigurationError([f"--time-scale is above 0, not {time_scale:g}"])
    rows = part_of(load_trace(arrivals), from_s, for_s, time_scale)
    if not rows:
        raise ConfigurationError([f"trace {arrivals}: nothing arrives where --from and --for point"])
    return rows


def _arrivals(arrivals: str, rate: float | None, rows: list[TraceRow] | None) -> Arrivals:
    if rows is not None:
        return Replay(rows)
    rate_per_s = DEFAULT_RATE_PER_S if rate is None else rate
    return Poisson(rate_per_s) if arrivals == "poisson" else Constant(rate_per_s)


def _lengths(
    rows: list[TraceRow] | None, prompt_tokens: int | None, output_tokens: int | None
) -> Iterator[Lengths]:
    """The trace's pairs, either side replaced by what was given."""
    if rows is None:
        prompt = DEFAULT_PROMPT_TOKENS if prompt_tokens is None else prompt_tokens
        return same_lengths(prompt, DEFAULT_OUTPUT_TOKENS if output_tokens is None else output_tokens)
    return (
        Lengths(
            own.prompt_tokens if prompt_tokens is None else prompt_tokens,
            own.output_tokens if output_tokens is None else output_tokens,
        )
        for own in trace_lengths(rows)
    )
