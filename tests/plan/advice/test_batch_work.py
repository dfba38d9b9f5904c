"""Is batch work served so that no replica goes empty and nothing is given up?"""

from __future__ import annotations

import msgspec
import pytest

from tests.plan.disaggregated.cases import replica
from tidegate.plan.advice.batch_work import advise_batch_work, batch_ask, with_workers, workers_of
from tidegate.plan.advised import Advice
from tidegate.plan.answer import Answer
from tidegate.plan.ask import Ask, HandFigures, Kind, Load, Replica, Terms
from tidegate.plan.offline import INTERACTIVE, offline_answer
from tidegate.plan.tenants import tenants_of

CHAT = replica("Llama-3.1-8B", tp=1)
HOURS = 8 * 3600.0


def documents(
    one: Replica | HandFigures = CHAT, rate: float = 20.0, class_: str = "", prompt: float = 2000
) -> Ask:
    """Of 2,000 and 100 tokens, within eight hours."""
    load = Load(kinds=(Kind(prompt_tokens=prompt, output_tokens=100, class_=class_),), requests_per_s=rate)
    return Ask(load=load, replica=one, terms=Terms(within_s=HOURS, target_utilisation=0.95, spare_replicas=0))


def answered(ask: Ask) -> Answer:
    """Beside people who wait."""
    terms = Terms(budgets=INTERACTIVE)
    answer = offline_answer(ask, msgspec.structs.replace(ask, terms=terms))
    assert isinstance(answer, Answer), answer
    return answer


def advised(ask: Ask, weights: dict[str, float] | None = None) -> Advice:
    """For tenants by weight."""
    return advise_batch_work(ask, answered(ask), tenants_of(batch_ask(ask).load, weights or {}))


def test_nothing_is_held_back_and_nothing_is_given_up() -> None:
    """Gates are full, the queue refills them, and only the deadline of all of it ends a request."""
    ask = documents()
    answer, advice = answered(ask), advised(ask)
    places = answer.replicas * answer.concurrency_per_replica

    assert advice.gate.max_concurrency.value == answer.concurrency_per_replica
    assert advice.gate.max_prefill_tokens.value is None
    assert advice.queue.max_requests.value == workers_of(answer) == pytest.approx(1.25 * places, abs=1)
    assert advice.queue.max_tokens.value == workers_of(answer) * 2100
    assert {name: each.value for name, each in advice.queue.max_wait_s.items()} == {"batch": HOURS}
    assert (advice.deadlines.ttft_s.value, advice.deadlines.total_s.value) == (HOURS, HOURS)
    assert advice.degradation == ()
    assert advice.warnings == ()


def test_tenants_share_by_weight_and_have_no_limits() -> None:
    """A limit would only leave replicas empty."""
    tenants = advised(documents(), {"a": 2.0, "b": 1.0}).tenants

    assert {name: each.weight for name, each in tenants.items()} == {"a": 2.0, "b": 1.0}
    for each in tenants.values():
        assert each.tokens_per_minute.value is None
        assert each.burst_s.value is None
        assert each.holds_budget is None
        assert each.refused_ratio == 0


@pytest.mark.parametrize("written, class_", [("", "batch"), ("nightly", "nightly")])
def test_the_class_is_batch_unless_another_is_named(written: str, class_: str) -> None:
    """Whoever serves people beside it puts that class below theirs."""
    ask = documents(class_=written)

    assert list(advised(ask).queue.max_wait_s) == [class_]
    assert {kind.class_ for kind in batch_ask(ask).load.kinds} == {class_}


def test_whoever_sends_it_always_has_requests_open() -> None:
    """More than there are places, so that the next is there when one is free."""
    ask = documents()
    answer = answered(ask)
    load = with_workers(ask, answer).load

    assert load.users == workers_of(answer) > answer.replicas * answer.concurrency_per_replica
    assert load.think_s == 0
    assert load.requests_per_s is None


def test_two_figures_are_enough() -> None:
    """Of a replica by hand nothing is known of prompts, and there is advice all the same."""
    advice = advised(documents(HandFigures(tokens_per_s=2000, tpot_s=0.02), rate=10.0))

    assert advice.gate.max_concurrency.value == 40
    assert advice.queue.max_wait_s["batch"].value == HOURS
