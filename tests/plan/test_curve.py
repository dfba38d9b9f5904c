"""Does a load-latency curve say what a fleet does, from light load to full?"""

from __future__ import annotations

import pytest

from tidegate.core.records import Budgets
from tidegate.plan.answer import LoadCurve
from tidegate.plan.answering import answer_of
from tidegate.plan.ask import Ask, HandFigures, Kind, Load, Replica, Terms
from tidegate.plan.curve import GRID, curve_of
from tidegate.plan.laws.engine import Engine
from tidegate.plan.sizing import Size, size_of
from tidegate.sim.profiles import named

HAND = HandFigures(tokens_per_s=2000, tpot_s=0.02)
BOUNDS = named("h100-8b").replica
MEASURED = Replica(
    name="h100-8b",
    engine=Engine(
        curve=named("h100-8b").curve,
        max_num_seqs=BOUNDS.max_num_seqs,
        max_batched_tokens=BOUNDS.max_batched_tokens,
        kv_tokens=BOUNDS.kv_tokens,
        context_tokens=BOUNDS.sequence_tokens,
        block_tokens=BOUNDS.block_tokens,
    ),
)


def asked(replica: HandFigures | Replica, rate: float | None, terms: Terms) -> Ask:
    """For 2,000 prompt and 500 output tokens."""
    load = Load(kinds=(Kind(prompt_tokens=2000, output_tokens=500),), requests_per_s=rate)
    return Ask(load=load, replica=replica, terms=terms)


def drawn(ask: Ask) -> LoadCurve:
    """Its curve."""
    size = size_of(ask)
    assert isinstance(size, Size)
    return curve_of(ask, size)


def test_the_curve_of_two_figures() -> None:
    """Four replicas of 4 requests/s: M/M/160, which waits nothing at P95 up to 86.7 %, and then turns up."""
    curve = drawn(asked(HAND, 10, Terms(budgets=Budgets(tpot_s=0.02))))

    assert (curve.replicas, curve.asked_per_s) == (4, 10)
    assert curve.sustained_per_s == pytest.approx(16)
    assert curve.held_per_s == pytest.approx(13.88, abs=0.02)
    assert curve.knee_per_s == pytest.approx(14)
    marked = {mark: point for point in curve.points for mark in point.marks}
    assert {mark: round(point.utilisation, 3) for mark, point in marked.items()} == {
        "asked": 0.625,
        "budgets": 0.867,
        "knee": 0.875,
    }
    assert marked["budgets"].wait_s.at_percentile < 0.01 < marked["knee"].wait_s.at_percentile


@pytest.mark.parametrize("replica", [HAND, MEASURED])
def test_points_ascend_and_budgets_hold_up_to_where_that_is_said(replica: HandFigures | Replica) -> None:
    """Up to it every point is within the TTFT budget, beyond it none is."""
    budgets = Budgets(ttft_s=1.0, tpot_s=0.02)
    curve = drawn(asked(replica, 20, Terms(budgets=budgets)))

    rates = [point.requests_per_s for point in curve.points]
    assert rates == sorted(set(rates))
    assert len(GRID) <= len(rates) <= len(GRID) + 3
    for point in curve.points:
        assert point.ttft_s.p50 <= point.ttft_s.p95 <= point.ttft_s.p99
        within = point.ttft_s.p95 <= 1.0 and point.tpot_s.p95 <= 0.02 * (1 + 1e-9)
        assert within == (point.requests_per_s <= curve.held_per_s * (1 + 1e-9)), point.utilisation


def test_the_answer_lies_on_its_curve() -> None:
    """What the plan says of its load is what the curve says there."""
    ask = asked(MEASURED, 20, Terms(budgets=Budgets(ttft_s=1.0, tpot_s=0.02)))
    size = size_of(ask)
    assert isinstance(size, Size)
    answer = answer_of(ask, size)

    (point,) = [point for point in curve_of(ask, size).points if "asked" in point.marks]
    assert point.ttft_s == answer.ttft_s
    assert point.tpot_s == answer.tpot_s
    assert point.utilisation == pytest.approx(answer.utilisation)


def test_a_load_beyond_what_is_sustained_is_not_on_the_curve() -> None:
    """It is named, and nothing is told of it."""
    curve = drawn(asked(HAND, 10, Terms(budgets=Budgets(tpot_s=0.02), replicas=2, spare_replicas=1)))

    assert curve.sustained_per_s == pytest.approx(8)
    assert curve.asked_per_s == 10
    assert all("asked" not in point.marks for point in curve.points)
    assert max(point.utilisation for point in curve.points) == 0.98
