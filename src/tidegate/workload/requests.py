"""Who asks for what, and when? Arrivals, lengths and tenants put together, as a plan.

A plan is lazy and may be endless. It is a function of its arguments and the dice: arrivals and tenants
draw from dice of their own, so that another tenant in the mix moves nobody's arrivals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from math import inf, isfinite
from random import Random
from typing import Protocol

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.workload.dice import recorded_number, source_number
from tidegate.workload.laws.arrivals import Arrivals
from tidegate.workload.laws.lengths import Lengths
from tidegate.workload.traces.rows import TraceRow


class PlannedRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request that is to be made `at_s` seconds into the run."""

    at_s: float
    tenant: str = "default"
    prompt_tokens: int
    prompt_bytes: int | None = None
    """Of the prompt's text; None: as many as that many tokens usually have."""
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


class OpenLoop:
    """Requests that come whatever becomes of others: a plan, or a trace as it was."""

    def __init__(self, requests: Iterable[PlannedRequest]) -> None:
        """`requests` ascend by `at_s`."""
        self._requests = requests

    def starts(self) -> Iterator[PlannedRequest]:
        """All of them."""
        return iter(self._requests)

    def after(self, planned: PlannedRequest, ended_at_s: float, ok: bool) -> None:
        """Nothing: nobody waits for an answer."""


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and for what model: what all requests of one source have in common."""

    tenant: str = "default"
    priority: str = ""
    """The class; empty for the tenant's own."""
    model: str = ""
    max_tokens: int | None = None
    streams: bool = True

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ConfigurationError(
                [f"tenant {self.tenant!r}: max_tokens is at least 1, not {self.max_tokens}"]
            )

    def request(
        self,
        at_s: float,
        lengths: Lengths,
        *,
        session: int | None = None,
        turn: int = 0,
        prefix: tuple[int, ...] = (),
        prefix_block_tokens: int = 0,
        streams: bool | None = None,
    ) -> PlannedRequest:
        """One request of it, of a conversation if `session` says so; `streams` None: as its others."""
        return PlannedRequest(
            at_s=at_s,
            tenant=self.tenant,
            prompt_tokens=lengths.prompt_tokens,
            output_tokens=lengths.output_tokens,
            max_tokens=self.max_tokens,
            model=self.model,
            priority=self.priority,
            session=session,
            turn=turn,
            prefix=prefix,
            prefix_block_tokens=prefix_block_tokens,
            streams=self.streams if streams is None else streams,
        )


SENDER = Sender()
"""Who asks where nobody is named."""


class TenantShare(msgspec.Struct, frozen=True):
    """A tenant, and how often it asks beside the others."""

    name: str
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not (isfinite(self.weight) and self.weight > 0):
            raise ConfigurationError([f"tenant {self.name!r}: a weight is above 0, not {self.weight:g}"])


def plan_requests(
    arrivals: Arrivals,
    lengths: Iterable[Lengths],
    rng: Random,
    *,
    tenants: Sequence[TenantShare] | None = None,
    for_s: float = inf,
) -> Iterator[PlannedRequest]:
    """Requests in order of arrival, as far as arrivals and lengths reach, before `for_s`."""
    arrival_rng, tenant_rng = Random(rng.getrandbits(64)), Random(rng.getrandbits(64))
    draw = _sender_of(SENDER, tenants, tenant_rng)
    for at_s, length in zip(arrivals.instants(arrival_rng), lengths, strict=False):
        if at_s >= for_s:
            return
        yield draw().request(at_s, length)


def sent(
    sender: Sender, arrivals: Arrivals, lengths: Iterable[Lengths], rng: Random
) -> Iterator[PlannedRequest]:
    """Requests of one sender, in order of arrival, as far as arrivals and lengths reach."""
    return (
        sender.request(at_s, length) for at_s, length in zip(arrivals.instants(rng), lengths, strict=False)
    )


def replayed(
    rows: Iterable[TraceRow],
    rng: Random,
    *,
    sender: Sender = SENDER,
    tenants: Sequence[TenantShare] | None = None,
    name: str = "trace",
) -> Iterator[PlannedRequest]:
    """Requests of `sender` as a trace has them, prefixes included; of `tenants` one is drawn a conversation.

    A conversation is replayed at its recorded instants, however long its answers take now. `name` tells its
    sessions and blocks from another trace's. The trace's model names are left out: they are those of
    another fleet.
    """
    draw, source = _sender_of(sender, tenants, rng), source_number(name)
    speakers: dict[int, Sender] = {}
    for row in rows:
        if row.session is None:
            speaker = draw()
        elif (known := speakers.get(row.session)) is None:
            speaker = speakers[row.session] = draw()
        else:
            speaker = known
        yield speaker.request(
            row.arrived_s,
            Lengths.asked(row.prompt_tokens, row.output_tokens),
            session=None if row.session is None else recorded_number(source, row.session),
            turn=row.turn,
            prefix=tuple(recorded_number(source, block) for block in row.full_prefix),
            prefix_block_tokens=row.prefix_block_tokens,
        )


def _sender_of(sender: Sender, tenants: Sequence[TenantShare] | None, rng: Random) -> Callable[[], Sender]:
    """Who asks next: `sender` in the name of a tenant that is drawn; in its own where there are none."""
    if tenants is None:
        return lambda: sender
    if not tenants:
        raise ConfigurationError(["a plan needs at least one tenant"])
    senders = [msgspec.structs.replace(sender, tenant=tenant.name) for tenant in tenants]
    bounds = list(accumulate(tenant.weight for tenant in tenants))
    return lambda: rng.choices(senders, cum_weights=bounds)[0]
