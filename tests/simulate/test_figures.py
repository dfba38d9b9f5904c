"""Are the figures of a run those of its requests, and those of several seeds their means?"""

from __future__ import annotations

from math import isnan

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulate.records import record, records, refused
from tests.simulate.test_columns import columns_of
from tidegate.core.reasons import Reason
from tidegate.core.records import Budgets, RequestRecord, summarise
from tidegate.simulate import figures
from tidegate.simulate.figures import Terms, Window, figures_over, measure, rate_within
from tidegate.simulate.intervals import Estimate, Method

TERMS = Terms(budgets={"chat": Budgets(ttft_s=1.0), "batch": Budgets(e2e_s=5.0)}, weights={})
ALL = Window(0.0, 1_000.0)


@given(st.lists(records(), min_size=1, max_size=30))
def test_the_same_as_a_summary(found: list[RequestRecord]) -> None:
    """What the gateway and the bench say of records, the simulator says of its columns."""
    budgets = Budgets(ttft_s=5.0, tpot_s=0.5, e2e_s=10.0)
    terms = Terms(budgets={"chat": budgets, "batch": budgets}, weights={})
    want = summarise(found, budgets, ALL.span_s)
    total = measure(columns_of(found), ALL, terms).total

    assert (total.requests, total.ok) == (want.requests, want.ok)
    assert total.goodput_ratio.value == pytest.approx(want.goodput_ratio)
    assert total.goodput_per_s.value == pytest.approx(want.goodput_per_s)
    assert total.output_tokens_per_s.value == pytest.approx(want.output_tokens / ALL.span_s)
    for mine, theirs in ((total.ttft_s, want.ttft_s), (total.tpot_s, want.tpot_s), (total.e2e_s, want.e2e_s)):
        assert mine.count == theirs.count
        for name in ("mean", "p50", "p95", "p99"):
            assert getattr(mine, name).value == pytest.approx(getattr(theirs, name), nan_ok=True)
        assert mine.max == pytest.approx(theirs.max, nan_ok=True)


def test_each_class_has_its_own_budgets() -> None:
    """A wait of 2 s misses the budget of chat, and no budget of batch."""
    late = {"first_token_at": 3.0, "ended_at": 4.0}
    batch, held, missed = record(1.0, priority="batch"), record(1.0), record(1.0)
    batch, missed = (msgspec.structs.replace(each, **late) for each in (batch, missed))
    found = measure(columns_of([batch, held, missed]), ALL, TERMS)

    assert list(found.classes) == ["chat", "batch"]
    assert found.classes["chat"].goodput_ratio.value == 0.5
    assert found.classes["batch"].goodput_ratio.value == 1.0
    assert found.total.goodput_ratio.value == pytest.approx(2 / 3)


def test_the_window() -> None:
    """Latencies are of those that arrived within it, rates of those that ended within it."""
    early, inside, late = record(8.0), record(50.0), record(109.0)
    found = measure(columns_of([early, inside, late]), Window(9.0, 109.0), TERMS).total

    assert (found.requests, found.ok) == (2, 2)  # inside and late
    assert found.answered_per_s.value == pytest.approx(2 / 100)  # early and inside
    assert found.offered_per_s.value == pytest.approx(2 / 100)
    assert found.output_tokens_per_s.value == pytest.approx(20 / 100)


def test_reasons_and_shares() -> None:
    """Refusals are counted by reason, the most frequent first; shares are of what was served."""
    found = measure(
        columns_of(
            [
                record(1.0),
                refused(1.0),
                refused(2.0),
                refused(2.0, reason=Reason.QUEUE_FULL),
                record(1.0, tenant="lab", prompt_tokens=320),
                record(1.0, tenant="lab", status=500),
            ]
        ),
        ALL,
        TERMS,
    )

    assert list(found.total.reasons.items()) == [("queue_timeout", 2), ("queue_full", 1), ("status_500", 1)]
    assert found.tenants["lab"].reasons == {"status_500": 1}
    assert {name: each.token_share.value for name, each in found.tenants.items()} == {
        "acme": 0.25,
        "lab": 0.75,
    }
    # acme wants four times 110 tokens and lab twice 330: of the 440 served a fair half is 220 for each.
    assert found.fairness.value == pytest.approx((0.5 + 1.5) ** 2 / (2 * (0.5**2 + 1.5**2)))


def test_the_largest_tenants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand tenants do not make ten thousand tables."""
    monkeypatch.setattr(figures, "MOST_TENANTS", 2)
    asks = {"a": 1, "b": 3, "c": 2}
    found = measure(
        columns_of([record(1.0, tenant=name) for name, count in asks.items() for _ in range(count)]),
        ALL,
        TERMS,
    )

    assert list(found.tenants) == ["b", "c"]
    assert found.total.requests == 6


def test_nothing_arrived() -> None:
    """A run without requests has no figures, and no faults either."""
    found = measure(columns_of([]), Window(0.0, 0.0), TERMS)

    assert (found.total.requests, found.classes, found.tenants) == (0, {}, {})
    assert isnan(found.total.goodput_ratio.value)
    assert isnan(found.total.offered_per_s.value)
    assert isnan(found.fairness.value)


def test_over_seeds() -> None:
    """Counts add up, figures are means with an interval, and who asked in one run only is there."""
    one = measure(columns_of([record(float(at)) for at in range(10)]), ALL, TERMS)
    two = measure(
        columns_of([record(float(at)) for at in range(8)] + [refused(9.0, tenant="lab")]), ALL, TERMS
    )
    both = figures_over([one, two])

    assert (both.total.requests, both.total.ok, both.total.reasons) == (19, 18, {"queue_timeout": 1})
    assert both.total.ttft_s.method is Method.SEEDS
    assert both.total.ttft_s.count == 18
    assert both.total.goodput_ratio.value == pytest.approx((1 + 8 / 9) / 2)
    assert 0 <= both.total.goodput_ratio.low <= both.total.goodput_ratio.high <= 1
    assert list(both.tenants) == ["acme", "lab"]
    assert figures_over([one]) is one


def test_a_rate_has_an_interval_within_a_run() -> None:
    """It holds the rate of a metronome as a point, and is wider for arrivals in bursts."""
    steady = np.arange(0.0, 1_024.0)
    bursts = np.repeat(np.arange(0.0, 1_024.0, 64.0), 64)
    window = Window(0.0, 1_024.0)

    assert rate_within(steady, np.ones(1_024), window) == Estimate(1.0, 1.0, 1.0)
    found = rate_within(bursts, np.ones(1_024), window)
    assert found.value == 1.0
    assert found.low < 0.9
    assert found.high > 1.1
