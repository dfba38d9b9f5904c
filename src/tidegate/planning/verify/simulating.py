"""Does a plan hold when it is simulated, and does the simulation say what the plan says?

The configuration that would be written is run through the gateway's own policies before simulated engines,
on the load that was planned for, with several seeds. Further runs ask one replica for more than it can
do: what it then serves is what the plan calls sustained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, isfinite, isnan
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.core.units import format_duration
from tidegate.perf.efficiencies import Waiting
from tidegate.plan.advice.advising import advise
from tidegate.plan.advice.operating import operating_point
from tidegate.plan.advised import Advice
from tidegate.plan.answer import Answer, Percentiles
from tidegate.plan.ask import Ask, Replica
from tidegate.plan.closed.clients import ClosedCrowd
from tidegate.plan.closed.inside import Inside
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.tenants import Tenant, tenants_of
from tidegate.planning.emit.emitting import emitted, traffic_path, write
from tidegate.planning.verify.verdict import BoundSeen, Seen, Verification, verdict_of
from tidegate.policy.settings import ClassSettings, Deadlines, GovernorSettings, QueueSettings
from tidegate.simulate.execution import Failure, here, in_processes
from tidegate.simulate.figures import Group
from tidegate.simulate.intervals import estimate_over
from tidegate.simulate.load import Load
from tidegate.simulate.plan import Plan, Point, judged_points, runs_of
from tidegate.simulate.progress import Bar, progress
from tidegate.simulate.results import PointResult, point_over
from tidegate.simulate.run import RunResult, RunSettings

OVERLOAD = 1.5
"""Asked of the one replica, over what the plan says that it sustains."""
UNLIMITED = 1e9
"""Requests, tokens, bytes and seconds that nothing reaches."""

Planned = tuple[Ask, Answer, Advice]


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """How much is simulated."""

    seeds: int = 5
    requests: int = 2_500
    """Of each seed, about, beside warm-up; more where answers take long."""
    jobs: int = 1
    """Processes."""


def verify(
    planned: Planned, tenants: Sequence[Tenant], effort: Effort, *, front: Front | None = None
) -> Verification:
    """Simulate a plan. Raises ConfigurationError for one that cannot be simulated.

    `front`: replicas for prompts, which are simulated with those that decode; None: each does both.
    """
    ask, answer, advice = planned
    with TemporaryDirectory(prefix="tidegate-verify-") as folder:
        path = Path(folder) / "tidegate.yaml"
        point, plan = _point(planned, tenants, path, effort, front=front)
        alone = _saturated(planned, tenants, Path(folder) / "alone.yaml", effort, front=front)
        tasks = [*runs_of(plan, point, records=False, plots=False, perfetto=None), *alone]
        with progress(len(tasks), 0.0) as bar:
            done = ran(tasks, effort.jobs, bar)
    runs, most = done[: effort.seeds], done[effort.seeds :]
    each = 1 if front is None else answer.replicas  # disaggregated ones are asked together
    result = point_over(PointResult(set={}), runs)
    assert result.figures is not None
    seen = Seen(
        total=result.figures.total,
        sustained_per_s=estimate_over([run.figures.total.answered_per_s.value / each for run in most]),
        warnings=(*result.warnings, *_beside(ask, answer)),
        bounds=tuple(_bounds(advice, result.figures.tenants)),
        seeds=len(runs),
        measured_s=result.measured_s,
    )
    return verdict_of(ask, as_simulated(ask, answer), seen)


def as_simulated(ask: Ask, answer: Answer) -> Answer:
    """What the plan says of engines as they are simulated: nothing comes on top of their steps.

    Of users it has what benchmarks show of engines' software, too (`perf.efficiencies.Waiting`).
    """
    replica, users = ask.replica, ask.load.users
    if users is None or not isinstance(replica, Replica) or replica.waiting == Waiting():
        return answer
    if answer.disaggregated is not None:
        return answer
    plain = msgspec.structs.replace(replica, waiting=Waiting())
    crowd = ClosedCrowd(Inside(plain, ask.load, answer.gates), users, answer.replicas)
    found = crowd.latencies(ask.terms)
    return msgspec.structs.replace(
        answer,
        afterwards=None,
        wait_s=found.wait_s,
        ttft_s=found.ttft_s,
        tpot_s=found.tpot_s,
        e2e_s=found.e2e_s,
        requests_per_s=crowd.rate_per_s,
        requests_per_s_per_replica=crowd.sustained_per_s,
        utilisation=crowd.rate_per_s / answer.replicas / crowd.sustained_per_s,
    )


def _beside(ask: Ask, answer: Answer) -> Iterator[str]:
    """What of the plan is not simulated."""
    plain = as_simulated(ask, answer)
    if plain is not answer:
        with_it_s = answer.going_on.ttft_s.p95
        yield (
            "what benchmarks show of the engine's software beside its steps is not simulated, and not in the "
            f"closed form here: with it, the plan's TTFT is {format_duration(with_it_s, 3)} at P95, "
            f"instead of {format_duration(plain.ttft_s.p95, 3)}"
        )


def _point(
    planned: Planned, tenants: Sequence[Tenant], path: Path, effort: Effort, *, front: Front | None = None
) -> tuple[Point, Plan]:
    ask, answer, _ = planned
    write(emitted(planned, tenants, path, front=front), path)
    answer_s = _answer_s(ask, answer)
    warm_up_s = 2 * answer_s
    # A window much shorter than an answer would measure the few that are short.
    for_s = warm_up_s + max(effort.requests / answer.requests_per_s, 4 * answer_s)
    plan = Plan(
        file=path,
        load=Load(traffic=str(traffic_path(path)), for_s=for_s, askers=()),
        warm_up=warm_up_s,
        repeat=effort.seeds,
    )
    (point,) = judged_points(plan)
    if not isinstance(point, Point):
        raise ConfigurationError([f"--verify: {problem}" for problem in point.problems])
    return point, plan


def _answer_s(ask: Ask, answer: Answer) -> float:
    """How long a slow answer takes; where more comes than is served, one that has not waited."""
    if isfinite(longest_s := answer.going_on.e2e_s.p99):
        return longest_s
    at = operating_point(ask, answer)
    return at.longest_prefill_s + max(kind.output_tokens for kind in ask.load.kinds) * at.token_s


def _saturated(
    planned: Planned, tenants: Sequence[Tenant], path: Path, effort: Effort, *, front: Front | None = None
) -> list[RunSettings]:
    """One replica, or all disaggregated ones, asked for more than is sustained, and nobody refused."""
    ask, answer, advice = planned
    ask = msgspec.structs.replace(ask, load=msgspec.structs.replace(ask.load, users=None))
    if front is None:  # of one sender, or a fair queue would serve some kinds more often than they are sent
        ask = _of_one_sender(ask)
        tenants = tenants_of(ask.load, {})
    most = OVERLOAD * answer.requests_per_s_per_replica
    if front is not None:
        alone = msgspec.structs.replace(answer, requests_per_s=most * answer.replicas)
    else:
        e2e_s = Percentiles.of(inf)  # of a full batch, which takes that long to fill
        alone = msgspec.structs.replace(
            answer, replicas=1, spare_replicas=0, requests_per_s=most, e2e_s=e2e_s
        )
        advice = advise(ask, alone, tenants)
    few = msgspec.structs.replace(effort, requests=max(100, effort.requests // 4))
    point, plan = _point((ask, alone, advice), tenants, path, few, front=front)
    scenario = msgspec.structs.replace(point.scenario, governor=_unlimited(point.scenario.governor))
    point = msgspec.structs.replace(point, scenario=scenario)
    return list(runs_of(plan, point, records=False, plots=False, perfetto=None))


def _of_one_sender(ask: Ask) -> Ask:
    """The same requests, whoever they are of."""
    kinds = tuple(msgspec.structs.replace(kind, tenant="", class_="") for kind in ask.load.kinds)
    load = msgspec.structs.replace(ask.load, kinds=kinds)
    return msgspec.structs.replace(ask, load=load, terms=msgspec.structs.replace(ask.terms, classes=()))


def _unlimited(governor: GovernorSettings) -> GovernorSettings:
    """The same gates, and no other reason to refuse."""
    replace, endless = msgspec.structs.replace, int(UNLIMITED)
    queue = QueueSettings(max_requests=endless, max_tokens=UNLIMITED, max_bytes=10**15)
    deadlines = Deadlines(ttft_s=UNLIMITED, total_s=UNLIMITED)
    return replace(
        governor,
        pools={
            name: replace(pool, queue=queue, degradation=(), deadlines=deadlines)
            for name, pool in governor.pools.items()
        },
        classes={name: ClassSettings(max_wait_s=UNLIMITED) for name in governor.classes},
        tenants={name: replace(each, limits=None) for name, each in governor.tenants.items()},
    )


def ran(tasks: Sequence[RunSettings], jobs: int, bar: Bar) -> list[RunResult]:
    """Their results, in their order; numbers stand for points, of which each run is one here."""
    numbered = list(enumerate(tasks))
    found: dict[int, RunResult] = {}
    for number, done in here(numbered) if jobs == 1 else in_processes(numbered, jobs):
        if isinstance(done, Failure):
            raise ConfigurationError([f"--verify: {problem}" for problem in done.problems])
        found[number] = done
        bar.advance()
    if len(found) < len(tasks) or any(each.counts is None for each in found.values()):
        raise KeyboardInterrupt
    return [found[number] for number in range(len(tasks))]


def _bounds(advice: Advice, tenants: dict[str, Group]) -> Iterator[BoundSeen]:
    for name, own in advice.tenants.items():
        if name in tenants and own.ttft_bound_s.value is not None:
            worst_s = tenants[name].ttft_s.max
            if not isnan(worst_s):
                yield BoundSeen(
                    tenant=name,
                    bound_s=own.ttft_bound_s.value,
                    worst_s=worst_s,
                    holds=worst_s <= own.ttft_bound_s.value,
                )
