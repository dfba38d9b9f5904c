"""How far off are predictions, and how far off are the measurements from each other?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import Final

import msgspec

from accuracy.planner.rows import Row
from tidegate.core.errors import ConfigurationError
from tidegate.perf.deployment import Deployment
from tidegate.perf.efficiencies import Efficiencies, Waiting, efficiencies_of, waiting_of
from tidegate.perf.memory import memory_of
from tidegate.perf.roofline import curve_of
from tidegate.plan.closed.loop import Clients, Loop, closed_loop
from tidegate.plan.laws.engine import Engine

INFEASIBLE: Final = 1.0
"""Error of a row that ran, and is called impossible."""


class Error(msgspec.Struct, frozen=True, kw_only=True):
    """Of one row, absolute and relative."""

    ttft: float
    tpot: float


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Of some rows."""

    rows: int
    curves: int
    tpot_median: float
    tpot_mean: float
    ttft_median: float
    ttft_mean: float


def engine_of(deployment: Deployment, reached: Efficiencies | None = None) -> Engine:
    """What the planner knows of it. ConfigurationError where weights do not fit."""
    memory = memory_of(deployment)
    return Engine(
        curve=curve_of(deployment, reached),
        max_num_seqs=memory.sequences_limit,
        max_batched_tokens=deployment.max_batched_tokens * deployment.attention_dp,
        kv_tokens=memory.kv_tokens,
        context_tokens=deployment.model.context_tokens,
        block_tokens=deployment.block_tokens,
    )


def loop_of(row: Row, reached: Efficiencies | None = None, waiting: Waiting | None = None) -> Loop | None:
    """What the planner says of an aggregated row; None: that it is impossible."""
    deployment = row.deployments[0]
    clients = Clients(
        count=max(row.clients, deployment.attention_dp),
        prompt_tokens=row.prompt_tokens,
        output_tokens=row.output_tokens,
    )
    try:
        return closed_loop(
            engine_of(deployment, reached or efficiencies_of(row.software)),
            clients,
            copies=deployment.attention_dp,
            waiting=waiting or waiting_of(row.software),
        )
    except ConfigurationError:
        return None


def error_of(row: Row, loop: Loop | None) -> Error:
    """Of both figures."""
    if loop is None:
        return Error(ttft=INFEASIBLE, tpot=INFEASIBLE)
    return Error(ttft=abs(loop.ttft_s / row.ttft_s - 1), tpot=abs(loop.tpot_s / row.tpot_s - 1))


def score(rows: Sequence[Row], errors: Sequence[Error]) -> Score:
    """Medians, and means beside them."""
    return Score(
        rows=len(rows),
        curves=len({row.curve for row in rows}),
        tpot_median=median(error.tpot for error in errors),
        tpot_mean=fmean(error.tpot for error in errors),
        ttft_median=median(error.ttft for error in errors),
        ttft_mean=fmean(error.ttft for error in errors),
    )


def floor(rows: Iterable[Row]) -> Score:
    """How far off measurements of one point are from their median, where there are several.

    No prediction can do better on these points, for it has one answer for all of them.
    """
    points: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        points[row.curve, row.clients].append(row)
    repeated, errors = [], []
    for repeats in points.values():
        if len(repeats) > 1:
            ttft_s, tpot_s = median(row.ttft_s for row in repeats), median(row.tpot_s for row in repeats)
            repeated += repeats
            errors += [
                Error(ttft=abs(ttft_s / row.ttft_s - 1), tpot=abs(tpot_s / row.tpot_s - 1)) for row in repeats
            ]
    return score(repeated, errors)
