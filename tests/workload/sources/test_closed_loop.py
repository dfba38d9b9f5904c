"""Clients wait for their answers, think, and ask again."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import ConfigurationError
from tidegate.workload.laws.lengths import Independent
from tidegate.workload.laws.numbers import Exponential, Fixed, Law
from tidegate.workload.requests import PlannedRequest, Sender
from tidegate.workload.sources.closed_loop import ClosedLoop, ClosedLoopSettings

LENGTHS = Independent(Exponential(100), Exponential(10))


def made(clients: int, think_s: Law, seed: int = 0, name: str = "clients") -> ClosedLoop:
    """A closed loop."""
    return ClosedLoop(ClosedLoopSettings(clients=clients, lengths=LENGTHS, think_s=think_s), seed, name)


def life(loop: ClosedLoop, first: PlannedRequest, answers_s: list[float]) -> list[PlannedRequest]:
    """All that a client asks for if its answers take so long."""
    found = [first]
    for answer_s in answers_s:
        following = loop.after(found[-1], found[-1].at_s + answer_s, answer_s < 5)
        assert following is not None
        found.append(following)
    return found


def test_a_client_asks_again_a_thought_after_its_answer() -> None:
    """Each request comes its think time after the end of the one before, answered or not."""
    loop = made(1, Fixed(2.0))
    (first,) = loop.starts()

    asked = life(loop, first, [1.0, 7.0, 0.5])

    assert [planned.at_s for planned in asked] == [2.0, 5.0, 14.0, 16.5]
    assert [planned.turn for planned in asked] == [0, 1, 2, 3]


@given(st.integers(1, 20), st.integers(0, 2**32))
def test_all_clients_start(clients: int, seed: int) -> None:
    """Each once, in order of time, each as a session of its own."""
    starts = list(made(clients, Exponential(3), seed).starts())

    assert len({planned.session for planned in starts}) == len(starts) == clients
    assert [planned.at_s for planned in starts] == sorted(planned.at_s for planned in starts)


@given(st.integers(0, 2**32), st.permutations(range(6)))
def test_a_client_does_not_depend_on_the_others(seed: int, order: list[int]) -> None:
    """Whatever order their answers end in, and however many there are, each asks for the same."""
    asked = []
    for clients, turns in ((6, order), (9, sorted(order))):
        loop = made(clients, Exponential(3), seed)
        starts = sorted(loop.starts(), key=lambda planned: planned.session or 0)[:6]
        asked.append({index: life(loop, starts[index], [1.0, 6.0]) for index in turns})

    assert asked[0] == asked[1]


def test_what_clients_say_of_themselves() -> None:
    """Tenant, class, model and limit are the sender's."""
    sender = Sender(tenant="acme", priority="batch", model="m", max_tokens=9, streams=False)
    loop = ClosedLoop(ClosedLoopSettings(clients=1, lengths=LENGTHS, sender=sender), Random(1).getrandbits(9))
    (first,) = loop.starts()

    assert (first.tenant, first.priority, first.model, first.max_tokens, first.streams) == (
        "acme",
        "batch",
        "m",
        9,
        False,
    )


def test_clients_that_cannot_be() -> None:
    """There is at least one, and a limit allows at least one token."""
    with pytest.raises(ConfigurationError, match="clients of a closed loop are 1 to"):
        ClosedLoopSettings(clients=0, lengths=LENGTHS)
    with pytest.raises(ConfigurationError, match="tenant 'acme': max_tokens is at least 1, not 0"):
        Sender(tenant="acme", max_tokens=0)
