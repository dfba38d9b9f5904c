"""What would come of the three runs? The same configuration and requests, before simulated engines.

The governor is the gateway's own. Engines compute what the emulated ones compute: a prompt with the tokens of
its chat template, and an answer of the length that the client asked for and named as its most.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidegate.bench.load import UNFINISHED, LoadRecord
from tidegate.bench.prompts import BYTES_PER_TOKEN
from tidegate.config import Config
from tidegate.core.records import RequestRecord
from tidegate.demo.neighbours import scenario
from tidegate.demo.neighbours.comparison import Comparison, compare, quota_of
from tidegate.demo.neighbours.figures import RunFigures, figures_of
from tidegate.demo.neighbours.scenario import CONFIG, DRAIN_S, RULES, Contest, Rule
from tidegate.demo.neighbours.seen import Seen
from tidegate.demo.stage import shipped
from tidegate.emulator.words import TEMPLATE_TOKENS
from tidegate.sim.network import Network
from tidegate.sim.run import simulate
from tidegate.sim.scenario import Scenario
from tidegate.simulate.fleet import scenario_of
from tidegate.workload.requests import OpenLoop, PlannedRequest

MESSAGE_BYTES = len(msgspec.json.encode([{"role": "user", "content": ""}]))
"""Around a prompt; a gateway, which does not tokenise, counts them too."""


def simulated(contest: Contest) -> Comparison:
    """All three runs, to the byte the same for the same contest."""
    requests = scenario.traffic(contest.seed, contest.for_s, contest.speed)
    config = shipped(CONFIG)
    runs = []
    for rule in RULES:
        records = _run(_fleet(config, rule, contest), scenario.under(rule, requests), contest)
        runs.append(figures_of(rule, records, contest.speed, contest.for_s))
    return compare(
        runs,
        quota_of(config),
        seed=contest.seed,
        speed=contest.speed,
        complete=True,
        simulated=True,
    )


def simulated_again(seen: Seen, contest: Contest, network: Network, times: int) -> RunFigures:
    """One run with the requests as they reached a live gateway, so many times with other dice, all together.

    A run under overload is chaotic: a millisecond decides who comes before a prompt of three seconds. All
    together say what follows from the scenario, whatever the millisecond.
    """
    seeds = range(contest.seed * times, (contest.seed + 1) * times)
    again = [msgspec.structs.replace(contest, seed=seed) for seed in seeds]
    fleet = msgspec.structs.replace(_fleet(shipped(CONFIG), seen.rule, contest), network=network)
    records = [record for each in again for record in _run(fleet, seen.requests, each)]
    return figures_of(seen.rule, records, contest.speed, contest.for_s * times)


def _fleet(config: Config, rule: Rule, contest: Contest) -> Scenario:
    return scenario_of(scenario.ruled(config, rule, contest.speed))


def _run(fleet: Scenario, requests: Sequence[PlannedRequest], contest: Contest) -> list[LoadRecord]:
    ended: list[RequestRecord] = []
    simulate(fleet, OpenLoop(map(as_computed, requests)), contest.seed, on_record=ended.append)
    over_at = (requests[-1].at_s if requests else 0.0) + DRAIN_S / contest.speed
    return [_as_a_client_saw(record, over_at) for record in ended]


def as_computed(planned: PlannedRequest) -> PlannedRequest:
    """What an engine and a gateway make of what `tidegate bench` sends."""
    return msgspec.structs.replace(
        planned,
        prompt_tokens=planned.prompt_tokens + TEMPLATE_TOKENS,
        prompt_bytes=round(planned.prompt_tokens * BYTES_PER_TOKEN) + MESSAGE_BYTES,
        max_tokens=planned.output_tokens,
    )


def _as_a_client_saw(record: RequestRecord, over_at: float) -> LoadRecord:
    """A client that sends in time and, at the end of the run, waits no longer."""
    known = msgspec.structs.asdict(record)
    if record.ended_at <= over_at:
        error = "" if record.ok else f"http_{record.status}"
    else:
        error = UNFINISHED
        first_at = record.first_token_at
        known |= {
            "ended_at": over_at,
            "first_token_at": first_at if first_at is not None and first_at <= over_at else None,
            "status": 0,
            "reason": None,
        }
    known["dispatched_at"] = record.arrived_at
    return LoadRecord(**known, asked_tokens=record.output_tokens, error=error)
