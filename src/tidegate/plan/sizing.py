"""How many replicas does a load need, or which load do so many replicas carry?

Two conditions size a fleet, both in the busiest window: with every replica up it is used to the target at
most, and with the spare ones lost it still holds every budget.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import TYPE_CHECKING

import msgspec

from tidegate.core.units import format_number
from tidegate.plan.answer import Impossible
from tidegate.plan.ask import Ask, HandFigures, Replica, Terms
from tidegate.plan.ceilings import highest
from tidegate.plan.closed.users import Crowd
from tidegate.plan.hand import hand_station
from tidegate.plan.station import Station

if TYPE_CHECKING:
    from tidegate.plan.closed.clients import ClosedCrowd

MOST_REPLICAS = 100_000
"""A load that needs more is a misprint."""
NEAR = 1e-9
"""Relative width in which two figures are the same."""
SOME_MORE = 8
"""Replicas, among which latencies fall again if they rose with one."""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet, without what is told about it: cheap, for who compares many."""

    replicas: int
    spare_replicas: int
    """So many may be lost; below 0: so many are missing."""
    requests_per_s: float
    """In the busiest window."""
    station: Station
    crowd: Crowd | ClosedCrowd | None = None
    """Users who wait, where they are the load."""

    @property
    def utilisation(self) -> float:
        """That rate over what all replicas sustain."""
        return self.requests_per_s / (self.replicas * self.sustained_per_s)

    @property
    def sustained_per_s(self) -> float:
        """Of one replica."""
        return self.station.sustained_per_s if self.crowd is None else self.crowd.sustained_per_s


def station_of(ask: Ask) -> Station | Impossible:
    """The replica that is asked about, under its load and terms."""
    if isinstance(ask.replica, HandFigures):
        return hand_station(ask.replica, ask.load, ask.terms)
    from tidegate.plan.served import served_station  # half of what a plan by hand takes to import

    return served_station(ask.replica, ask.load, ask.terms)


def size_of(ask: Ask) -> Size | Impossible:
    """How many, for which rate; or why not."""
    station = station_of(ask)
    if isinstance(station, Impossible):
        return station
    load, terms = ask.load, ask.terms
    if load.users is not None:
        return _size_for_users(ask, station)
    rate = load.requests_per_s
    if rate is None:
        replicas = terms.replicas or 1
        spare = min(terms.spare_replicas, replicas - 1)
        rate = highest_rate(station, terms, replicas, spare)
        return Size(replicas=replicas, spare_replicas=spare, requests_per_s=rate, station=station)
    needed = fewest(station, terms, rate)
    if isinstance(needed, Impossible):
        return needed
    by_target = ceil(rate / (terms.target_utilisation * station.sustained_per_s) * (1 - NEAR))
    planned = max(needed + terms.spare_replicas, by_target)
    replicas = terms.replicas or held_by_all(station, terms, rate, planned)
    return Size(replicas=replicas, spare_replicas=replicas - needed, requests_per_s=rate, station=station)


def holds(station: Station, terms: Terms, rate_per_s: float, replicas: int) -> bool:
    """Whether so many replicas, every one of them up, hold the budgets at that rate."""
    if terms.within_s is not None:
        return rate_per_s <= replicas * station.sustained_per_s * (1 + NEAR)
    return station.within(terms, rate_per_s, replicas)


def fewest(
    station: Station, terms: Terms, rate_per_s: float, least: int = 1, most: int | None = None
) -> int | Impossible:
    """Replicas that hold the budgets at that rate, none of them spare; `least` or more.

    `most`, at or above that, are known to hold them.
    """
    least = max(least, ceil(rate_per_s / station.sustained_per_s * (1 - NEAR)))
    if least > MOST_REPLICAS:
        return _too_many(station, rate_per_s)
    low, high = least, most or least
    while most is None and not holds(station, terms, rate_per_s, high):
        low, high = high + 1, 2 * high
        if high > MOST_REPLICAS:
            return _too_many(station, rate_per_s)
    while low < high:
        middle = (low + high) // 2
        if holds(station, terms, rate_per_s, middle):
            high = middle
        else:
            low = middle + 1
    return high


def held_by_all(station: Station, terms: Terms, rate_per_s: float, replicas: int) -> int:
    """So many, or the first few more with which the budgets hold while none is lost.

    Fewer hold them already; but latencies are computed to a percent, and need not fall with each replica.
    """
    some_more = range(replicas, replicas + SOME_MORE)
    return next((each for each in some_more if holds(station, terms, rate_per_s, each)), replicas)


def highest_rate(station: Station, terms: Terms, replicas: int, lost: int) -> float:
    """Requests/s that they carry: at the target with all up, within every budget with `lost` of them lost."""
    most = terms.target_utilisation * replicas * station.sustained_per_s
    return highest(lambda rate: holds(station, terms, rate, replicas - lost), most)


def _size_for_users(ask: Ask, station: Station) -> Size | Impossible:
    """The same two conditions; what users send depends on how many replicas there are."""
    terms = ask.terms
    needed = fewest_for_users(lambda crowd: crowd.latencies(terms).within(terms), ask, station)
    by_target = fewest_for_users(lambda crowd: on_target(crowd, terms), ask, station)
    if isinstance(needed, Impossible):
        return needed
    if isinstance(by_target, Impossible):
        return by_target
    replicas = terms.replicas or max(needed + terms.spare_replicas, by_target)
    crowd = crowd_of(ask, station, replicas)
    return Size(
        replicas=replicas,
        spare_replicas=replicas - needed,
        requests_per_s=crowd.rate_per_s,
        station=station,
        crowd=crowd,
    )


def crowd_of(ask: Ask, station: Station, replicas: int) -> Crowd | ClosedCrowd:
    """The users of the load, before so many replicas."""
    assert ask.load.users is not None
    if isinstance(ask.replica, Replica):
        # These take as long to import as a plan by hand.
        from tidegate.plan.closed.clients import ClosedCrowd
        from tidegate.plan.served import ServedStation

        assert isinstance(station, ServedStation)
        return ClosedCrowd(station.inside, ask.load.users, replicas)
    return Crowd(station, ask.load.users, ask.load.think_s, replicas)


def on_target(crowd: Crowd | ClosedCrowd, terms: Terms) -> bool:
    """Whether replicas are used by those users as far as they should be, and no further."""
    return crowd.loaded <= terms.target_utilisation * (1 + NEAR)


def fewest_for_users(
    enough: Callable[[Crowd | ClosedCrowd], bool], ask: Ask, station: Station, least: int = 1
) -> int | Impossible:
    """The fewest replicas, `least` or more, that are enough, of which any more are."""
    low, high = least, least
    while not enough(crowd_of(ask, station, high)):
        low, high = high + 1, 2 * high
        if high > MOST_REPLICAS:
            return Impossible(
                problem=f"{ask.load.users:,} users would take more than {MOST_REPLICAS:,} replicas",
                remedy=f"each has {station.gates.least:,} places; check the number of users",
                binding=station.bound.binding,
                needed=float(ask.load.users or 0),
                available=float(MOST_REPLICAS * station.gates.least),
                unit="users",
            )
    while low < high:
        middle = (low + high) // 2
        if enough(crowd_of(ask, station, middle)):
            high = middle
        else:
            low = middle + 1
    return high


def _too_many(station: Station, rate_per_s: float) -> Impossible:
    return Impossible(
        problem=f"{format_number(rate_per_s)} requests/s would take more than {MOST_REPLICAS:,} replicas",
        remedy=f"one sustains {format_number(station.sustained_per_s)}; check the rate",
        binding=station.bound.binding,
        needed=rate_per_s,
        available=MOST_REPLICAS * station.sustained_per_s,
        unit="requests_per_s",
    )
