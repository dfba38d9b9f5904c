"""Is advice for disaggregated replicas what both sides and the link sustain?"""

from __future__ import annotations

import msgspec
import pytest

from tests.plan.disaggregated.cases import TERMS, WIRE, ask_of, front, replica
from tidegate.core.records import Budgets
from tidegate.plan.advised import Advice
from tidegate.plan.answer import Answer
from tidegate.plan.ask import Ask
from tidegate.plan.disaggregated.advising import advise_apart
from tidegate.plan.disaggregated.answering import disaggregated_answer
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.tenants import tenants_of

LARGE, CHAT = replica(), replica("Llama-3.1-8B", tp=1)


def advised(ask: Ask, there: Front, weights: dict[str, float] | None = None) -> tuple[Answer, Advice]:
    """What is answered, and what is advised for it."""
    answer = disaggregated_answer(ask, there)
    assert isinstance(answer, Answer), answer
    return answer, advise_apart(ask, there, answer, tenants_of(ask.load, weights or {}))


def test_gates_of_the_worked_case() -> None:
    """2 x 58 decode, 3 x 2 prompts of two steps of 8,192 tokens are computed, one is on the link."""
    answer, advice = advised(ask_of(2.0, LARGE), front(LARGE))
    apart, gate = answer.disaggregated, advice.gate
    assert apart is not None
    assert (apart.prefill_replicas, apart.decode_replicas) == (3, 2)
    assert answer.concurrency_per_replica == 58

    assert gate.max_concurrency.value == 2 * 58 + 3 * 2 + 1
    assert gate.max_prefill_tokens.value == 3 * 2 * 8192
    held = 486_723 - 58 * 15
    assert gate.kv_tokens.value == pytest.approx(2 * held + 7 * (8192 + 150), abs=1)
    assert "max_num_seqs 58" in gate.max_concurrency.reason
    assert "router" in advice.routing.reason


@pytest.mark.parametrize("prompt, output, rate", [(8192, 20, 2.0), (500, 3000, 0.5)])
def test_limits_admit_what_the_lesser_side_sustains(prompt: int, output: int, rate: float) -> None:
    """With the spare ones lost: of prompts where prompts are long, of decoding where outputs are."""
    answer, advice = advised(ask_of(rate, LARGE, prompt, output), front(LARGE), {"a": 3, "b": 1})
    apart = answer.disaggregated
    assert apart is not None
    sides = {
        "prefill": (apart.prefill_replicas, apart.prefill_requests_per_s_per_replica),
        "decode": (apart.decode_replicas, apart.decode_requests_per_s_per_replica),
    }
    all_up = min(count * each for count, each in sides.values())
    lost = min((count - 1) * each for count, each in sides.values())

    weights = advice.weights
    credits_each = prompt * float(weights.input.value or 0) + output * float(weights.output.value or 0)
    admitted = sum(float(each.tokens_per_minute.value or 0) for each in advice.tenants.values())
    assert rate <= admitted / 60 / credits_each <= max(min(0.7 * all_up, lost), 1.1 * rate) * 1.01
    shares = [float(advice.tenants[name].tokens_per_minute.value or 0) for name in ("a", "b")]
    assert shares[0] == pytest.approx(3 * shares[1], rel=1e-3)


def test_what_is_guaranteed_is_prefill_where_nothing_is_decoded() -> None:
    """A tenant alone has the prefill of all replicas for prompts but the spare one."""
    answer, advice = advised(ask_of(2.0, LARGE), front(LARGE))
    apart = answer.disaggregated
    assert apart is not None
    (tenant,) = advice.tenants.values()

    each = apart.prefill_requests_per_s_per_replica * 8192
    assert tenant.guaranteed_tokens_per_s == pytest.approx((apart.prefill_replicas - 1) * each, rel=0.01)
    assert "beside a full batch" not in str(msgspec.to_builtins(advice.budgets))
    assert "transfer" in advice.budgets.tpot_s.reason
    prefill_s, queue_s = advice.budgets.prefill_s.value, advice.budgets.queue_s.value
    assert prefill_s == pytest.approx(1 / apart.prefill_requests_per_s_per_replica, rel=0.01)
    assert 0 < (queue_s or 0) < 3.0 - (prefill_s or 0)


def test_more_places_admit_more_before_them() -> None:
    """The queue holds what can still meet its deadline: more replicas, a longer one."""
    queues = []
    for count in (4, 8, 16):
        there = Front(prefill=CHAT, link=WIRE, replicas=count)
        _, advice = advised(ask_of(None, CHAT, 2000, 200), there)
        queues.append(advice.queue.max_requests.value or 0)

    assert queues == sorted(queues)
    assert queues[0] < queues[-1]


def test_seconds_of_larger_replicas_for_prompts_count_more() -> None:
    """A token's weight is by accelerators: twice as many for prompts, at less than twice the speed."""
    _, alike = advised(ask_of(2.0, LARGE), front(LARGE))
    _, wide = advised(ask_of(2.0, LARGE), front(replica(tp=8)))

    def prompt_over_output(advice: Advice) -> float:
        return float(advice.weights.input.value or 0) / float(advice.weights.output.value or 1)

    assert prompt_over_output(wide) > prompt_over_output(alike)


def test_without_budgets_there_is_advice_too() -> None:
    """Deadlines are then the gateway's own."""
    terms = msgspec.structs.replace(TERMS, budgets=Budgets())
    _, advice = advised(ask_of(2.0, LARGE, terms=terms), front(LARGE))

    assert "default" in advice.deadlines.ttft_s.reason
