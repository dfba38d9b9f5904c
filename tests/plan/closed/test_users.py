"""Do users who wait for their answers come to what a finite source comes to?"""

from __future__ import annotations

from math import comb, factorial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.plan.answer import Answer
from tidegate.plan.answering import answer_to
from tidegate.plan.ask import Ask, HandFigures, Kind, Load, Terms
from tidegate.plan.closed.users import Crowd
from tidegate.plan.hand import HandStation, hand_station

FIGURES = HandFigures(tokens_per_s=200, tpot_s=0.02)  # 4 at once; 10 s each
KIND = Kind(prompt_tokens=0, output_tokens=500)


def crowd(users: int, think_s: float, replicas: int = 1) -> Crowd:
    """Of users before such replicas."""
    station = hand_station(FIGURES, Load(kinds=(KIND,)), Terms())
    assert isinstance(station, HandStation)
    return Crowd(station, users, think_s, replicas)


def repairmen(users: int, think_s: float, servers: int, service_s: float) -> float:
    """Throughput of M/M/c//N, from its textbook sum (Gross and Harris, Fundamentals of Queueing Theory)."""
    ratio = service_s / think_s
    weights = [
        comb(users, n) * ratio**n
        * (1 if n <= servers else factorial(n) / (factorial(servers) * servers ** (n - servers)))
        for n in range(users + 1)
    ]  # fmt: skip
    return sum(w * min(n, servers) / service_s for n, w in enumerate(weights)) / sum(weights)


@pytest.mark.parametrize("users", [1, 4, 5, 12, 60])
@pytest.mark.parametrize("think_s", [1.0, 10.0, 90.0])
@pytest.mark.parametrize("replicas", [1, 3])
def test_the_rate_is_that_of_the_machine_repair_model(users: int, think_s: float, replicas: int) -> None:
    """By hand figures a crowd is M/M/c//N, which theory has exactly."""
    found = crowd(users, think_s, replicas).rate_per_s

    assert found == pytest.approx(repairmen(users, think_s, 4 * replicas, 10.0), rel=1e-6)


def test_nobody_thinks() -> None:
    """As many are under way as there are users; who has no place waits for those before him."""
    found = crowd(10, 0.0)

    assert found.rate_per_s == pytest.approx(0.4)
    assert found.source.occupied == 1
    # The tenth finds nine: five wait before him, and a place is free after six ends, one each 2.5 s.
    assert found.latencies(Terms()).wait_s.p50 == pytest.approx(6 / 0.4)


@given(users=st.integers(1, 400), think_s=st.floats(0, 600), replicas=st.integers(1, 40))
def test_little_holds(users: int, think_s: float, replicas: int) -> None:
    """Nobody is anywhere but thinking or asking; nothing is faster than its service or than all places."""
    found = crowd(users, think_s, replicas)

    assert found.rate_per_s <= min(users / (think_s + 10), 0.4 * replicas) * (1 + 1e-6)
    assert 0 <= found.source.occupied <= 1 + 1e-12
    assert found.latencies(Terms()).e2e_s.p50 >= 10


def test_a_fleet_for_users() -> None:
    """256 who never think are 256 at once: 64 replicas of 4 places hold them, and one more is spare."""
    load = Load(kinds=(KIND,), users=256, think_s=0)
    terms = Terms(target_utilisation=1)
    found = answer_to(Ask(load=load, replica=FIGURES, terms=terms))

    assert isinstance(found, Answer)
    assert (found.replicas, found.spare_replicas) == (65, 1)
    assert found.wait_s.p99 == 0
