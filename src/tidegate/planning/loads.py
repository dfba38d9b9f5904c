"""What load do a rate, a trace or a traffic file come to?"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count, islice
from pathlib import Path

from tidegate.config.traces import known_trace
from tidegate.config.traffic_loading import load_traffic
from tidegate.core.errors import ConfigurationError
from tidegate.core.records import Budgets
from tidegate.core.units import format_span
from tidegate.plan.arrivals import Arrival
from tidegate.workload.requests import PlannedRequest, Workload

SPAN_S = 86_400.0
"""Of a traffic file: a day."""
MOST_REQUESTS = 300_000
"""Of a traffic file. What comes after them is left out, and that is said."""
ANSWER_S, TOKEN_S = 1.0, 0.05
"""How long answers take where clients wait for them, without a budget that says it: TTFT, and per token."""


def trace_arrivals(name: str) -> list[Arrival]:
    """All requests of a trace."""
    return [Arrival(row.arrived_s, row.prompt_tokens, row.output_tokens) for row in known_trace(name)]


def traffic_arrivals(path: Path, budgets: Budgets, seed: int = 1) -> tuple[list[Arrival], str]:
    """A day of a traffic file, and a warning where it is less than that.

    Clients who wait for an answer get it as late as the budgets allow, and then ask again.
    """
    if not path.exists():
        raise ConfigurationError([f"--traffic {path}: No such file; give a traffic file (YAML)"])
    workload = load_traffic(path).workload(seed)
    ttft_s = budgets.ttft_s if budgets.ttft_s is not None else ANSWER_S
    token_s = budgets.tpot_s if budgets.tpot_s is not None else TOKEN_S
    planned = _unrolled(workload, ttft_s, token_s)
    found = [
        Arrival(each.at_s, each.prompt_tokens, each.output_tokens, each.tenant, each.priority)
        for each in islice(planned, MOST_REQUESTS)
    ]
    if len(found) < MOST_REQUESTS:
        return found, ""
    return found, f"planned for its first {MOST_REQUESTS:,} requests, {format_span(found[-1].at_s)} of it"


def _unrolled(workload: Workload, ttft_s: float, token_s: float) -> Iterator[PlannedRequest]:
    """Requests in order of arrival, before `SPAN_S`."""
    starts, number = workload.starts(), count()
    waiting: list[tuple[float, int, PlannedRequest]] = []
    coming = next(starts, None)
    while coming is not None or waiting:
        if waiting and (coming is None or waiting[0][0] <= coming.at_s):
            _, _, each = heappop(waiting)
        else:
            assert coming is not None
            each, coming = coming, next(starts, None)
        if each.at_s >= SPAN_S:
            return
        yield each
        ended_at_s = each.at_s + ttft_s + (each.output_tokens - 1) * token_s
        following = workload.after(each, ended_at_s, True)
        if following is not None:
            heappush(waiting, (following.at_s, next(number), following))
