"""Which requests does the demo make? Those of a real chat service, as they came, and again if need be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from random import Random

import msgspec

from tidegate.config.traces import load_trace
from tidegate.workload.laws.arrivals import Replay
from tidegate.workload.laws.lengths import trace_lengths
from tidegate.workload.requests import PlannedRequest, TenantShare, plan_requests
from tidegate.workload.traces.rows import TraceRow
from tidegate.workload.traces.scaling import sped_up, windowed

TRACE = "azure-conv"
TIME_SCALE = 2.5
"""The trace has 5 to 7 requests/s; four replicas of the demo's profile hold two and a half times as many."""
FROM_S = 40.0
"""The recording begins before the traffic does."""
TENANTS = (TenantShare("chat", 0.65), TenantShare("reports", 0.35))


def trace() -> list[TraceRow]:
    """The hour of the trace, sped up."""
    return list(sped_up(windowed(load_trace(TRACE), FROM_S), TIME_SCALE))


def endless(rows: Sequence[TraceRow], rng: Random) -> Iterator[PlannedRequest]:
    """The trace again and again; lengths and gaps are its own, who asks is drawn."""
    lap_s = rows[-1].arrived_s
    for lap in count():
        for planned in plan_requests(Replay(rows), trace_lengths(rows), rng, tenants=TENANTS):
            yield msgspec.structs.replace(planned, at_s=planned.at_s + lap * lap_s)
