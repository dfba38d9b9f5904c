"""Does a traffic file come to the load that it describes?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.core.errors import ConfigurationError
from tidegate.core.records import Budgets
from tidegate.plan.arrivals import hours_of, load_of_streams
from tidegate.plan.ask import ClassBudgets, Terms
from tidegate.planning.loads import classes_of_traffic, tightest, trace_stream, traffic_streams

LENGTHS = "{prompt_tokens: {type: fixed, value: 900}, output_tokens: {type: fixed, value: 101}}"


def streams(tmp_path: Path, source: str, budgets: Budgets | None = None) -> list[float]:
    """Requests of each minute of a day of one source."""
    path = tmp_path / "traffic.yaml"
    path.write_text(f"sources:\n  only: {source}\n")
    (found,) = traffic_streams(path, Terms(budgets=budgets or Budgets()))
    return list(found.per_minute)


def test_a_source_that_comes_by_itself_is_as_busy_as_its_rate(tmp_path: Path) -> None:
    """A day that swings by half is 1.5 times as busy at its peak, without any dice."""
    day = "{daily: {mean_per_s: 4, swing: 0.5, peak_s: 43200}}"
    counts = streams(tmp_path, f"{{kind: open, arrivals: {day}, lengths: {LENGTHS}}}")

    assert len(counts) == 24 * 60
    assert max(counts) == pytest.approx(360, rel=1e-3)
    assert sum(counts) == pytest.approx(4 * 86_400)


def test_clients_come_as_often_as_they_are_answered(tmp_path: Path) -> None:
    """Ten clients with 3 s of thought and 1 s + 100 x 20 ms of answer ask ten times in 6 s."""
    source = f"{{kind: clients, clients: 10, think_s: {{type: fixed, value: 3}}, lengths: {LENGTHS}}}"
    counts = streams(tmp_path, source, Budgets(ttft_s=1.0, tpot_s=0.02))

    assert max(counts) == pytest.approx(100, rel=0.01)
    assert min(counts) == max(counts)


def test_sessions_have_all_their_turns(tmp_path: Path) -> None:
    """One start in 10 s with 4 turns each is 24 requests a minute."""
    source = (
        "{kind: sessions, starts: {rate_per_s: 0.1, gaps: even}, turns: {type: fixed, value: 4}, "
        "new_tokens: {type: fixed, value: 100}, output_tokens: {type: fixed, value: 50}}"
    )

    assert max(streams(tmp_path, source)) == pytest.approx(24, rel=0.01)


def test_a_trace_is_as_it_was() -> None:
    """Azure's hour of chat: 19,366 requests, 507 of them in its busiest minute."""
    stream = trace_stream("azure-conv")
    load = load_of_streams([stream])

    assert stream.requests == 19_366
    assert max(stream.per_minute) == 507
    assert load.prompt_tokens == pytest.approx(1154.7, abs=0.1)
    assert load.output_tokens == pytest.approx(211.1, abs=0.1)
    assert [each.requests_per_s for each in hours_of([stream])] == [pytest.approx(8.45)]


CLASSES = f"""
sources:
  chat: {{kind: open, class: chat, arrivals: {{rate_per_s: 1}}, lengths: {LENGTHS}}}
  batch: {{kind: clients, class: batch, clients: 10, think_s: {{type: fixed, value: 3}}, lengths: {LENGTHS}}}
classes:
  chat: {{budgets: {{ttft_s: 0.5}}}}
"""


def test_classes_may_have_budgets_of_their_own(tmp_path: Path) -> None:
    """What a class does not say is asked of all; the tightest of each figure is what gates are for."""
    path = tmp_path / "traffic.yaml"
    path.write_text(CLASSES)
    found = classes_of_traffic(path, Budgets(ttft_s=1.0, tpot_s=0.02))

    assert found == (
        ClassBudgets(name="chat", budgets=Budgets(ttft_s=0.5, tpot_s=0.02)),
        ClassBudgets(name="batch", budgets=Budgets(ttft_s=1.0, tpot_s=0.02)),
    )
    assert tightest(found) == Budgets(ttft_s=0.5, tpot_s=0.02)

    path.write_text(CLASSES.split("classes:\n")[0])
    assert classes_of_traffic(path, Budgets()) == ()


def test_a_class_that_nobody_asks_in_is_a_misprint(tmp_path: Path) -> None:
    """It is named, with those that there are."""
    path = tmp_path / "traffic.yaml"
    path.write_text(CLASSES.replace("  chat: {budgets", "  chta: {budgets"))

    with pytest.raises(ConfigurationError, match="no source asks in class chta; there are chat, batch"):
        classes_of_traffic(path, Budgets())
