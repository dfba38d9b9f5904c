"""Is a replica with known step times given the right gates, and is what binds it named?"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.core.curve import Linear
from tidegate.core.records import Budgets
from tidegate.plan.answer import Answer, Impossible
from tidegate.plan.answering import answer_to
from tidegate.plan.ask import Ask, Kind, Load, Replica, Terms
from tidegate.plan.laws.engine import Engine
from tidegate.plan.sensitivity import changes_of
from tidegate.plan.served import ServedStation
from tidegate.plan.sizing import Size, fewest, size_of

# A step takes 10 ms, 0.1 ms more for each sequence and 50 us for each prompt token.
ENGINE = Engine(
    curve=Linear(a_s=0.01, b_s_per_sequence=1e-4, c_s_per_context_token=1e-8, d_s_per_prefill_token=5e-5),
    max_num_seqs=64,
    max_batched_tokens=2048,
    kv_tokens=100_000,
    context_tokens=16_384,
)
REPLICA = Replica(name="test", engine=ENGINE)
BUDGETS = Budgets(ttft_s=1.0)


def ask(
    rate: float | None,
    *,
    prompt: float = 500,
    output: float = 200,
    budgets: Budgets = BUDGETS,
    replicas: int | None = None,
    **engine: int,
) -> Ask:
    """For such a replica, whose engine differs in that."""
    return Ask(
        load=Load(kinds=(Kind(prompt_tokens=prompt, output_tokens=output),), requests_per_s=rate),
        replica=msgspec.structs.replace(REPLICA, engine=msgspec.structs.replace(ENGINE, **engine)),
        terms=Terms(budgets=budgets, replicas=replicas),
    )


def answered(question: Ask) -> Answer:
    """The plan."""
    found = answer_to(question)
    assert isinstance(found, Answer), found
    return found


@pytest.mark.parametrize(
    "question, concurrency, binding, figure",
    [
        (ask(5), 64, "batch", "64 sequences"),
        (ask(5, kv_tokens=14_080), 20, "kv_memory", "14,080 tokens of KV cache hold 20 requests of 700"),
        # 22 sequences decode in 12.2 ms, and every ninth step has a prompt of 25 ms besides.
        (ask(5, budgets=Budgets(ttft_s=1.0, tpot_s=0.015)), 22, "bandwidth", "with one more, TPOT is over"),
        (ask(5, prompt=4000, budgets=Budgets(ttft_s=3.0, tpot_s=0.03)), 18, "compute", "compute"),
        (ask(5, budgets=Budgets(ttft_s=0.06)), 64, "queueing", "TTFT P95 is over its 60ms"),
    ],
)
def test_what_binds_has_its_figure(question: Ask, concurrency: int, binding: str, figure: str) -> None:
    """Batch, KV memory, bandwidth, compute and queueing, each where it is the least."""
    found = answered(question)

    assert found.binding == binding, found.because
    assert figure in found.because
    assert found.concurrency_per_replica == pytest.approx(concurrency, abs=1)
    assert found.concurrency_per_replica == min(
        gate for gate in (found.gates.kv, found.gates.batch, found.gates.tpot) if gate is not None
    )


@pytest.mark.parametrize(
    "question, problem, unit",
    [
        (ask(1, prompt=17_000), "longer than the 16,384", "tokens"),
        (ask(1, kv_tokens=600), "does not fit into the KV cache", "tokens"),
        (ask(1, budgets=Budgets(tpot_s=0.005)), "below one step", "s"),
        (ask(1, budgets=Budgets(ttft_s=0.02)), "TTFT budget of 20ms is below", "s"),
        (ask(1, budgets=Budgets(e2e_s=1.0)), "E2E budget of 1s is below", "s"),
    ],
)
def test_what_cannot_be_served(question: Ask, problem: str, unit: str) -> None:
    """One request alone is too long, too large or too slow: by how much is told."""
    found = answer_to(question)

    assert isinstance(found, Impossible)
    assert problem in found.problem
    assert found.remedy
    assert found.unit == unit
    assert (found.needed or 0) > (found.available or 0) > 0


def test_what_there_is_carries_what_is_planned_with_it() -> None:
    """The highest rate of four replicas needs four, and a little more needs five."""
    most = answered(ask(None, replicas=4)).requests_per_s

    assert answered(ask(most * 0.999)).replicas == 4
    assert answered(ask(most * 1.01)).replicas == 5


def test_what_is_told_of_the_fleet_is_what_it_does() -> None:
    """Budgets hold with the spare one lost, and latencies grow from light to full."""
    found = answered(ask(30, budgets=Budgets(ttft_s=1.0, tpot_s=0.025)))

    assert found.utilisation <= 0.7
    assert found.ttft_s.p95 <= 1.0
    assert found.tpot_s.p95 <= 0.025
    assert found.e2e_s.p50 == pytest.approx(found.ttft_s.p50 + 199 * found.tpot_s.p50, rel=0.1)
    for name in ("ttft_s", "tpot_s", "pooled_s", "isolated_s"):
        curve = [getattr(each, name) for each in found.waits]
        assert curve == sorted(curve), name


@settings(max_examples=15, deadline=None)
@given(
    rate=st.floats(0.1, 100), more=st.floats(1, 3), prompt=st.integers(1, 8000), output=st.integers(1, 2000)
)
def test_more_load_never_needs_fewer(rate: float, more: float, prompt: int, output: int) -> None:
    """Replicas grow with the rate; utilisation keeps to the target."""
    budgets = Budgets(ttft_s=5.0)
    one, other = (
        size_of(ask(each, prompt=prompt, output=output, budgets=budgets)) for each in (rate, rate * more)
    )

    assert isinstance(one, Size)
    assert isinstance(other, Size)
    assert other.replicas >= one.replicas
    assert one.utilisation <= 0.7 * (1 + 1e-6)


def test_what_changes_an_answer() -> None:
    """Longer requests and more of them need more, a larger cache does not, and what is impossible is told."""
    question = ask(20, kv_tokens=28_160)
    found = {each.what: each for each in changes_of(question)}
    here = answered(question)

    assert found["outputs 2 x as long"].replicas is not None
    assert found["outputs 2 x as long"].replicas > here.replicas
    assert here.replicas < (found["2 x the rate"].replicas or 0) <= 2 * here.replicas
    assert (found["2 x the KV cache"].replicas or 0) < here.replicas
    assert (
        found["half of the prompts cached"].requests_per_s_per_replica or 0
    ) > here.requests_per_s_per_replica
    long = changes_of(ask(1, prompt=10_000))
    assert any(each.impossible and each.what == "prompts 2 x as long" for each in long)


@pytest.mark.parametrize(("utilisation", "warned"), [(0.6, False), (0.85, True)])
def test_a_full_replica_is_said_to_be_rough(utilisation: float, warned: bool) -> None:
    """Above 75 % the closed form's TTFT is far from simulations (docs/closed-form.md)."""
    each_per_s = answered(ask(1.0)).requests_per_s_per_replica
    found = answered(ask(utilisation * 4 * each_per_s, replicas=4))

    assert found.utilisation == pytest.approx(utilisation)
    assert any("may be off" in each for each in found.warnings) is warned


@given(
    st.floats(0.05, 1.1),
    st.integers(1, 5),
    st.none() | st.floats(0.02, 0.5),
    st.none() | st.floats(0.01, 0.03),
    st.none() | st.floats(2.0, 6.0),
)
def test_what_is_within_is_what_latencies_say(
    utilisation: float, replicas: int, ttft_s: float | None, tpot_s: float | None, e2e_s: float | None
) -> None:
    """A budget that is asked for first changes no verdict."""
    question, terms = ask(5), Terms(budgets=Budgets(ttft_s=ttft_s, tpot_s=tpot_s, e2e_s=e2e_s))
    station = ServedStation(REPLICA, question.load, question.terms)
    rate = utilisation * replicas * station.sustained_per_s

    asked = station.within(terms, rate, replicas)

    found = station.latencies(rate, replicas)
    assert asked == (found is not None and found.within(terms))


@settings(max_examples=25)
@given(st.floats(20.0, 100.0), st.floats(0.06, 0.3), st.integers(0, 30))
def test_replicas_that_are_known_to_be_enough_change_no_answer(rate: float, ttft_s: float, more: int) -> None:
    """The fewest are looked for below them."""
    question = ask(rate, budgets=Budgets(ttft_s=ttft_s))
    station = ServedStation(REPLICA, question.load, question.terms)

    found = fewest(station, question.terms, rate)

    if isinstance(found, int):
        assert fewest(station, question.terms, rate, most=found + more) == found
