"""Are the parts of a request's time all of it, and is what they may take all of the budget?"""

from __future__ import annotations

import msgspec
import pytest

from tests.plan.disaggregated.cases import TERMS, WIRE, ask_of, front, replica
from tidegate.core.records import Budgets
from tidegate.plan.answer import Answer
from tidegate.plan.ask import Ask, Kind, Load
from tidegate.plan.disaggregated.answering import disaggregated_answer
from tidegate.plan.disaggregated.link import Link

CHAT = replica("Llama-3.1-8B", tp=1)
MIXED = Load(
    kinds=(Kind(prompt_tokens=500, output_tokens=300), Kind(prompt_tokens=6000, output_tokens=50, share=0.5)),
    requests_per_s=12.0,
)


@pytest.mark.parametrize("link", [WIRE, Link(bytes_per_s=8e9)])
@pytest.mark.parametrize("load", [ask_of(8.0, CHAT, 2000, 200).load, MIXED])
def test_stages_are_all_of_it(load: Load, link: Link) -> None:
    """Means sum up to E2E; queue and prefill are TTFT; budgets of stages sum up to those of the request."""
    answer = disaggregated_answer(Ask(load=load, replica=CHAT, terms=TERMS), front(CHAT, link))
    assert isinstance(answer, Answer), answer
    assert answer.disaggregated is not None
    stages = {each.stage: each for each in answer.disaggregated.stages}

    assert list(stages) == ["queue", "prefill", "transfer", "decode"]
    assert sum(each.mean_s for each in stages.values()) == pytest.approx(answer.e2e_s.mean, rel=0.01)
    first = stages["queue"], stages["prefill"]
    assert sum(each.mean_s for each in first) == pytest.approx(answer.ttft_s.mean)
    assert sum(each.at_percentile_s for each in first) == pytest.approx(answer.ttft_s.at_percentile)
    assert sum(each.budget_s or 0.0 for each in first) == pytest.approx(3.0)
    gaps = sum(kind.share * (kind.output_tokens - 1) for kind in load.kinds)
    gaps /= sum(kind.share for kind in load.kinds)
    rest = stages["transfer"], stages["decode"]
    assert sum(each.budget_s or 0.0 for each in rest) == pytest.approx(0.05 * gaps)
    assert stages["transfer"].mean_s >= answer.disaggregated.transfer_s


def test_no_budget_is_no_split() -> None:
    """Where no budget says how long, none is shared out."""
    terms = msgspec.structs.replace(TERMS, budgets=Budgets(e2e_s=20.0))
    answer = disaggregated_answer(ask_of(4.0, CHAT, 2000, 200, terms=terms), front(CHAT))
    assert isinstance(answer, Answer), answer
    assert answer.disaggregated is not None

    assert {each.budget_s for each in answer.disaggregated.stages} == {None}
