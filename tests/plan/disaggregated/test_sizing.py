"""Are prompts apart from decoding sized by both sides and the link, as a simulation of them says?"""

from __future__ import annotations

import msgspec
import pytest

from tests.plan.disaggregated.cases import (
    CATALOG,
    OUTPUT,
    PROMPT,
    TERMS,
    Fleet,
    ask_of,
    front,
    mean,
    open_load,
    replica,
)
from tidegate.core.errors import ConfigurationError
from tidegate.plan.answer import Answer, Impossible
from tidegate.plan.arrivals import Hour
from tidegate.plan.ask import Kind, Load, Terms
from tidegate.plan.disaggregated.answering import comparison_of, disaggregated_answer
from tidegate.plan.disaggregated.apart import Sides
from tidegate.plan.disaggregated.front import link_of
from tidegate.plan.disaggregated.link import Link
from tidegate.plan.disaggregated.pair import Pair
from tidegate.plan.disaggregated.schedule import schedule_apart
from tidegate.plan.disaggregated.sizing import size_apart

KV_BYTES = 2 * 80 * 8 * 128 * 2 * PROMPT  # keys and values, layers, heads, their size, fp16: 2.68 GB


def planned(rate: float, link: Link, terms: Terms = TERMS) -> Answer:
    """Of the worked case, which must be possible."""
    one = replica()
    answer = disaggregated_answer(ask_of(rate, one, terms=terms), front(one, link))
    assert isinstance(answer, Answer), answer
    return answer


@pytest.mark.parametrize("rate", [0.5, 2, 8])
def test_the_worked_case(rate: float) -> None:
    """2.68 GB per request: the link carries the rate at 70 %, and one transfer in what TPOT leaves."""
    answer = planned(rate, Link(bytes_per_s=50e9))
    apart = answer.disaggregated

    assert apart is not None
    assert apart.kv_bytes_per_request == KV_BYTES == 2_684_354_560
    assert apart.link_needed_bytes_per_s == pytest.approx(rate * KV_BYTES / 0.7)
    assert apart.transfer_s == pytest.approx(KV_BYTES / 50e9)
    assert apart.link_utilisation == pytest.approx(rate * KV_BYTES / 50e9)
    assert apart.transfer_budget_s is not None
    assert apart.link_needed_for_one_bytes_per_s == pytest.approx(KV_BYTES / apart.transfer_budget_s)
    assert apart.transfer_s < apart.transfer_budget_s < 0.05 * (OUTPUT - 1)
    # The cache comes in the first gap, so that both the gap and TPOT have it in them.
    assert apart.first_gap_s > apart.transfer_s
    assert answer.tpot_s.mean > apart.transfer_s / (OUTPUT - 1)
    assert answer.ttft_s.at_percentile <= 3.0
    assert answer.tpot_s.at_percentile <= 0.05


def test_each_side_is_sized_by_what_it_does() -> None:
    """Prompts by compute, decoding by memory; each has a spare one, and their sum is the answer's."""
    answer = planned(8, Link(bytes_per_s=50e9))
    apart = answer.disaggregated

    assert apart is not None
    assert answer.replicas == apart.prefill_replicas + apart.decode_replicas
    assert answer.accelerators == 4 * answer.replicas
    assert answer.cost_per_hour == pytest.approx(2.95 * 4 * answer.replicas)
    assert min(apart.prefill_spare_replicas, apart.decode_spare_replicas) >= 1
    assert apart.prefill_utilisation <= 0.7
    assert apart.decode_utilisation <= 0.7
    used = (apart.prefill_utilisation, apart.link_utilisation, apart.decode_utilisation)
    assert answer.utilisation == pytest.approx(max(used))
    assert answer.binding == "compute"
    # Prompts that stall nobody need fewer accelerators than prompts that stall everybody.
    assert apart.whole.accelerators is not None
    assert answer.accelerators < apart.whole.accelerators
    assert "Aggregated" in comparison_of(answer)


def test_a_slow_link_is_told_with_what_would_do() -> None:
    """By the rate, at 70 %, where all share it; by one transfer, where TPOT leaves less."""
    one = replica()
    by_rate = disaggregated_answer(ask_of(2, one), front(one, Link(bytes_per_s=5e9)))
    assert isinstance(by_rate, Impossible)
    assert by_rate.binding == "link"
    assert by_rate.needed == pytest.approx(2 * KV_BYTES / 0.7)
    assert "7.67 GB/s" in by_rate.remedy
    assert isinstance(disaggregated_answer(ask_of(2, one), front(one, Link(bytes_per_s=7.7e9))), Answer)

    by_one = disaggregated_answer(ask_of(0.01, one), front(one, Link(bytes_per_s=0.4e9)))
    assert isinstance(by_one, Impossible)
    assert by_one.binding == "link"
    assert by_one.needed is not None
    assert by_one.needed > 0.05


def test_own_links_make_more_replicas_where_one_is_too_slow() -> None:
    """Where each replica has one, as the catalogue says, a slow one asks for more of both."""
    one = replica()
    slow = size_apart(ask_of(2, one), front(one, Link(bytes_per_s=2.6e9, shared=False)))
    quick = size_apart(ask_of(2, one), front(one, Link(bytes_per_s=50e9, shared=False)))

    assert not isinstance(slow, Impossible)
    assert not isinstance(quick, Impossible)
    assert min(slow.prefill_replicas, slow.decode_replicas) >= 3  # 2 x 2.68 / 2.6 / 0.7
    assert slow.utilisations["link"] <= 0.7
    assert quick.decode_replicas < slow.decode_replicas
    assert one.deployment is not None
    assert link_of(one.deployment) == Link(bytes_per_s=4 * 50e9, latency_s=quick_latency(), shared=False)


def quick_latency() -> float:
    """Of the catalogue's link."""
    return CATALOG.accelerator("h100-sxm").link_latency_s


@pytest.mark.parametrize("output", [2, 20, 150])
@pytest.mark.parametrize("used", [0.05, 0.5, 0.9])
def test_ttft_is_part_of_e2e(used: float, output: int) -> None:
    """At every percentile, of lengths that vary so much that the longest prompts are all that E2E is."""
    one = replica()
    kinds = (
        Kind(prompt_tokens=100, output_tokens=output, share=0.97),
        Kind(prompt_tokens=60_000, output_tokens=output, share=0.03),
    )
    ask = msgspec.structs.replace(ask_of(1.0, one), load=Load(kinds=kinds, requests_per_s=1.0))
    sides = Sides(ask, front(one))
    rate = used * 3 * min(sides.prefill.sustained_per_s, sides.decode.sustained_per_s)
    found = Pair(sides, 3).latencies(rate, 3, 0.95)

    assert found is not None
    for name in ("mean", "p50", "p95", "p99", "at_percentile"):
        assert getattr(found.ttft_s, name) <= getattr(found.e2e_s, name), name


def test_each_hour_is_sized_for_itself() -> None:
    """Both kinds, whatever there is; an hour that cannot be is left out."""
    one = replica()
    hours = [Hour(hour=hour, requests_per_s=rate) for hour, rate in enumerate([0.5, 2.0, 8.0, 1000.0])]
    there = msgspec.structs.replace(front(one, Link(bytes_per_s=50e9)), replicas=5)
    found = schedule_apart(ask_of(8, one), there, hours)

    assert [each.hour for each in found] == [0, 1, 2]
    for each in found:
        size = size_apart(ask_of(each.requests_per_s, one), front(one, Link(bytes_per_s=50e9)))
        assert not isinstance(size, Impossible)
        assert (each.prefill_replicas, each.replicas) == (size.prefill_replicas, sum(size.counts))
    replicas = [each.replicas for each in found]
    assert replicas == sorted(replicas)


def test_answers_of_one_token_are_not_decoded() -> None:
    """There is nothing to be apart from."""
    one = replica()
    with pytest.raises(ConfigurationError, match="one token"):
        disaggregated_answer(ask_of(1, one, output=1), front(one, Link(bytes_per_s=50e9)))


@pytest.mark.parametrize(
    "model, tp, prompt, output, rate, prefill, decode, link",
    [
        ("Llama-3.1-70B", 4, PROMPT, OUTPUT, 1.0, 1, 1, 25e9),
        ("Llama-3.1-8B", 1, 2000, 100, 10.0, 1, 1, 25e9),
        ("Llama-3.1-8B", 1, 500, 100, 60.0, 2, 2, 25e9),
    ],
)
def test_a_simulation_says_the_same(
    model: str, tp: int, prompt: int, output: int, rate: float, prefill: int, decode: int, link: float
) -> None:
    """With the same curve, link and replicas, as `tidegate simulate` has them."""
    one = replica(model, tp)
    sides = Sides(ask_of(rate, one, prompt, output), front(one, Link(bytes_per_s=link)))
    found = Pair(sides, prefill).latencies(rate, decode, 0.95)
    assert found is not None

    ttft, tpot, e2e = open_load(Fleet(one, (prompt, output), (prefill, decode), link), rate)

    for name, simulated, plan, within in [
        ("TTFT", mean(ttft), found.ttft_s.mean, 0.06),
        ("TPOT", mean(tpot), found.tpot_s.mean, 0.03),
        ("E2E", mean(e2e), found.e2e_s.mean, 0.03),
        ("TTFT P95", sorted(ttft)[int(0.95 * len(ttft))], found.ttft_s.p95, 0.15),
        ("TPOT P95", sorted(tpot)[int(0.95 * len(tpot))], found.tpot_s.p95, 0.06),
    ]:
        assert plan == pytest.approx(simulated, rel=within), name
