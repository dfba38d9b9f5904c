"""Is what there is shared out so that no other split carries more?"""

from __future__ import annotations

import msgspec
import pytest

from tests.plan.disaggregated.cases import TERMS, WIRE, ask_of, front, replica
from tidegate.core.errors import ConfigurationError
from tidegate.plan.answer import Answer, Impossible
from tidegate.plan.ask import Ask, Terms
from tidegate.plan.ceilings import highest
from tidegate.plan.disaggregated.answering import comparison_of, disaggregated_answer
from tidegate.plan.disaggregated.apart import Sides
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.disaggregated.link import Link
from tidegate.plan.disaggregated.sizing import both_held, size_apart
from tidegate.plan.disaggregated.splitting import BETTER, best_split, most_of

CHAT = replica("Llama-3.1-8B", tp=1)
LONG = msgspec.structs.replace(TERMS, budgets=msgspec.structs.replace(TERMS.budgets, ttft_s=0.2))


def carried(ask: Ask, sides: Sides, counts: tuple[int, int]) -> float:
    """What one split carries, looked for without any bound that could be wrong."""
    spare = ask.terms.spare_replicas
    left = counts[0] - spare, counts[1] - spare
    target = ask.terms.target_utilisation

    def held(rate: float) -> bool:
        if rate > target * counts[0] * sides.prefill.sustained_per_s:
            return False
        if rate > target * counts[1] * sides.decode.sustained_per_s:
            return False
        links = sides.transfer.link.count(*counts)
        return sides.transfer.utilisation(rate, links) <= 0.7 and both_held(ask, sides, rate, left)

    return highest(held, 1e3, 1e-4)


@pytest.mark.parametrize("count, spare", [(2, 0), (3, 0), (5, 0), (5, 1), (8, 1)])
@pytest.mark.parametrize("prompt, output", [(500, 400), (4000, 100)])
@pytest.mark.parametrize("link", [WIRE, Link(bytes_per_s=2e9), Link(bytes_per_s=1e9, shared=False)])
def test_no_split_carries_more(count: int, spare: int, prompt: int, output: int, link: Link) -> None:
    """The best is found without looking at each: prompts, decoding and the link all bind somewhere."""
    ask = ask_of(None, CHAT, prompt, output, terms=msgspec.structs.replace(LONG, spare_replicas=spare))
    there = Front(prefill=CHAT, link=link, replicas=count)
    sides = Sides(ask, there)
    found = best_split(ask, there, sides)
    assert not isinstance(found, Impossible), found
    counts, rate = found

    every = {each: carried(ask, sides, each) for each in there.splits(CHAT, spare)}

    assert rate == pytest.approx(every[counts], rel=2e-4)
    assert rate >= max(every.values()) * (1 - 2 * BETTER)
    assert all(each <= most_of(ask, sides, split) * (1 + 1e-3) for split, each in every.items())


def test_long_prompts_take_more_replicas_than_long_outputs() -> None:
    """Rates are matched: whoever has more to compute has more replicas."""
    shares = []
    for prompt, output in [(4000, 20), (2000, 200), (200, 1000)]:
        there = Front(prefill=CHAT, link=WIRE, replicas=12)
        size = size_apart(ask_of(None, CHAT, prompt, output), there)
        assert not isinstance(size, Impossible)
        shares.append(size.prefill_replicas)

    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 6 > shares[-1]


def test_accelerators_are_shared_out_between_kinds_of_different_size() -> None:
    """None is left over that would make one more replica of the kind that decodes; both are told."""
    prefill, decode = replica(tp=2), replica(tp=4)
    there = Front(prefill=prefill, link=WIRE, accelerators=30)
    answer = disaggregated_answer(ask_of(None, decode), there)
    assert isinstance(answer, Answer), answer
    apart = answer.disaggregated
    assert apart is not None

    assert answer.accelerators == 2 * apart.prefill_replicas + 4 * apart.decode_replicas
    assert 30 - 4 < answer.accelerators <= 30
    assert (apart.prefill_replica, apart.decode_replica) == (prefill.name, decode.name)
    assert answer.replica == f"{prefill.name} and {decode.name}"
    assert answer.summary.startswith(
        f"{apart.prefill_replicas} replicas of 2 x NVIDIA H100 SXM for prompts and"
    )
    assert answer.cost_per_hour == pytest.approx(2.95 * answer.accelerators)
    assert answer.ttft_s.at_percentile <= 3.0
    assert answer.tpot_s.at_percentile <= 0.05
    assert apart.most_requests_per_s == answer.requests_per_s
    assert apart.whole.accelerators == 28  # as many as make replicas that do both
    assert "carry" in comparison_of(answer)


def test_more_than_they_carry_is_said() -> None:
    """A rate and what there is: the split is the best, and whether it holds is told."""
    there = Front(prefill=CHAT, link=Link(bytes_per_s=50e9, shared=False), replicas=4)
    most = disaggregated_answer(ask_of(None, CHAT, 2000, 200), there)
    assert isinstance(most, Answer)
    rate = most.requests_per_s

    less = disaggregated_answer(ask_of(0.9 * rate, CHAT, 2000, 200), there)
    more = disaggregated_answer(ask_of(1.2 * rate, CHAT, 2000, 200), there)
    beyond = disaggregated_answer(ask_of(20 * rate, CHAT, 2000, 200), there)

    assert isinstance(less, Answer)
    assert less.warnings == ()
    assert less.spare_replicas == 2
    for each in (more, beyond):
        assert isinstance(each, Answer)
        assert "is the most" in each.warnings[0]
        assert each.spare_replicas == 0
        assert each.replicas == 4
    assert isinstance(beyond, Answer)
    assert beyond.ttft_s.p95 == float("inf")
    assert beyond.disaggregated is not None
    assert beyond.disaggregated.stages == ()


@pytest.mark.parametrize(
    "there, spare, problem, remedy",
    [
        ({"replicas": 1}, 0, "1 replica is too few", "2 replicas or more"),
        ({"replicas": 3}, 1, "3 replicas are too few", "4 replicas or more would do, or --spare 0"),
        ({"accelerators": 7}, 0, "7 accelerators are too few", "8 accelerators or more"),
        ({"accelerators": 8}, 1, "1 of each kind spare", "16 accelerators or more"),
    ],
)
def test_too_few(there: dict[str, int], spare: int, problem: str, remedy: str) -> None:
    """Both kinds need one, and one more where one may be lost."""
    one = replica()
    terms = msgspec.structs.replace(TERMS, spare_replicas=spare)
    found = size_apart(ask_of(None, one, terms=terms), Front(prefill=one, link=WIRE, **there))

    assert isinstance(found, Impossible)
    assert problem in found.problem
    assert remedy in found.remedy


def test_a_budget_that_no_split_holds() -> None:
    """The budget is named, with what would do."""
    one = replica()
    terms = Terms(budgets=msgspec.structs.replace(TERMS.budgets, ttft_s=0.1))
    found = size_apart(ask_of(None, one, terms=terms), Front(prefill=one, link=WIRE, replicas=6))

    assert isinstance(found, Impossible)
    assert "TTFT budget of 100ms" in found.problem


def test_neither_a_rate_nor_how_many() -> None:
    """There is nothing to size by."""
    one = replica()
    with pytest.raises(ConfigurationError, match="--qps, --users, --replicas or --gpus"):
        size_apart(ask_of(None, one), front(one))


def test_a_prompt_that_does_not_fit_where_prompts_are_computed() -> None:
    """A small replica for prompts is named as what is too small."""
    small, one = replica(tp=2), replica(tp=4)
    ask = ask_of(1.0, one, prompt=20_000.0)
    assert isinstance(size_apart(ask, front(one)), Impossible) is False
    assert small.engine.kv_tokens < 60_000
    found = size_apart(ask_of(1.0, one, prompt=60_000.0), front(small))

    assert isinstance(found, Impossible)
    assert found.binding == "kv_memory"
    assert "--prefill-tp" in found.remedy
