"""What did a gateway see of its run, and what would a simulated one have to be shown to see the same?

Clients count from the instant at which a request was planned, so that every delay shows. The gateway's TTFT
counts from arrival, as everywhere (see the glossary), and so does a simulated gateway's: these two are alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tidegate.bench.load import LoadRecord
from tidegate.core.records import RequestRecord
from tidegate.demo.neighbours.comparison import Comparison
from tidegate.demo.neighbours.scenario import NOISY, Rule
from tidegate.workload.requests import PlannedRequest


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway's run, in seconds as they passed."""

    rule: Rule
    requests: list[PlannedRequest]
    """At the instants at which they arrived."""
    ttfts_s: list[float]
    """Of the others, from arrival."""


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """A live run of all three."""

    comparison: Comparison
    seen: list[Seen]
    """By each of the gateways, in the order of the rules."""
    round_trips_s: list[float]
    """Between gateways and engines, meanwhile; see `wire`."""


def seen_of(
    rule: Rule,
    requests: Sequence[PlannedRequest],
    by_clients: Sequence[LoadRecord],
    by_gateway: Sequence[RequestRecord],
) -> Seen:
    """`requests` are all that were planned under that rule; some may not have been sent."""
    arrived = sorted(_arrived(requests, by_clients, by_gateway), key=lambda planned: planned.at_s)
    return Seen(
        rule=rule,
        requests=arrived,
        ttfts_s=[
            ttft_s
            for record in by_gateway
            if record.tenant != NOISY and (ttft_s := record.ttft_s) is not None
        ],
    )


def _arrived(
    requests: Sequence[PlannedRequest], by_clients: Sequence[LoadRecord], by_gateway: Sequence[RequestRecord]
) -> Iterator[PlannedRequest]:
    """A tenant's requests arrive in the order in which they were planned, but for a few that overtake."""
    sent = sorted(each.request_id for each in by_clients if each.dispatched_at is not None)
    started_at = next((each.arrived_at - requests[each.request_id].at_s for each in by_clients), 0.0)
    instants: dict[str, list[float]] = {}
    for record in sorted(by_gateway, key=lambda record: record.arrived_at):
        instants.setdefault(record.tenant, []).append(record.arrived_at - started_at)
    waiting = {tenant: iter(each) for tenant, each in instants.items()}
    for number in sent:
        planned = requests[number]
        at_s = next(waiting.get(planned.tenant, iter(())), None)
        if at_s is not None:
            yield msgspec.structs.replace(planned, at_s=at_s)
