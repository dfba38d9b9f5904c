"""Which deadline is due next?

A heap in which nothing is ever searched: who no longer needs a deadline leaves it there to be thrown
away. `forget` counts those, and once they are the greater part the heap is made anew, so that a
hundred thousand short requests with ten-minute deadlines do not stay in memory for ten minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import inf
from typing import Generic, TypeVar

T = TypeVar("T")


class Timers(Generic[T]):
    """Items by the instant at which they are due; equal instants keep the order of `set`."""

    def __init__(self, is_dead: Callable[[T], bool]) -> None:
        self.is_dead = is_dead
        self._heap: list[tuple[float, int, T]] = []
        self._seq = 0
        self._dead = 0

    def set(self, when: float, item: T) -> None:
        """Make `item` due at `when`. It may be there more than once."""
        if when < inf:
            self._seq += 1
            heappush(self._heap, (when, self._seq, item))

    def forget(self) -> None:
        """Some item has died. Its entry stays until it is due or until most entries are dead."""
        self._dead += 1
        if self._dead > 256 and self._dead * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if not self.is_dead(entry[2])]
            heapify(self._heap)
            self._dead = 0

    def any_due(self, now: float) -> bool:
        """Whether `pop_due` may have something. Cheap; the dead may make it say so in vain."""
        return bool(self._heap) and self._heap[0][0] <= now

    def next_at(self) -> float:
        """When the earliest living item is due; inf when there is none."""
        heap = self._heap
        while heap and self.is_dead(heap[0][2]):
            heappop(heap)
        return heap[0][0] if heap else inf

    def pop_due(self, now: float) -> T | None:
        """The next item that is due at `now`, taken out; None when there is none."""
        return heappop(self._heap)[2] if self.next_at() <= now else None

    def __len__(self) -> int:
        return len(self._heap)
