"""Does a simulation say what a live run showed?

Judged by the others' TTFT at the gateway: mean, P50 and P95 of each run. Live and simulated gateways get the
same requests at the same instants, and the wire of the simulation takes as long as the live one did.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidegate.core.records import Distribution
from tidegate.demo.neighbours.comparison import Comparison, Quota, slowdown
from tidegate.demo.neighbours.figures import RunFigures
from tidegate.demo.neighbours.scenario import Contest
from tidegate.demo.neighbours.seen import Played
from tidegate.demo.neighbours.simulating import simulated_again
from tidegate.demo.neighbours.wire import network_of

TOLERANCE = 0.15
JUDGED = ("mean", "p50", "p95")
TIMES = 10
"""How often each run is simulated, with other dice."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One run as told by one side, in the scenario's own seconds."""

    ttft_s: Distribution
    """Of the others."""
    slowdown: float
    """Their P95 over that of the run without the noisy tenant."""
    quota_ratio: float
    """What the noisy tenant got, over rate x time of its token limit."""


class RunAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """One run as told by all."""

    rule: str
    clients: Side
    """Live, from the planned instant."""
    gateway: Side
    """Live, from arrival."""
    simulated: Side
    differences: dict[str, float]
    """Of simulated TTFT from the gateway's, as a ratio of the latter, by statistic."""


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    live: Comparison
    round_trip_s: Distribution
    """Between gateways and engines, as measured meanwhile, in seconds as they passed."""
    runs: list[RunAgreement]
    tolerance: float
    same_ranking: bool
    """By the others' P95, best first, the runs come in the same order."""
    within: bool
    """No difference is beyond the tolerance."""

    @property
    def agrees(self) -> bool:
        """Whether the simulation said what the live run showed."""
        return self.same_ranking and self.within


def simulate_played(played: Played, contest: Contest) -> Agreement:
    """Simulate what was played, and compare."""
    network = network_of(played.round_trips_s)
    again = [simulated_again(seen, contest, network, TIMES) for seen in played.seen]
    live = played.comparison
    at_gateway = [Distribution.of(ttft_s * contest.speed for ttft_s in seen.ttfts_s) for seen in played.seen]
    return agreement_of(live, at_gateway, again, Distribution.of(played.round_trips_s))


def agreement_of(
    live: Comparison,
    at_gateway: Sequence[Distribution],
    simulated: Sequence[RunFigures],
    round_trip_s: Distribution,
) -> Agreement:
    """In the order of the rules: without the noisy tenant, request limits, token limits."""
    runs = [
        RunAgreement(
            rule=told.rule,
            clients=_side(told.others.ttft_s, live.baseline.others.ttft_s, told, live.quota),
            gateway=_side(ttft_s, at_gateway[0], told, live.quota),
            simulated=_side(again.others.ttft_s, simulated[0].others.ttft_s, again, live.quota),
            differences={
                name: getattr(again.others.ttft_s, name) / getattr(ttft_s, name) - 1 for name in JUDGED
            },
        )
        for told, ttft_s, again in zip(
            (live.baseline, live.by_requests, live.by_tokens), at_gateway, simulated, strict=True
        )
    ]
    return Agreement(
        live=live,
        round_trip_s=round_trip_s,
        runs=runs,
        tolerance=TOLERANCE,
        same_ranking=_ranking([run.gateway for run in runs]) == _ranking([run.simulated for run in runs]),
        within=all(abs(each) <= TOLERANCE for run in runs for each in run.differences.values()),
    )


def _side(ttft_s: Distribution, baseline_s: Distribution, run: RunFigures, quota: Quota) -> Side:
    return Side(ttft_s=ttft_s, slowdown=slowdown(ttft_s, baseline_s), quota_ratio=quota.ratio(run))


def _ranking(sides: Sequence[Side]) -> list[int]:
    return sorted(range(len(sides)), key=lambda number: sides[number].ttft_s.p95)
