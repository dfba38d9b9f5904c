"""Which deadline is due next?

Nothing is ever searched: who no longer needs a deadline leaves it there to be thrown away. `forget` counts
those, and once they are the greater part all is made anew, so that a hundred thousand short requests with
ten-minute deadlines do not stay in memory for ten minutes.

Most deadlines are far off and never come. So only those of the nearest second are kept in order, in a heap;
the others lie in a list for each second until theirs is the nearest, and most are dead by then.
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
        """Whose `is_dead` becomes true is to be told of by `forget`."""
        self.is_dead = is_dead
        self._heap: list[tuple[float, int, T]] = []
        self._heap_until = -inf  # what is due before is in the heap, all else in `_later`
        self._later: dict[float, list[tuple[float, int, T]]] = {}  # by its second
        self._seconds: list[float] = []  # of `_later`: a heap
        self._seq = 0
        self._size = 0
        self._dead = 0
        self._next_at = inf  # nobody living is due before; and somebody then, if `_known`
        self._known = True

    def set(self, when: float, item: T) -> None:
        """Make `item` due at `when`. It may be there more than once."""
        if when == inf:
            return
        self._seq += 1
        self._size += 1
        if when < self._heap_until:
            heappush(self._heap, (when, self._seq, item))
        elif (same := self._later.get(when // 1.0)) is not None:
            same.append((when, self._seq, item))
        else:
            self._later[when // 1.0] = [(when, self._seq, item)]
            heappush(self._seconds, when // 1.0)
        if when < self._next_at:
            self._next_at = when
            self._known = False

    def forget(self) -> None:
        """Some item has died. Its entry stays until it is due or until most entries are dead."""
        self._known = False
        self._dead += 1
        if self._dead > 256 and self._dead * 2 > self._size:
            self._throw_away()

    def any_due(self, now: float) -> bool:
        """Whether `pop_due` may have something. Cheap; the dead may make it say so in vain."""
        return self._next_at <= now

    def next_at(self) -> float:
        """When the earliest living item is due; inf when there is none."""
        if not self._known:
            while self._heap or self._seconds:
                if not self._heap:
                    self._take_second()
                elif self.is_dead(self._heap[0][2]):
                    heappop(self._heap)
                    self._size -= 1
                else:
                    break
            self._next_at = self._heap[0][0] if self._heap else inf
            self._known = True
        return self._next_at

    def pop_due(self, now: float) -> T | None:
        """The next item that is due at `now`, taken out; None when there is none."""
        if self.next_at() > now or not self._heap:
            return None
        self._known = False
        self._size -= 1
        return heappop(self._heap)[2]

    def _take_second(self) -> None:
        """The heap is empty: put the living of the next second into it."""
        second = heappop(self._seconds)
        entries = self._later.pop(second)
        self._heap = [entry for entry in entries if not self.is_dead(entry[2])]
        heapify(self._heap)
        self._heap_until = second + 1.0
        self._size -= len(entries) - len(self._heap)

    def _throw_away(self) -> None:
        """Keep the living only."""
        is_dead = self.is_dead
        self._heap = [entry for entry in self._heap if not is_dead(entry[2])]
        heapify(self._heap)
        self._size, self._dead = len(self._heap), 0
        for second, entries in list(self._later.items()):
            living = [entry for entry in entries if not is_dead(entry[2])]
            self._size += len(living)
            if living:
                self._later[second] = living
            else:
                del self._later[second]
        self._seconds = list(self._later)
        heapify(self._seconds)

    def __len__(self) -> int:
        return self._size
