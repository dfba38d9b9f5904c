"""Black holes: who answers 404 where its peers answer 2xx is left alone; who asks nonsense harms nobody."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.policy.build import arrive, govern, of, tell, used, wake
from tidegate.core.messages import Command, Dispatch, Event, Finished
from tidegate.policy.black_holes import ANSWERS as ENOUGH
from tidegate.policy.black_holes import IN_A_ROW, BlackHoles
from tidegate.policy.breakers import CLOSED
from tidegate.policy.governor import Governor

# -- the rule -------------------------------------------------------------------------------------


class Said(NamedTuple):
    """What a replica answered to whom."""

    replica: int
    found: bool
    tenant: str


def is_black_hole(history: list[Said]) -> bool:
    """The rule as it is written, by looking back from the last 404 over all since the last verdict."""
    last, row, peers = history[-1], list[str](), list[str]()
    for said in reversed(history):
        if said.replica == last.replica and said.found:
            break
        if said.replica != last.replica and not said.found:
            break
        if said.found:
            peers.append(said.tenant)
        else:
            row.append(said.tenant)
            since = list(peers)
    enough = len(row) >= IN_A_ROW and bool(since) and len(row) + len(since) >= ENOUGH
    return enough and (len(set(row)) > 1 or set(since) == set(row))


USUALLY = [(1, False)] * 9 + [(2, True)] * 9 + [(1, True), (2, False)]
"""Replica 1 is one, most of the time."""
ANSWERS = st.lists(
    st.builds(
        lambda each, tenant: Said(each[0], each[1], tenant), st.sampled_from(USUALLY), st.sampled_from("ab")
    ),
    max_size=40,
)


@given(ANSWERS)
def test_a_first_verdict_is_what_looking_back_gives(history: list[Said]) -> None:
    """Kept as a few flags, it is what the whole history says."""
    black_holes = BlackHoles()
    for length, said in enumerate(history, start=1):
        if said.found:
            black_holes.on_answered(said.replica, said.tenant)
        else:
            told = black_holes.on_not_found(said.replica, said.tenant)
            assert told == is_black_hole(history[:length])
            if told:
                break


def test_verdicts_are_reached() -> None:
    """Random answers reach both: the law above is about something."""
    rng, told = Random(1), Counter[bool]()
    for _ in range(300):
        history = list[Said]()
        for _ in range(40):
            history.append(Said(*rng.choice(USUALLY), rng.choice("ab")))
            if not history[-1].found:
                told[is_black_hole(history)] += 1
    assert min(told[True], told[False]) > 100


def test_another_verdict_takes_new_evidence() -> None:
    """One more 404 is not enough: a peer must have answered since, and the same rule of tenants holds."""
    black_holes = BlackHoles()
    for tenant in "ababababababab":
        assert not black_holes.on_not_found(1, tenant)
    black_holes.on_answered(2, "c")
    assert black_holes.on_not_found(1, "a")
    assert not black_holes.on_not_found(1, "a")
    black_holes.on_answered(2, "b")
    assert not black_holes.on_not_found(1, "a")
    assert black_holes.on_not_found(1, "b")


# -- under the governor ---------------------------------------------------------------------------


def finished(dispatch: Dispatch, status: int) -> Event:
    """An answer with that status."""
    usage = used(10, 4) if status < 300 else None
    return Finished(dispatch.request_id, dispatch.attempt, status=status, usage=usage)


def closed(governor: Governor) -> dict[str, bool]:
    """Whose breakers are."""
    return {name: member.breaker.state is CLOSED for name, member in governor.members.items()}


def test_a_black_hole_is_left_alone_until_a_trial_succeeds() -> None:
    """It answers at once and looks idle, the others take 4 s: yet it gets little more than a row."""
    governor = govern(replicas=3, concurrency=64)
    went, running, now = Counter[str](), list[tuple[float, Dispatch]](), 0.0
    for request_id in range(400):
        now += 0.1
        wake(governor, now)
        while running and running[0][0] <= now:
            tell(governor, now, finished(running.pop(0)[1], 200))
        (dispatch,) = of(arrive(governor, now, request_id, tenant=f"t{request_id % 3}"), Dispatch)
        went[dispatch.replica] += 1
        if dispatch.replica == "r0":
            tell(governor, now, finished(dispatch, 404))
        else:
            running.append((now + 4.0, dispatch))
    # The first 4 of 40 s pass before any peer has answered; into the rest fall three trials of a few.
    assert went["r0"] <= 40 + 3 * IN_A_ROW
    assert not closed(governor)["r0"]
    assert min(went["r1"], went["r2"]) > 150

    wake(governor, now + 300)
    for request_id in range(1_000, 1_010):
        dispatches: list[Command] = arrive(governor, now + 300, request_id)
        for dispatch in of(dispatches, Dispatch):
            tell(governor, now + 300, finished(dispatch, 200))
    assert all(closed(governor).values())


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.booleans()), max_size=60))
def test_nonsense_of_one_tenant_closes_no_gate(turns: list[tuple[bool, int, bool]]) -> None:
    """However many of its requests are answered 404, and by whom: others are served, so nothing closes."""
    governor = govern(replicas=3, concurrency=4)
    running: list[tuple[str, Dispatch]] = []
    for request_id, (bad, which, ends) in enumerate(turns):
        tenant = "bad" if bad else "good"
        running += [(tenant, each) for each in of(arrive(governor, 0.0, request_id, tenant=tenant), Dispatch)]
        while ends and running:
            tenant, dispatch = running.pop(which % len(running))
            told = tell(governor, 0.0, finished(dispatch, 404 if tenant == "bad" else 200))
            for each in of(told, Dispatch):
                running.append(("bad" if turns[each.request_id][0] else "good", each))
        assert all(closed(governor).values())


def test_nonsense_of_all_closes_no_gate() -> None:
    """What every replica answers with 404 is the requests' fault, though some of them succeed."""
    governor = govern(replicas=3, concurrency=64)
    rng, statuses = Random(2), Counter[int]()
    for request_id in range(2_000):
        (dispatch,) = of(arrive(governor, 0.0, request_id, tenant=f"t{request_id % 5}"), Dispatch)
        status = rng.choice((200, 404))
        statuses[status] += 1
        tell(governor, 0.0, finished(dispatch, status))
    assert min(statuses.values()) > 900
    assert all(closed(governor).values())


def test_what_does_not_generate_does_not_count() -> None:
    """Routes that one engine has and the other has not (`extras`, embeddings) are no reason."""
    governor = govern(replicas=2, concurrency=64)
    for request_id in range(200):
        (dispatch,) = of(
            arrive(governor, 0.0, request_id, tenant=f"t{request_id % 3}", generates=False), Dispatch
        )
        tell(governor, 0.0, finished(dispatch, 404 if dispatch.replica == "r0" else 200))
    assert all(closed(governor).values())


def test_a_lone_tenant_finds_its_black_hole_too() -> None:
    """Where one tenant is all there is, its own answers are evidence enough."""
    governor = govern(replicas=2, concurrency=64)
    went = Counter[str]()
    for request_id in range(100):
        (dispatch,) = of(arrive(governor, 0.0, request_id), Dispatch)
        went[dispatch.replica] += 1
        tell(governor, 0.0, finished(dispatch, 404 if dispatch.replica == "r0" else 200))
    assert closed(governor) == {"r0": False, "r1": True}
    assert went["r0"] <= ENOUGH


def test_a_404_neither_closes_nor_opens_a_breaker_that_is_on_trial() -> None:
    """After real failures only a real answer brings a replica back, and a 404 frees the trial's place."""
    governor = govern(replicas=1, concurrency=64)
    breaker = governor.members["r0"].breaker
    breaker.open(0.0)
    now = breaker.reopens_at
    wake(governor, now)
    for request_id in range(10):
        (dispatch,) = of(arrive(governor, now, request_id), Dispatch)
        tell(governor, now, finished(dispatch, 404))
        assert (breaker.state.value, breaker.trials) == ("half_open", 0)
    for request_id in (10, 11):
        (dispatch,) = of(arrive(governor, now, request_id), Dispatch)
        tell(governor, now, finished(dispatch, 200))
    assert breaker.state is CLOSED
