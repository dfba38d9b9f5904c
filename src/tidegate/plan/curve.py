"""What do requests meet from an idle fleet to a full one, and where does that turn up?

The load-latency curve of the fleet that was answered, with every replica up, at rates up to nearly what it
sustains. On it are the rate that was asked about, the knee, and the highest rate within every budget.
"""

from __future__ import annotations

from math import isclose

import msgspec

from tidegate.core.knee import knee_place
from tidegate.plan.answer import CurvePoint, LoadCurve
from tidegate.plan.ask import Ask
from tidegate.plan.ceilings import CLOSE, highest
from tidegate.plan.sizing import Size, holds

GRID = (*(step / 20 for step in range(1, 17)), 0.825, 0.85, 0.875, 0.9, 0.92, 0.94, 0.96, 0.98)
"""Utilisations that are looked at: finer where queues begin. At 1 the queue would be endless."""
SAME = 1e-3
"""Of what is sustained: marks that are so close to another point are set on it."""


def curve_of(ask: Ask, size: Size) -> LoadCurve:
    """Of an ask that has that size; over users where they are the load."""
    if size.crowd is not None:
        from tidegate.plan.closed.grown import curve_of_users

        return curve_of_users(size.crowd, ask.terms)
    most = size.replicas * size.station.sustained_per_s
    points = [_point(size, utilisation) for utilisation in GRID]
    waits = [point.ttft_s.at_percentile for point in points]
    place = knee_place(GRID, waits)
    held = highest(lambda ratio: holds(size.station, ask.terms, ratio * most, size.replicas), 1.0, CLOSE)
    knee = None if place is None else GRID[place]
    marked = {"asked": size.utilisation, "knee": knee, "budgets": held}
    for utilisation in marked.values():
        if utilisation is not None and not any(_same(each, utilisation) for each in points):
            points += [_point(size, utilisation)] if 0 < utilisation < 1 else []
    points.sort(key=lambda point: point.utilisation)
    return LoadCurve(
        replicas=size.replicas,
        percentile=ask.terms.percentile,
        sustained_per_s=most,
        asked_per_s=size.requests_per_s,
        knee_per_s=None if knee is None else knee * most,
        held_per_s=held * most,
        budgeted=any(value is not None for value in msgspec.structs.astuple(ask.terms.budgets)),
        may_wait=ask.terms.budgets.ttft_s is not None or ask.terms.budgets.e2e_s is not None,
        points=tuple(
            msgspec.structs.replace(
                point,
                marks=tuple(name for name, at in marked.items() if at is not None and _same(point, at)),
            )
            for point in points
        ),
    )


def _point(size: Size, utilisation: float) -> CurvePoint:
    rate_per_s = utilisation * size.replicas * size.station.sustained_per_s
    found = size.station.latencies(rate_per_s, size.replicas)
    assert found is not None
    return CurvePoint(
        utilisation=utilisation,
        requests_per_s=rate_per_s,
        wait_s=found.wait_s,
        ttft_s=found.ttft_s,
        tpot_s=found.tpot_s,
        e2e_s=found.e2e_s,
    )


def _same(point: CurvePoint, utilisation: float) -> bool:
    return isclose(point.utilisation, utilisation, rel_tol=0, abs_tol=SAME)
