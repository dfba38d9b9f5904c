"""Who is admitted next?

Two orders, as vLLM's `--scheduling-policy` has them. Each operation costs the same however long the queue is
(a heap's logarithm aside), for overload is what is simulated most.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heappop, heappush

from tidegate.sim.sequence import Sequence


class ByArrival:
    """First come, first served; what was preempted goes to the head."""

    __slots__ = ("_order", "count")

    def __init__(self) -> None:
        self._order: OrderedDict[Sequence, None] = OrderedDict()
        self.count = 0
        """Sequences that wait."""

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._order)

    def append(self, sequence: Sequence) -> bool:
        """Queue a newcomer. True if it is now the head of the queue."""
        self._order[sequence] = None
        self.count += 1
        return self.count == 1

    def put_back(self, sequence: Sequence) -> None:
        """Queue one that was preempted."""
        self._order[sequence] = None
        self.count += 1
        self._order.move_to_end(sequence, last=False)

    def head(self) -> Sequence:
        """Who is next; there must be one."""
        return next(iter(self._order))

    def remove(self, sequence: Sequence) -> None:
        """It waits no more, if it did."""
        if sequence in self._order:
            del self._order[sequence]
            self.count -= 1


class ByPriority:
    """The smallest `priority`, then the earliest arrival, then the smallest id; preempted or not."""

    __slots__ = ("_entries", "_heap", "_members", "count")

    def __init__(self) -> None:
        self.count = 0
        """Sequences that wait."""
        self._entries = 0
        self._heap: list[tuple[int, float, int, int, Sequence]] = []
        self._members: dict[Sequence, None] = {}  # the heap may hold some that are gone

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._members)

    def append(self, sequence: Sequence) -> bool:
        """Queue it. True if it is now the head of the queue."""
        self._members[sequence] = None
        self.count += 1
        self._entries += 1
        entry = (sequence.priority, sequence.arrived_at, sequence.id, self._entries, sequence)
        heappush(self._heap, entry)
        return self.head() is sequence

    def put_back(self, sequence: Sequence) -> None:
        """Queue one that was preempted."""
        self.append(sequence)

    def head(self) -> Sequence:
        """Who is next; there must be one."""
        heap, members = self._heap, self._members
        while heap[0][4] not in members:
            heappop(heap)
        return heap[0][4]

    def remove(self, sequence: Sequence) -> None:
        """It waits no more, if it did."""
        if sequence in self._members:
            del self._members[sequence]
            self.count -= 1


Waiting = ByArrival | ByPriority
