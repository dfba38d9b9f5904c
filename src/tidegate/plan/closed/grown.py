"""How many users do so many replicas hold, and what would fewer or more of them meet?

Users do not overrun a fleet: they wait, and ask less. So the load-latency curve of a closed loop is over
users, and goes on where all places are taken, which is at about places + sustained rate x think (the
saturation point of asymptotic bound analysis; Denning and Buzen, Operational analysis, 1978).
"""

from __future__ import annotations

from collections.abc import Callable
from math import isclose

import msgspec

from tidegate.core.knee import knee_place
from tidegate.core.units import format_duration, format_number
from tidegate.plan.answer import CurvePoint, LoadCurve, Room, UsersOfCurve, Wait
from tidegate.plan.ask import Terms
from tidegate.plan.closed.clients import ClosedCrowd
from tidegate.plan.closed.users import Crowd
from tidegate.plan.room import lost_room

AnyCrowd = Crowd | ClosedCrowd

SHOWN = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2)
"""Users of whom waits are told, over those who fill all places."""
STEPS = 24
"""Of a curve."""
BEYOND = 1.5
"""It ends at so many times the users who fill all places."""
MOST_USERS = 10_000_000
SAME = 2e-3
"""Of the curve: marks that are so close to another point are set on it."""


def filling(crowd: AnyCrowd) -> float:
    """Users who fill all places."""
    return crowd.places + crowd.replicas * crowd.sustained_per_s * crowd.think_s


def held(crowd: AnyCrowd, terms: Terms) -> bool:
    """Whether these users are within every budget."""
    return crowd.latencies(terms).within(terms)


def most_users(crowd: AnyCrowd, bearable: Callable[[AnyCrowd], bool]) -> int:
    """The most before as many replicas that are bearable, of whom any fewer are; 0 if not one is."""
    low, high = 0, max(1, round(filling(crowd)))
    while bearable(crowd.having(users=high)):
        low, high = high, 2 * high
        if high > MOST_USERS:
            return low
    while high - low > 1:
        middle = (low + high) // 2
        if bearable(crowd.having(users=middle)):
            low = middle
        else:
            high = middle
    return low


def room_of_users(crowd: AnyCrowd, terms: Terms, lost: int) -> tuple[Room, ...]:
    """Why these replicas are not used to the full, of which so many may be lost."""
    replicas = crowd.replicas
    left = replicas - lost

    def most(count: int) -> int:
        return most_users(crowd.having(replicas=count), lambda each: held(each, terms))

    isolated, pooled = most(1), most(left)
    words = f"P{100 * terms.percentile:g} {'holds its budgets' if terms.may_wait else 'waits nothing'} "
    words += f"to {isolated:,} users of one"
    if left > 1:
        words += f", {pooled:,} of {left} pooled"
    within = crowd.having(users=pooled, replicas=left) if pooled else None
    utilisation = 0.0 if within is None else within.rate_per_s / (left * within.sustained_per_s)
    return (
        Room(reason="queue", utilisation=utilisation, words=words),
        lost_room(utilisation, replicas, lost),
        Room(
            reason="burst",
            utilisation=None,
            words=f"users wait: no more than {crowd.users:,} are ever under way",
        ),
        _batch_room(crowd),
    )


def waits_of_users(crowd: AnyCrowd, terms: Terms) -> tuple[Wait, ...]:
    """What fewer or more of them meet at the percentile that is asked for, before as many replicas."""
    return tuple(_wait(crowd, terms, share) for share in SHOWN)


def curve_of_users(crowd: AnyCrowd, terms: Terms) -> LoadCurve:
    """What users meet from one of them to more than there are places for."""
    most = max(2, round(max(BEYOND * filling(crowd), 1.1 * crowd.users)))
    numbers = sorted({max(1, round(most * step / STEPS)) for step in range(1, STEPS + 1)})
    points = [_point(crowd, terms, users) for users in numbers]
    place = knee_place(numbers, [point.ttft_s.at_percentile for point in points])
    knee = None if place is None else numbers[place]
    marked = {
        "asked": crowd.users,
        "knee": knee,
        "budgets": most_users(crowd, lambda each: held(each, terms)),
    }
    near = SAME * most
    for users in marked.values():
        if users and users <= most and not any(_same(point, users, near) for point in points):
            points.append(_point(crowd, terms, users))
    points.sort(key=lambda point: point.users or 0)

    def rate_of(users: int | None) -> float:
        return crowd.having(users=users).rate_per_s if users else 0.0

    return LoadCurve(
        replicas=crowd.replicas,
        percentile=terms.percentile,
        sustained_per_s=crowd.replicas * crowd.sustained_per_s,
        asked_per_s=crowd.rate_per_s,
        knee_per_s=None if knee is None else rate_of(knee),
        held_per_s=rate_of(marked["budgets"]),
        budgeted=any(value is not None for value in msgspec.structs.astuple(terms.budgets)),
        may_wait=terms.may_wait,
        users=UsersOfCurve(asked=crowd.users, knee=knee, held=marked["budgets"] or 0, most=most),
        points=tuple(
            msgspec.structs.replace(
                point,
                marks=tuple(name for name, at in marked.items() if at and _same(point, at, near)),
            )
            for point in points
        ),
    )


def _batch_room(crowd: AnyCrowd) -> Room:
    gate = crowd.places // crowd.replicas
    half_s, full_s = crowd.tpot_s(max(1, gate // 2)), crowd.tpot_s(gate)
    words = "TPOT grows with it: two figures do not tell how much"
    if isinstance(crowd, ClosedCrowd):
        words = (
            f"TPOT is {format_duration(half_s, 3)} at half of the gate, {format_duration(full_s, 3)} "
            f"at {format_number(gate)}"
        )
    return Room(reason="batch", utilisation=None, words=words)


def _wait(crowd: AnyCrowd, terms: Terms, share: float) -> Wait:
    users = max(1, round(share * filling(crowd)))
    pooled = crowd.having(users=users)
    isolated = crowd.having(users=max(1, round(users / crowd.replicas)), replicas=1)
    found = pooled.latencies(terms)
    return Wait(
        users=users,
        utilisation=pooled.rate_per_s / (crowd.replicas * crowd.sustained_per_s),
        isolated_s=isolated.latencies(terms).wait_s.at_percentile,
        pooled_s=found.wait_s.at_percentile,
        pooled_replicas=crowd.replicas,
        ttft_s=found.ttft_s.at_percentile,
        tpot_s=found.tpot_s.at_percentile,
    )


def _point(crowd: AnyCrowd, terms: Terms, users: int) -> CurvePoint:
    asked = crowd.having(users=users)
    found = asked.latencies(terms)
    return CurvePoint(
        users=users,
        utilisation=asked.rate_per_s / (crowd.replicas * crowd.sustained_per_s),
        requests_per_s=asked.rate_per_s,
        wait_s=found.wait_s,
        ttft_s=found.ttft_s,
        tpot_s=found.tpot_s,
        e2e_s=found.e2e_s,
    )


def _same(point: CurvePoint, users: int, near: float) -> bool:
    return isclose(point.users or 0, users, rel_tol=0, abs_tol=near)
