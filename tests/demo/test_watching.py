"""What is shown: judged windows, growth, and a screen that fits."""

from __future__ import annotations

from io import StringIO
from math import inf, nan

import pytest
from rich.console import Console

from tidegate.bench.load import LoadRecord
from tidegate.core.reasons import Reason
from tidegate.core.records import Budgets
from tidegate.demo import plain
from tidegate.demo.snapshot import BudgetLook, ReplicaLook, Snapshot, TenantLook
from tidegate.demo.view import refusals, screen
from tidegate.demo.watching import RATE_WINDOW_S, Rates, budget_look

CURL = "curl 127.0.0.1:38953/v1/chat/completions -H 'Authorization: Bearer demo-key' \\\n  -d '{}'"


def record(ttft_s: float = 0.1, tpot_s: float = 0.01, reason: Reason | None = None) -> LoadRecord:
    """A request of eleven output tokens that was planned at 0."""
    return LoadRecord(
        request_id=0,
        tenant="chat",
        priority="",
        pool="demo",
        arrived_at=0.0,
        dispatched_at=0.0,
        first_token_at=None if reason else ttft_s,
        ended_at=0.0 if reason else ttft_s + 10 * tpot_s,
        output_tokens=11,
        asked_tokens=11,
        reason=reason,
        status=429 if reason else 200,
    )


def test_rates() -> None:
    """A rate is growth over the last seconds, 0 before there are two looks or when nothing has grown."""
    rates = Rates()
    assert rates.per_s("a") == 0

    for now, total, per_s in [(0, 0, 0), (2, 10, 5), (4, 20, 5), (6, 20, 2.5), (8, 20, 0)]:
        rates.see(float(now), {"a": float(total)})
        assert rates.per_s("a") == per_s, now
        assert rates.per_s("b") == 0
    assert RATE_WINDOW_S == 4


@pytest.mark.parametrize(
    ("records", "held", "goodput_ratio"),
    [
        ([], None, nan),
        ([record()] * 20, True, 1.0),
        ([record()] * 19 + [record(ttft_s=9.0)], True, 0.95),
        ([record()] * 9 + [record(ttft_s=9.0)] * 2, False, 9 / 11),
        ([record(tpot_s=0.2)] * 3, False, 0.0),
        ([record(), record(reason=Reason.TOKEN_QUOTA)], True, 1.0),
        ([record()] * 19 + [record(reason=Reason.SHED)], True, 0.95),
        ([record()] * 9 + [record(reason=Reason.SHED)], False, 0.9),
        ([record(reason=Reason.UPSTREAM_ERROR)], False, 0.0),
    ],
)
def test_budgets_are_judged_at_p95(
    records: list[LoadRecord], held: bool | None, goodput_ratio: float
) -> None:
    """What a tenant's own quota refused is not held against the fleet; what the fleet refused is."""
    look = budget_look("interactive", Budgets(ttft_s=1.0, tpot_s=0.05), records, 10.0)

    assert look.held is held
    assert look.goodput_ratio == pytest.approx(goodput_ratio, nan_ok=True)


def snapshot() -> Snapshot:
    """As full as the demo's screen becomes."""
    replica = ReplicaLook(
        name="gpu-1",
        state="half_open",
        available=False,
        running=24,
        running_limit=24,
        kv_ratio=1.0,
        prompt_tokens_per_s=12_345,
        output_tokens_per_s=1_234,
    )
    tenant = TenantLook(
        name="reports",
        priority="interactive",
        in_flight=123,
        requests_per_s=12.3,
        tokens_per_s=123_456,
        quota_ratio=0.05,
        refused={"token_quota_exceeded": 123},
    )
    budget = BudgetLook(
        priority="interactive",
        budgets=Budgets(ttft_s=10.0, tpot_s=0.1),
        ttft_p50_s=0.123,
        ttft_p95_s=0.456,
        tpot_p50_s=0.023,
        tpot_p95_s=0.029,
        goodput_per_s=12.3,
        goodput_ratio=1.0,
        ok_ratio=1.0,
        samples=100,
    )
    return Snapshot(
        elapsed_s=123,
        for_s=inf,
        offered_per_s=15,
        replicas=[replica] * 4,
        queued={"interactive": 123, "batch": 123},
        pressure_ratio=1.0,
        degradation=["clamp"],
        tenants=[tenant] * 3,
        budgets=[budget] * 2,
        window_s=15,
        events=[f"{number:5.1f}s something has happened" for number in range(50)],
    )


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (200, 60)])
def test_the_screen_fits(width: int, height: int) -> None:
    """Nothing is cut off at the right, nothing runs out at the bottom, and what is newest is shown."""
    console = Console(file=StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(screen(snapshot(), CURL, "http://127.0.0.1:38954", height))
    lines = captured.get().splitlines()

    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert "…" not in captured.get()
    assert "49.0s something has happened" in captured.get()
    assert all(line in lines for line in CURL.splitlines())


def test_a_line_for_where_there_is_no_terminal() -> None:
    """The same figures, in words."""
    said = plain.line(snapshot())

    for part in (
        "15.0 requests/s",
        "running 24 24 24 24",
        "queued interactive 123",
        "HELD",
        "degraded: clamp",
    ):
        assert part in said


def test_refusals_in_few_characters() -> None:
    """The most frequent reason first; a dash for none."""
    assert refusals({}) == "-"
    assert refusals({"queue_full": 1, "token_quota_exceeded": 12}) == "12 token quota, 1 queue full"
