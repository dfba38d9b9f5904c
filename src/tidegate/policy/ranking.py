"""Who is least loaded? Items in order of a load, kept so while one load after another changes.

A pool of hundreds of replicas must not be looked through for each request: a change costs a bisection, and
the least loaded item that fits is mostly the first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from math import inf
from random import Random
from typing import Generic, TypeVar

T = TypeVar("T")


class Ranking(Generic[T]):
    """Items by load. Each has a key, which is a number of its own and never changes."""

    def __init__(self) -> None:
        self._order: list[tuple[float, int, T]] = []
        self._places: dict[int, tuple[float, int, T]] = {}  # the same, by key

    def place(self, key: int, item: T, load: float) -> None:
        """Let `item` have this load, whether it was there or not."""
        before = self._places.get(key)
        if before is not None:
            if before[0] == load:
                return
            self._order.pop(bisect_left(self._order, before))
        self._places[key] = place = (load, key, item)
        insort(self._order, place)

    def drop(self, key: int) -> None:
        """Take an item out, if it is there."""
        before = self._places.pop(key, None)
        if before is not None:
            self._order.pop(bisect_left(self._order, before))

    def least(self, fits: Callable[[T], bool], most: float, rng: Random) -> T | None:
        """The least loaded item that fits; among equals the dice choose. None above a load of `most`."""
        order = self._order
        for place, (load, _, item) in enumerate(order):
            if load > most:
                return None
            if fits(item):
                if place + 1 == len(order) or order[place + 1][0] != load:
                    return item
                equals = bisect_right(order, (load, inf), lo=place) - place
                return self._draw(place, equals, fits, rng)
        return None

    def _draw(self, place: int, equals: int, fits: Callable[[T], bool], rng: Random) -> T:
        """One of the equals from `place` on that fit; the first of them does."""
        drawn = self._order[place + int(rng.random() * equals)][2]
        if fits(drawn):
            return drawn
        fitting = [item for _, _, item in self._order[place : place + equals] if fits(item)]
        return fitting[int(rng.random() * len(fitting))]

    def __len__(self) -> int:
        return len(self._order)
