"""Who asks for what, and when? Arrivals, lengths and tenants put together, as a plan.

A plan is lazy and may be endless. It is a function of its arguments and the dice: arrivals and tenants
draw from dice of their own, so that another tenant in the mix moves nobody's arrivals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, repeat
from math import inf, isfinite
from random import Random
from typing import Protocol

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
    """What the model would say if nothing cut it short; at least 1."""
    max_tokens: int | None = None
    """What the client says is the most it wants; None if it does not say."""
    model: str = ""
    """The model name that is asked for; empty for the only one, or the usual one."""
    priority: str = ""
    """The class; empty for the tenant's own."""
    session: int | None = None
    """Requests with the same number are turns of one conversation."""
    turn: int = 0
    """Of the session, from 0."""
    prefix: tuple[int, ...] = ()
    """Chain ids of the prompt's full blocks: two prompts share those before the first id that differs."""
    prefix_block_tokens: int = 0
    """Tokens of one such block; 0 where there are none."""
    streams: bool = True


class Workload(Protocol):
    """What comes in, and what it does once it has been answered.

    A workload is used for one run: it may remember where each of its clients stands. Made again from the same
    settings and dice of the same seed, it does the same.
    """

    def starts(self) -> Iterator[PlannedRequest]:
        """Requests that come whatever becomes of others, ascending by `at_s`; may be endless."""

    def after(self, planned: PlannedRequest, ended_at_s: float, ok: bool) -> PlannedRequest | None:
        """What the client of `planned` does next, at or after `ended_at_s`, the end of it; None for nothing.

        To be asked once for each request that ended, whether it came from `starts` or from here. Retries of
        a failed request are not the workload's: `ok` tells how it ended for good.
        """


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
