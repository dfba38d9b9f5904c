"""The figures of a run, from records made by hand."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from tidegate.bench.load import LoadRecord
from tidegate.bench.report import Report, as_table, report_of
from tidegate.core.records import Budgets
from tidegate.core.text import as_json

BUDGETS = Budgets(ttft_s=0.5, e2e_s=3.0)


def answered(number: int, ttft_s: float = 0.1, e2e_s: float = 2.0, **changes: Any) -> LoadRecord:
    """A success that was planned at second `number`, with 20 of 20 tokens."""
    fields: dict[str, Any] = {
        "request_id": number,
        "tenant": "default",
        "priority": "",
        "pool": "tiny",
        "arrived_at": float(number),
        "dispatched_at": number + 0.001,
        "first_token_at": number + ttft_s,
        "ended_at": number + e2e_s,
        "prompt_tokens": 100,
        "output_tokens": 20,
        "asked_tokens": 20,
    }
    return LoadRecord(**fields | changes)


def failed(number: int, error: str, status: int = 0, **changes: Any) -> LoadRecord:
    """A failure half a second after it was planned."""
    return answered(number, e2e_s=0.5, error=error, status=status, first_token_at=None, **changes)


def report(*records: LoadRecord, stream: bool = True) -> Report:
    return report_of(records, BUDGETS, url="http://a", model="tiny", seed=7, stream=stream)


def text(found: Report) -> str:
    """The table as a terminal would show it."""
    console = Console(file=StringIO(), width=110)
    console.print(as_table(found))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_figures_of_a_run() -> None:
    """Rates are over the span from the first planned instant to the last end; latencies are of successes."""
    found = report(
        answered(0),
        answered(1, ttft_s=0.6),  # misses one budget
        answered(2, output_tokens=10),  # short of what was asked for
        failed(3, "http_429_queue_full", 429, detail="come back later"),
        failed(8, "reset", dispatched_at=8.5),
        failed(9, "reset"),
    )

    assert found.span_s == 9.5
    assert found.offered_per_s == pytest.approx(5 / 9)
    assert (found.lag_s.count, found.lag_s.max) == (6, 0.5)
    total = found.total
    assert (total.requests, total.ok, total.short) == (6, 3, 1)
    assert total.requests_per_s == pytest.approx(3 / 9.5)
    assert total.output_tokens_per_s == pytest.approx(50 / 9.5)
    assert total.prompt_tokens_per_s == pytest.approx(300 / 9.5)
    assert total.goodput_ratio == pytest.approx(2 / 6)
    assert total.goodput_per_s == pytest.approx(2 / 9.5)
    assert total.ttft_s.count == 3
    assert total.ttft_s.max == pytest.approx(0.6)
    assert list(total.errors.items()) == [("reset", 2), ("http_429_queue_full", 1)]
    assert found.error_details["http_429_queue_full"] == "come back later"


def test_tenants_have_figures_of_their_own() -> None:
    """Each tenant's requests and rates are its own, over the span of the whole run."""
    found = report(
        answered(0, tenant="gold"), answered(2, tenant="free"), failed(4, "timeout", tenant="free")
    )

    assert list(found.tenants) == ["free", "gold"]
    assert (found.tenants["free"].requests, found.tenants["free"].ok) == (2, 1)
    assert found.tenants["gold"].requests_per_s == pytest.approx(1 / 4.5)
    shown = text(found)
    assert "By tenant" in shown
    assert "gold" in shown
    assert "By tenant" not in text(report(answered(0), answered(1)))


def test_json_has_stable_keys_and_null_for_what_is_not() -> None:
    """A program finds the same keys in every run; what cannot be measured is null, never a word."""
    full = json.loads(as_json(report(answered(0), failed(1, "reset"))))
    none = json.loads(as_json(report()))

    assert list(full) == list(none)
    assert list(full["total"]) == list(none["total"])
    assert list(full) == [
        "url",
        "model",
        "seed",
        "stream",
        "budgets",
        "span_s",
        "offered_per_s",
        "lag_s",
        "total",
        "tenants",
        "error_details",
    ]
    assert full["total"]["ttft_s"]["p99"] == pytest.approx(0.1)
    assert none["total"]["ttft_s"].pop("count") == 0
    assert set(none["total"]["ttft_s"].values()) == {None}
    assert (none["total"]["goodput_ratio"], none["span_s"]) == (None, None)
    assert full["budgets"] == {"ttft_s": 0.5, "tpot_s": None, "e2e_s": 3.0}


def test_the_table_shows_the_figures() -> None:
    """Latencies beside their budgets, goodput, and each kind of error with an example."""
    shown = text(report(answered(0), failed(1, "http_503_queue_full", 503, detail="[full] try later")))

    for part in (
        "tiny at http://a",
        "P99",
        "TTFT",
        "500ms",
        "50%",
        "2 planned, 1 ok, 1 failed",
        "http_503_queue_full",
        "[full] try later",
    ):
        assert part in shown, part
    assert "TPOT" not in text(report(answered(0, first_token_at=None), stream=False))


def test_what_a_server_says_cannot_drive_the_terminal() -> None:
    """Neither markup nor escape sequences of an error's text take effect."""
    shown = text(report(failed(0, "http_500\x1b[2J", 500, detail="[red]no\x1b]0;title\x07")))

    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "[red]no" in shown


def test_an_empty_run_can_be_shown() -> None:
    """A run that was stopped before its first request has nothing to say, and says so."""
    assert "0 planned, 0 ok, 0 failed" in text(report())


@pytest.mark.parametrize("lag_s, warned", [(0.009, False), (0.011, True)])
def test_a_generator_that_was_late_says_so(lag_s: float, warned: bool) -> None:
    """Sends that are more than 10 ms late at P99 spoil the figures."""
    found = report(*[answered(number, dispatched_at=number + lag_s) for number in range(10)])

    assert found.late is warned
    assert ("not the server's figures alone" in text(found)) is warned


def test_what_was_not_sent_was_not_late() -> None:
    """Lag is of requests that were sent."""
    found = report(answered(0), failed(1, "not_sent", dispatched_at=None, attempts=0))

    assert found.lag_s.count == 1
