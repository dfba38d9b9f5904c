"""Records: what is measured of a request, and what many of them say together."""

from __future__ import annotations

from math import isnan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.reasons import Reason
from tidegate.core.records import Budgets, Distribution, RequestRecord, percentile, summarise


def record(**fields: Any) -> RequestRecord:
    """Arrived at 10, sent at 11, first token at 12, 21 tokens by 14."""
    values: dict[str, Any] = {"request_id": 1, "tenant": "a", "priority": "chat", "pool": "m"}
    values |= {"arrived_at": 10.0, "dispatched_at": 11.0, "first_token_at": 12.0, "ended_at": 14.0}
    return RequestRecord(**(values | {"output_tokens": 21} | fields))


def test_times_of_one_request() -> None:
    """TTFT and E2E count from arrival, TPOT from the first token on."""
    one = record()
    assert (one.queued_s, one.ttft_s, one.e2e_s) == (1.0, 2.0, 4.0)
    assert one.tpot_s == pytest.approx(0.1)
    assert one.ok


def test_what_was_never_reached_is_none() -> None:
    """Refused requests have no TTFT, and one token has no time between tokens."""
    refused = record(dispatched_at=None, first_token_at=None, reason=Reason.QUEUE_TIMEOUT, status=503)
    assert (refused.queued_s, refused.ttft_s, refused.tpot_s, refused.ok) == (4.0, None, None, False)
    assert record(output_tokens=1).tpot_s is None


@pytest.mark.parametrize(
    ("fields", "ok"),
    [
        ({}, True),
        ({"status": 204}, True),
        ({"status": 400}, False),
        ({"status": 302}, False),
        ({"reason": Reason.TOTAL_TIMEOUT}, False),  # truncated, though the client saw a 200
    ],
)
def test_ok_is_a_natural_end_with_a_2xx(fields: dict[str, Any], ok: bool) -> None:
    """Neither an engine's refusal nor a truncated stream counts as good."""
    assert record(**fields).ok is ok


@pytest.mark.parametrize(
    ("budgets", "held"),
    [
        (Budgets(), True),
        (Budgets(ttft_s=2.0, tpot_s=0.1, e2e_s=4.0), True),  # exactly at each
        (Budgets(e2e_s=4.0 * (1 - 1e-12)), True),  # above it by no more than sums of instants round
        (Budgets(ttft_s=1.99), False),
        (Budgets(tpot_s=0.099), False),
        (Budgets(e2e_s=3.99), False),
    ],
)
def test_budgets(budgets: Budgets, held: bool) -> None:
    """A budget is held at its value and broken above it."""
    assert budgets.held_by(record()) is held
    assert not budgets.held_by(record(status=500))


@pytest.mark.parametrize(
    ("fields", "budgets", "held"),
    [
        # A whole answer is judged by its end alone.
        ({"first_token_at": None}, Budgets(ttft_s=0.001, tpot_s=0.001, e2e_s=4.0), True),
        ({"first_token_at": None}, Budgets(ttft_s=0.001, tpot_s=0.001, e2e_s=3.9), False),
        # One token has a TTFT, and no time between tokens.
        ({"output_tokens": 1}, Budgets(ttft_s=2.0, tpot_s=0.001), True),
        ({"output_tokens": 1}, Budgets(ttft_s=1.9, tpot_s=0.001), False),
        # A stream that failed before its first token has nothing to measure, and held nothing.
        ({"first_token_at": None, "reason": Reason.TTFT_TIMEOUT, "status": 504}, Budgets(ttft_s=9.0), False),
        ({"first_token_at": None, "reason": Reason.UPSTREAM_ERROR, "status": 502}, Budgets(), False),
        ({"first_token_at": None, "reason": Reason.CLIENT_GONE}, Budgets(ttft_s=9.0), False),
        ({"first_token_at": None, "status": 500}, Budgets(ttft_s=9.0), False),
    ],
)
def test_budgets_apply_to_what_can_be_measured(fields: dict[str, Any], budgets: Budgets, held: bool) -> None:
    """A figure that an answer cannot have breaks no budget; a failure breaks them all."""
    assert budgets.held_by(record(**fields)) is held


def test_percentiles_are_those_of_numpy() -> None:
    """Linear between ranks, as numpy's default: values worked out by hand."""
    for ordered, ratio, value in [
        ([5.0], 0.99, 5.0),
        ([1.0, 2.0], 0.5, 1.5),
        ([1.0, 2.0, 3.0, 10.0], 0.95, 8.95),
        ([1.0, 2.0, 3.0, 10.0], 1.0, 10.0),
        ([1.0, 2.0, 3.0, 10.0], 0.0, 1.0),
    ]:
        assert percentile(ordered, ratio) == pytest.approx(value)
    assert isnan(percentile([], 0.5))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 1))
def test_a_percentile_lies_within_its_sample(values: list[float], ratio: float) -> None:
    """Never outside of the extremes, and never falling as the ratio grows."""
    ordered = sorted(values)
    assert ordered[0] - 1e-6 <= percentile(ordered, ratio) <= ordered[-1] + 1e-6
    assert percentile(ordered, ratio / 2) <= percentile(ordered, ratio) + 1e-6


def test_a_distribution_of_nothing() -> None:
    """Counts nothing and knows nothing."""
    none = Distribution.of([])
    assert none.count == 0
    assert all(isnan(each) for each in (none.mean, none.p50, none.p95, none.p99, none.max))


def test_a_summary() -> None:
    """Latency and tokens are of the good ones, goodput is over all."""
    records = [
        record(prompt_tokens=100),
        record(prompt_tokens=50, first_token_at=13.5),
        record(reason=Reason.QUEUE_FULL, status=503),
        record(reason=Reason.QUEUE_FULL, status=503),
        record(status=400),
    ]
    summary = summarise(records, Budgets(ttft_s=3.0), span_s=2.0)
    assert (summary.requests, summary.ok, summary.prompt_tokens, summary.output_tokens) == (5, 2, 150, 42)
    assert (summary.ttft_s.count, summary.ttft_s.p50) == (2, 2.75)
    assert (summary.goodput_ratio, summary.goodput_per_s) == (0.2, 0.5)


def test_a_summary_of_nothing() -> None:
    """No requests, no ratio; no span, no rate."""
    empty = summarise([], Budgets(), span_s=0.0)
    assert empty.requests == 0
    assert isnan(empty.goodput_ratio)
    assert isnan(empty.goodput_per_s)
