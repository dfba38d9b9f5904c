"""How many replicas does the planner ask for, and do the figures of the issue come out?"""

from __future__ import annotations

from math import inf
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.traces import known_trace
from tidegate.core.errors import ConfigurationError
from tidegate.core.records import Budgets
from tidegate.plan.answer import Answer, Impossible
from tidegate.plan.answering import answer_to
from tidegate.plan.ask import Ask, HandFigures, Kind, Load, Terms
from tidegate.plan.room import AZURE_CHAT_PEAK_RATIO
from tidegate.plan.sizing import held_by_all
from tidegate.plan.station import Station
from tidegate.workload.statistics.logs import statistics_of

DEFAULT = Terms()
FIGURES = HandFigures(tokens_per_s=2000, tpot_s=0.02)


def by_hand(rate: float | None, terms: Terms = DEFAULT, output_tokens: float = 500) -> Answer:
    """What is answered for that rate of equal requests."""
    kind = Kind(prompt_tokens=0, output_tokens=output_tokens)
    answer = answer_to(Ask(load=Load(kinds=(kind,), requests_per_s=rate), replica=FIGURES, terms=terms))
    assert isinstance(answer, Answer)
    return answer


def test_the_worked_figures_of_way_one() -> None:
    """2000 tokens/s at 20 ms: 40 at once, 10 s each, 4 requests/s; 10 take 4 replicas at 62.5 %."""
    answer = by_hand(10)

    assert answer.concurrency_per_replica == 40
    assert answer.e2e_s.p50 == pytest.approx(10)
    assert answer.requests_per_s_per_replica == pytest.approx(4)
    assert (answer.replicas, answer.spare_replicas) == (4, 1)
    assert answer.utilisation == pytest.approx(0.625)
    assert answer.utilisation_one_lost == pytest.approx(10 / 12)
    assert answer.binding == "latency_budget"


def test_waits_isolated_and_pooled() -> None:
    """M/M/40 with 10 s of service waits nothing at P95 up to 70 %; three with one queue nothing at 83 %."""
    waits = {each.utilisation: each for each in by_hand(10).waits}

    for utilisation, isolated_s in [(0.5, 0), (0.6, 0), (0.7, 0), (0.8, 1.1), (0.9, 5.3), (0.95, 12.9)]:
        assert waits[utilisation].isolated_s == pytest.approx(isolated_s, abs=0.05), utilisation
    for utilisation, pooled_s in [(0.8, 0), (0.85, 0.038), (0.9, 1.07), (0.95, 3.74)]:
        assert waits[utilisation].pooled_s == pytest.approx(pooled_s, abs=0.005), utilisation
        assert waits[utilisation].pooled_replicas == 3
    lost = by_hand(10, Terms(replicas=3, spare_replicas=0))
    assert lost.utilisation == pytest.approx(10 / 12)
    assert lost.wait_s.p95 == 0


def test_why_not_fuller() -> None:
    """The target is the knee, a lost replica and bursts together, and what the batch does is not known."""
    room = {each.reason: each.utilisation for each in by_hand(10).room}

    assert room["queue"] == pytest.approx(0.848, abs=0.001)
    assert room["lost_replica"] == pytest.approx(0.848 * 3 / 4, abs=0.001)
    assert room["burst"] == pytest.approx(0.65, abs=0.001)
    assert room["batch"] is None


def test_the_burstiness_of_chat_is_that_of_the_trace() -> None:
    """The one figure that is not computed each time is what the shipped trace says."""
    arrivals = statistics_of(known_trace("azure-conv")).arrivals

    assert arrivals is not None
    assert arrivals.counts_with_rest[60].peak_ratio == pytest.approx(AZURE_CHAT_PEAK_RATIO, abs=0.005)


@pytest.mark.parametrize(
    "rate, terms, replicas, spare, may_be_lost",
    [
        (10, Terms(spare_replicas=0), 4, 0, 1),  # the target asks for the fourth
        (10, Terms(spare_replicas=0, target_utilisation=1), 3, 0, 0),
        (10, Terms(spare_replicas=2), 5, 2, 2),
        (10, Terms(budgets=Budgets(ttft_s=0.021), spare_replicas=0, target_utilisation=1), 3, 0, 0),
        (3.9, Terms(budgets=Budgets(ttft_s=30), spare_replicas=0, target_utilisation=1), 1, 0, 0),
        (3.9, Terms(budgets=Budgets(ttft_s=1), spare_replicas=0, target_utilisation=1), 2, 0, 0),
        (100, Terms(), 36, 1, 9),  # large fleets pool so well that 27 would do
    ],
)
def test_two_conditions_size_a_fleet(
    rate: float, terms: Terms, replicas: int, spare: int, may_be_lost: int
) -> None:
    """With all up it is at the target at most; with the spare ones lost it holds the budgets."""
    answer = by_hand(rate, terms)

    assert (answer.replicas, answer.spare_replicas, answer.may_be_lost) == (replicas, spare, may_be_lost)


def test_what_there_is_carries_the_highest_rate() -> None:
    """Without a rate the answer is the most that so many replicas carry, and a little more needs one more."""
    terms = Terms(replicas=4, spare_replicas=1)
    most = by_hand(None, terms).requests_per_s

    assert most == pytest.approx(4 * 4 * 0.6357, rel=1e-3)
    assert by_hand(most * 0.999, Terms()).replicas == 4
    assert by_hand(most * 1.001, Terms()).replicas == 5


def test_too_few_replicas_are_told() -> None:
    """Who asks for less than is needed gets the figures and the number that would do, budgets or not."""
    answer = by_hand(10, Terms(replicas=2))
    budgeted = by_hand(10, Terms(replicas=2, budgets=Budgets(e2e_s=12)))

    assert answer.utilisation == pytest.approx(1.25)
    assert answer.ttft_s.p95 == inf
    assert answer.warnings == ("2 replicas do not carry this load; 3 would, none of them spare",)
    assert answer.summary.startswith("2 replicas do not carry 10 requests/s: 125% utilisation,")
    assert budgeted.warnings[0] == "2 replicas do not hold the budgets; 3 would, none of them spare"


class Jittering:
    """A station that is late with these numbers of replicas."""

    def __init__(self, *late: int) -> None:
        self.late = late

    def within(self, terms: Terms, rate_per_s: float, replicas: int) -> bool:
        """At any rate."""
        return replicas not in self.late


@pytest.mark.parametrize("late, replicas", [((), 93), ((92,), 93), ((93, 94), 95), (range(93, 200), 93)])
def test_budgets_hold_with_all_up_too(late: tuple[int, ...], replicas: int) -> None:
    """Latencies are computed to a percent: where 93 are said to be late, though fewer are not, the next
    number that is not is taken; where none of the next few is, 93 stays.
    """
    assert held_by_all(cast(Station, Jittering(*late)), Terms(), 200, 93) == replicas


def test_users_who_think() -> None:
    """Little's law: 1000 users, 90 s of thought and 10 s of answer are 10 requests/s."""
    load = Load(kinds=(Kind(prompt_tokens=0, output_tokens=500),), users=1000, think_s=90)
    answer = answer_to(Ask(load=load, replica=FIGURES))

    assert isinstance(answer, Answer)
    assert answer.requests_per_s == pytest.approx(10, rel=1e-6)
    assert answer.replicas == 4


def test_too_few_replicas_make_no_tokens_to_pay_for() -> None:
    """An hour costs what it costs; what a token does, of a load that is not carried, nobody knows."""
    answer = by_hand(10, Terms(replicas=2, per_hour_usd=3))

    assert answer.cost_per_hour == 6
    assert answer.cost_per_million_output_tokens is None
    assert answer.summary.endswith("; $6.00 an hour.")


def test_what_it_costs() -> None:
    """Dollars an hour for all of them, and by tokens at the mean rate, not the busiest."""
    load = Load(kinds=(Kind(prompt_tokens=0, output_tokens=500),), requests_per_s=10, peak_ratio=2)
    answer = answer_to(Ask(load=load, replica=FIGURES, terms=Terms(per_hour_usd=3)))

    assert isinstance(answer, Answer)
    assert answer.cost_per_hour == pytest.approx(12)
    assert answer.cost_per_million_output_tokens == pytest.approx(12 / (5 * 500 * 3600) * 1e6)


@pytest.mark.parametrize(
    "figures, terms, problem, remedy",
    [
        (HandFigures(tokens_per_s=20, tpot_s=0.02), Terms(), "less than one request", "50ms"),
        (FIGURES, Terms(budgets=Budgets(e2e_s=5)), "take 10s", "10ms"),
        (FIGURES, Terms(budgets=Budgets(ttft_s=0.01)), "below one step", "20ms"),
    ],
)
def test_what_cannot_be(figures: HandFigures, terms: Terms, problem: str, remedy: str) -> None:
    """A budget below what one request alone takes is refused with what would make it possible."""
    load = Load(kinds=(Kind(prompt_tokens=0, output_tokens=500),), requests_per_s=1)
    found = answer_to(Ask(load=load, replica=figures, terms=terms))

    assert isinstance(found, Impossible)
    assert problem in found.problem
    assert remedy in found.remedy
    assert found.needed is not None
    assert found.available is not None
    assert found.needed > found.available


def test_a_rate_of_a_misprint() -> None:
    """Nobody has a hundred thousand replicas."""
    load = Load(kinds=(Kind(prompt_tokens=0, output_tokens=500),), requests_per_s=1e9)
    found = answer_to(Ask(load=load, replica=FIGURES))

    assert isinstance(found, Impossible)
    assert "100,000" in found.problem


@given(rate=st.floats(0.01, 500), more=st.floats(1, 3), target=st.floats(0.1, 1), spare=st.integers(0, 3))
def test_more_load_never_needs_fewer(rate: float, more: float, target: float, spare: int) -> None:
    """Replicas grow with the rate, and both conditions hold for the answer."""
    terms = Terms(target_utilisation=target, spare_replicas=spare)
    answer, busier = by_hand(rate, terms), by_hand(rate * more, terms)

    assert busier.replicas >= answer.replicas
    assert answer.utilisation <= target * (1 + 1e-6)
    assert answer.may_be_lost >= answer.spare_replicas == spare
    left = by_hand(rate, Terms(spare_replicas=0, replicas=answer.replicas - answer.may_be_lost))
    assert left.wait_s.at_percentile == 0


@given(rate=st.floats(0.1, 14), quantile=st.floats(0.5, 0.999))
def test_percentiles_are_in_order(rate: float, quantile: float) -> None:
    """A longer wait is at a higher percentile, and an answer takes at least its own time."""
    kinds = (Kind(prompt_tokens=0, output_tokens=100), Kind(prompt_tokens=0, output_tokens=900))
    load = Load(kinds=kinds, requests_per_s=rate)
    answer = answer_to(Ask(load=load, replica=FIGURES, terms=Terms(replicas=4, percentile=quantile)))

    assert isinstance(answer, Answer)
    for each in (answer.wait_s, answer.ttft_s, answer.e2e_s):
        assert each.p50 <= each.p95 <= each.p99
        assert each.p50 * (1 - 1e-9) <= each.at_percentile
    assert answer.e2e_s.p99 >= 18 * (1 - 1e-9)


@pytest.mark.parametrize(
    "wrong",
    [
        {"requests_per_s": 0.0},
        {"requests_per_s": float("nan")},
        {"requests_per_s": -1.0},
        {"peak_ratio": 0.5},
        {"prefix_hit_ratio": 1.0},
        {"kinds": ()},
        {"kinds": (Kind(prompt_tokens=1, output_tokens=0),)},
    ],
)
def test_loads_that_cannot_be(wrong: dict[str, object]) -> None:
    """A load that nobody can send is refused where it is made."""
    fields = {"kinds": (Kind(prompt_tokens=1, output_tokens=1),), "requests_per_s": 1.0, **wrong}
    with pytest.raises(ConfigurationError):
        Load(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"percentile": 0.4},
        {"percentile": 1.0},
        {"target_utilisation": 0.0},
        {"target_utilisation": 1.1},
        {"spare_replicas": -1},
        {"replicas": 1, "spare_replicas": 1},
        {"per_hour_usd": -1.0},
        {"budgets": Budgets(ttft_s=0)},
    ],
)
def test_terms_that_nothing_holds(wrong: dict[str, object]) -> None:
    """Terms that no fleet can hold are refused where they are made."""
    with pytest.raises(ConfigurationError):
        Terms(**wrong)  # type: ignore[arg-type]
