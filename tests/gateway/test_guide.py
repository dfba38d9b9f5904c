"""docs/guides/operating.md names every metric, refusal, state and endpoint that there is, and no other."""

from __future__ import annotations

import re
from random import Random
from typing import Any

from prometheus_client.core import CounterMetricFamily

from tests.server_process import REPOSITORY
from tidegate.config import for_url
from tidegate.core.reasons import ANSWERS, Reason
from tidegate.gateway.metrics import Metrics
from tidegate.gateway.tallies import RequestTally
from tidegate.policy.breakers import BreakerState
from tidegate.policy.governor import Governor

GUIDE = (REPOSITORY / "docs" / "guides" / "operating.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """The cells of every table row under a heading that begins with a name in code."""
    section = GUIDE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^\| (`.*) \|$", section, re.MULTILINE)
    return [[cell.strip(" `") for cell in re.split(r"(?<!\\)\|", line)] for line in lines]


def test_every_metric() -> None:
    """With its labels; and nothing else that the text calls a metric."""
    governor = Governor(for_url(["http://127.0.0.1:1"]).governor_settings(), Random(1))
    families: list[Any] = list(Metrics(governor, RequestTally({}), lambda: 0.0).collect())
    labels = {
        each.name + "_total" * isinstance(each, CounterMetricFamily): ", ".join(each._labelnames)
        for each in families
    }

    assert {row[0]: row[1] for row in rows("Metrics") if row[0].startswith("tidegate_")} == labels
    assert set(re.findall(r"\btidegate_\w+", GUIDE)) == set(labels)


def test_every_refusal() -> None:
    """With its status, and whether a client should come again."""
    told = {row[0]: (row[1], row[2]) for row in rows("Refusals")}

    assert told == {
        reason.value: (str(ANSWERS[reason].status), "yes" if ANSWERS[reason].retryable else "no")
        for reason in Reason
    }


def test_alerts_go_by_reasons_that_there_are() -> None:
    """Each alternative of a pattern in an expression matches some reason."""
    patterns = [each for found in re.findall(r'reason=~"([^"]+)"', GUIDE) for each in found.split(r"\|")]

    assert len(patterns) > 8
    for pattern in patterns:
        assert any(re.fullmatch(pattern, reason.value) for reason in Reason), pattern


def test_every_state_of_a_replica() -> None:
    """Those of a breaker are among them, except for that of a closed one, which is called up."""
    states = {row[0] for row in rows("Metrics") if not row[0].startswith("tidegate_")}

    assert states == {"up", "busy", "down", "draining"} | {state.value for state in BreakerState} - {"closed"}


def test_alerts_that_metrics_serve() -> None:
    """Whatever a metric is said to serve by an alert's name is the name of one."""
    alerts = set(re.findall(r"^\| \*\*(.+?)\*\*", GUIDE, re.MULTILINE))
    served = {
        name for row in rows("Metrics") if row[0].startswith("tidegate_") for name in row[3].split(", ")
    }

    assert len(alerts) > 5
    assert served >= alerts - {"gateway down"}
