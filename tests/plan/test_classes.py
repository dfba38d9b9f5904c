"""Are classes with budgets of their own told apart, and does each of them hold its own?"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from msgspec.structs import replace

from tests.plan.replicas import Served, poisson, simulated
from tests.plan.test_curve import HAND, MEASURED
from tidegate.core.records import Budgets
from tidegate.plan.answer import Answer, Impossible
from tidegate.plan.answering import answer_to
from tidegate.plan.ask import Ask, ClassBudgets, HandFigures, Kind, Load, Replica, Terms
from tidegate.plan.sizing import Size, size_of
from tidegate.workload.requests import PlannedRequest

CHAT = Kind(prompt_tokens=500, output_tokens=150, output_cv=0.5, share=4.0, class_="chat")
REPORTS = Kind(prompt_tokens=6000, output_tokens=400, share=1.0, class_="reports")
BOTH = Load(kinds=(CHAT, REPORTS), requests_per_s=8.0)
LOOSE = Budgets(e2e_s=60.0)


def terms(chat: Budgets, reports: Budgets = LOOSE, **others: object) -> Terms:
    """The tightest of both are of all, as a traffic file has it."""
    own = (ClassBudgets(name="chat", budgets=chat), ClassBudgets(name="reports", budgets=reports))
    figures = {
        name: min((v for each in own if (v := getattr(each.budgets, name)) is not None), default=None)
        for name in ("ttft_s", "tpot_s", "e2e_s")
    }
    return Terms(budgets=Budgets(**figures), classes=own, **others)  # type: ignore[arg-type]


def answered(asked: Terms, load: Load = BOTH, replica: HandFigures | Replica = MEASURED) -> Answer:
    """The plan."""
    found = answer_to(Ask(load=load, replica=replica, terms=asked))
    assert isinstance(found, Answer), found
    return found


class Mixed(Served):
    """Four of five requests are chat."""

    def request(self, at_s: float, rng: Random) -> PlannedRequest:
        """One of either kind."""
        kind = CHAT if rng.random() < 0.8 else REPORTS
        drawn = Served(
            self.profile, round(kind.prompt_tokens), round(kind.output_tokens), 0.0, kind.output_cv, self.gate
        ).request(at_s, rng)
        return replace(drawn, priority="default", tenant=kind.class_)


def test_classes_meet_what_is_simulated() -> None:
    """Of each, TTFT's mean is within 20 %, its P95 within 30 %, TPOT within 10 % and E2E within 12 %."""
    found = answered(terms(Budgets(ttft_s=1.0), replicas=1, spare_replicas=0))
    served = Mixed("h100-8b", 0, 0, 0.0, 0.0, found.concurrency_per_replica)
    seen = simulated(served, poisson(8.0, 2500)).records

    assert [each.name for each in found.classes] == ["chat", "reports"]
    assert [each.share for each in found.classes] == [0.8, 0.2]
    for each in found.classes:
        own = [record for record in seen if record.tenant == each.name]
        ttfts_s, e2es_s = ([getattr(record, name) for record in own] for name in ("ttft_s", "e2e_s"))
        tpots_s = [record.tpot_s for record in own if record.tpot_s is not None]
        assert each.ttft_s.mean == pytest.approx(np.mean(ttfts_s), rel=0.2), each.name
        assert each.ttft_s.p95 == pytest.approx(np.percentile(ttfts_s, 95), rel=0.3), each.name
        assert each.tpot_s.mean == pytest.approx(np.mean(tpots_s), rel=0.1), each.name
        assert each.e2e_s.mean == pytest.approx(np.mean(e2es_s), rel=0.12), each.name
        assert each.e2e_s.p95 == pytest.approx(np.percentile(e2es_s, 95), rel=0.12), each.name


def test_a_long_prompt_does_not_make_a_chat_budget_impossible() -> None:
    """A budget of 150 ms is of prompts of 500 tokens; those of 6,000 take longer, and have none."""
    found = answered(terms(Budgets(ttft_s=0.15)))

    chat, reports = found.classes
    assert chat.held
    assert reports.held
    assert chat.ttft_s.p95 <= 0.15 < reports.ttft_s.p95
    assert found.binding_class == "chat"
    assert "Class chat is nearest to a budget of its own: TTFT P95 is " in found.because
    refused = size_of(Ask(load=BOTH, replica=MEASURED, terms=Terms(budgets=Budgets(ttft_s=0.15))))
    assert isinstance(refused, Impossible) or refused.replicas > found.replicas


def test_a_class_that_cannot_be_held_is_named() -> None:
    """0.1 s is less than a prompt of 6,000 tokens takes, which is that class's alone."""
    asked = terms(Budgets(ttft_s=1.0), Budgets(ttft_s=0.1))
    found = size_of(Ask(load=BOTH, replica=MEASURED, terms=asked))

    assert isinstance(found, Impossible)
    assert found.problem.startswith("class reports: the TTFT budget of 100ms is below what h100-8b takes")
    assert found.unit == "s"


def test_tighter_budgets_of_one_class_take_more_replicas() -> None:
    """And looser ones of the other take no more."""
    sizes = []
    for chat, reports in [(1.0, 20.0), (0.11, 20.0), (0.11, 40.0)]:
        asked = terms(Budgets(ttft_s=chat), Budgets(e2e_s=reports))
        found = size_of(Ask(load=replace(BOTH, requests_per_s=60.0), replica=MEASURED, terms=asked))
        assert isinstance(found, Size), found
        sizes.append(found.replicas)

    assert sizes[0] < sizes[1] == sizes[2]


def test_two_figures_tell_classes_apart_by_their_answers() -> None:
    """At 20 ms a token 150 tokens take 3 s on average and 400 take 8 s; nothing is known of prompts."""
    chat = replace(CHAT, output_cv=0.0)
    load = Load(kinds=(chat, REPORTS), requests_per_s=10.0)
    asked = terms(Budgets(tpot_s=0.02, e2e_s=4.0), Budgets(tpot_s=0.02, e2e_s=9.0))
    found = answered(asked, load, HAND)

    assert [each.e2e_s.mean for each in found.classes] == pytest.approx([3.0, 8.0], abs=0.01)
    assert all(each.held for each in found.classes)
    assert found.binding_class in ("chat", "reports")
