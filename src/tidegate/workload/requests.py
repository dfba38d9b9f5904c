"""Who asks for what, and when? Arrivals, lengths and tenants put together, as a plan.

A plan is lazy and may be endless. It is a function of its arguments and the dice: arrivals and tenants
draw from dice of their own, so that another tenant in the mix moves nobody's arrivals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, repeat
from math import inf, isfinite
from random import Random

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.workload.arrivals import Arrivals
from tidegate.workload.traces import TraceRow


class PlannedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request that is to be made `at_s` seconds into the run."""

    at_s: float
    tenant: str = "default"
    prompt_tokens: int
    output_tokens: int


class Lengths(msgspec.Struct, frozen=True):
    """Tokens of one request, each at least 1."""

    prompt_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        for name, tokens in (("prompt", self.prompt_tokens), ("output", self.output_tokens)):
            if tokens < 1:
                raise ConfigurationError([f"a request has at least 1 {name} token, not {tokens}"])


class TenantShare(msgspec.Struct, frozen=True):
    """A tenant, and how often it asks beside the others."""

    name: str
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not (isfinite(self.weight) and self.weight > 0):
            raise ConfigurationError([f"tenant {self.name!r}: a weight is above 0, not {self.weight:g}"])


def same_lengths(prompt_tokens: int, output_tokens: int) -> Iterator[Lengths]:
    """The same lengths for every request, without end."""
    return repeat(Lengths(prompt_tokens, output_tokens))


def trace_lengths(rows: Iterable[TraceRow]) -> Iterator[Lengths]:
    """The pairs of a trace, row by row. A length of 0 cannot be asked for, and becomes 1."""
    return (Lengths(max(1, row.prompt_tokens), max(1, row.output_tokens)) for row in rows)


def plan_requests(
    arrivals: Arrivals,
    lengths: Iterable[Lengths],
    rng: Random,
    *,
    tenants: Sequence[TenantShare] = (TenantShare("default"),),
    for_s: float = inf,
) -> Iterator[PlannedRequest]:
    """Requests in order of arrival, as far as arrivals and lengths reach, before `for_s`."""
    if not tenants:
        raise ConfigurationError(["a plan needs at least one tenant"])
    arrival_rng, tenant_rng = Random(rng.getrandbits(64)), Random(rng.getrandbits(64))
    names = [tenant.name for tenant in tenants]
    bounds = list(accumulate(tenant.weight for tenant in tenants))
    for at_s, length in zip(arrivals.instants(arrival_rng), lengths, strict=False):
        if at_s >= for_s:
            return
        yield PlannedRequest(
            at_s=at_s,
            tenant=tenant_rng.choices(names, cum_weights=bounds)[0],
            prompt_tokens=length.prompt_tokens,
            output_tokens=length.output_tokens,
        )
