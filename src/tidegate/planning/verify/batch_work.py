"""Is batch work done as fast as planned, in a simulation of a slice of it?

One replica, through the gateway's own policies, with as many requests open as whoever sends the work keeps
for each: some thousand requests once it is full. What it does in a second is what all replicas do for the
whole time, so that the end of all of it follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.core.units import format_span
from tidegate.plan.advice.batch_work import advise_batch_work, with_workers
from tidegate.plan.answer import Answer
from tidegate.plan.ask import Ask
from tidegate.plan.tenants import Tenant
from tidegate.planning.emit.emitting import emitted, traffic_path, write
from tidegate.planning.verify.simulating import Effort, ran
from tidegate.planning.verify.verdict import (
    DONE,
    TOLERANCE,
    Compared,
    Trust,
    Verification,
    judged,
    sentence_of,
)
from tidegate.simulate.figures import Group
from tidegate.simulate.intervals import Estimate
from tidegate.simulate.load import Load
from tidegate.simulate.plan import Plan, Point, judged_points, runs_of
from tidegate.simulate.progress import progress
from tidegate.simulate.results import PointResult, point_over

SEEDS = 2
"""Requests are equal and come when one is answered: there are hardly any dice."""
STAYS = 10
"""Of a request, that are measured at least: those that began together end together, as a wave."""
FILLED = 3
"""Stays of a request until what is measured begins: they all begin together, and must be past that."""
WHY: tuple[Trust, str] = (
    "simulation",
    "it has every prompt beside what decodes, and requests that end together",
)


def verify_batch_work(ask: Ask, answer: Answer, tenants: Sequence[Tenant], effort: Effort) -> Verification:
    """Simulate a slice. Raises ConfigurationError for a plan that cannot be simulated."""
    alone = msgspec.structs.replace(
        answer, replicas=1, spare_replicas=0, requests_per_s=answer.requests_per_s_per_replica
    )
    planned = with_workers(ask, alone), alone, advise_batch_work(ask, alone, tenants)
    seeds = min(effort.seeds, SEEDS)
    with TemporaryDirectory(prefix="tidegate-verify-") as folder:
        path = Path(folder) / "tidegate.yaml"
        write(emitted(planned, tenants, path), path)
        stay_s = alone.concurrency_per_replica / alone.requests_per_s
        for_s = FILLED * stay_s + max(effort.requests / alone.requests_per_s, STAYS * stay_s)
        plan = Plan(
            file=path,
            load=Load(traffic=str(traffic_path(path)), for_s=for_s, askers=()),
            warm_up=FILLED * stay_s,
            repeat=seeds,
        )
        (point,) = judged_points(plan)
        if not isinstance(point, Point):
            raise ConfigurationError([f"--verify: {problem}" for problem in point.problems])
        tasks = list(runs_of(plan, point, records=False, plots=False, perfetto=None))
        with progress(len(tasks), 0.0) as bar:
            result = point_over(PointResult(set={}), ran(tasks, effort.jobs, bar))
    assert result.figures is not None
    total = result.figures.total
    figures = tuple(_figures(answer, total))
    holds, sentence = _in_time(answer, figures[-1].simulated)
    return Verification(
        sentence=sentence_of(figures),
        agrees=all(each.agrees for each in figures),
        budgets_hold=holds,
        budgets=sentence,
        held_ratio=total.goodput_ratio,
        refused_ratio=1 - total.ok / total.requests if total.requests else 0.0,
        figures=figures,
        bounds=(),
        seeds=seeds,
        measured_s=result.measured_s,
        requests=total.requests,
        warnings=result.warnings,
    )


def _figures(answer: Answer, total: Group) -> Iterator[Compared]:
    """In which the last is when all of it is done."""
    offline = answer.offline
    assert offline is not None
    per_s, prompts, outputs = total.answered_per_s, total.prompt_tokens_per_s, total.output_tokens_per_s
    done = [offline.requests / (answer.replicas * each) for each in (per_s.value, per_s.high, per_s.low)]
    for name, closed_form, simulated in (
        ("requests_per_s_per_replica", answer.requests_per_s_per_replica, per_s),
        ("prompt_tokens_per_s_per_replica", answer.prompt_tokens_per_s_per_replica, prompts),
        ("output_tokens_per_s_per_replica", answer.output_tokens_per_s_per_replica, outputs),
        ("tpot_s.p50", answer.tpot_s.p50, total.tpot_s.p50),
        (DONE, offline.done_s, Estimate(*done)),
    ):
        if not closed_form:  # two figures say nothing of prompts
            continue
        figure = Compared(name=name, closed_form=closed_form, simulated=simulated)
        yield judged(figure, (TOLERANCE, 0.0), WHY)


def _in_time(answer: Answer, done: Estimate) -> tuple[bool, str]:
    offline = answer.offline
    assert offline is not None
    holds = done.value <= offline.within_s
    told = f"{format_span(done.value)} of {format_span(offline.within_s)}"
    if holds:
        return True, f"Simulated, all {offline.requests:,} requests are done in {told}."
    return False, f"Simulated, {offline.requests:,} requests take {told}: they are late."
