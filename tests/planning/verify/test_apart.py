"""Does the simulation of disaggregated replicas say what their plan says, and find out one that is wrong?"""

from __future__ import annotations

import msgspec

from tests.plan.disaggregated.cases import TERMS, ask_of, replica
from tidegate.core.records import Budgets
from tidegate.plan.answer import Answer
from tidegate.plan.ask import Ask
from tidegate.plan.disaggregated.advising import advise_apart
from tidegate.plan.disaggregated.answering import disaggregated_answer
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.disaggregated.link import Link
from tidegate.plan.tenants import tenants_of
from tidegate.planning.verify.simulating import Effort, verify
from tidegate.planning.verify.verdict import Verification

LITTLE = Effort(seeds=3, requests=300)
CHAT = replica("Llama-3.1-8B", tp=1)
BUDGETS = msgspec.structs.replace(TERMS, budgets=Budgets(ttft_s=0.3, tpot_s=0.02))


def verified(ask: Ask, planned: Front, built: Front) -> Verification:
    """What a simulation of the one says of the plan for the other."""
    answer = disaggregated_answer(ask, planned)
    assert isinstance(answer, Answer), answer
    tenants = tenants_of(ask.load, {})
    plan = (ask, answer, advise_apart(ask, planned, answer, tenants))
    return verify(plan, tenants, LITTLE, front=built)


def test_it_holds() -> None:
    """Prompts on faster replicas than those that decode, each with a link of its own."""
    link = Link(bytes_per_s=20e9, shared=False)
    there = Front(prefill=replica("Llama-3.1-8B", tp=2), link=link)
    found = verified(ask_of(12.0, CHAT, 2000, 60, terms=BUDGETS), there, there)

    assert found.agrees, found.sentence
    assert found.budgets_hold
    assert {"requests_per_s_per_replica", "utilisation"} <= {each.name for each in found.figures}
    assert [bound.holds for bound in found.bounds] == [True]


def test_a_link_that_is_slower_than_planned_is_found_out() -> None:
    """Caches come later: TPOT is not what was planned, and TTFT still is."""
    planned = Front(prefill=CHAT, link=Link(bytes_per_s=50e9))
    built = Front(prefill=CHAT, link=Link(bytes_per_s=4e9))
    found = verified(ask_of(6.0, CHAT, 2000, 60, terms=BUDGETS), planned, built)

    assert not found.agrees
    wrong = {each.name for each in found.figures if not each.agrees}
    assert {"tpot_s.p50", "tpot_s.p95"} <= wrong
    assert "ttft_s.p50" not in wrong
