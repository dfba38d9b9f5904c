"""What happens next in simulated time?

A heap of acts by instant. Acts of the same instant happen in the order in which they were put down, so that
a run is the same each time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Agenda:
    """Acts to come. `now` is the instant of the last one, in seconds from the start of the run."""

    now: float = 0.0
    _heap: list[tuple[float, int, Callable[[float, Any], None], object]] = field(default_factory=list)
    _seq: int = 0
    _stopped: bool = False

    def at(self, when: float, act: Callable[[float, T], None], item: T) -> None:
        """Call `act(when, item)` at `when`, which is not before `now`; inf for never."""
        if when < inf:
            self._seq += 1
            heappush(self._heap, (when, self._seq, act, item))

    def run(self) -> None:
        """Let everything happen, until nothing is left or an act calls `stop`."""
        heap = self._heap
        while heap and not self._stopped:
            when, _, act, item = heappop(heap)
            self.now = when
            act(when, item)

    @property
    def events(self) -> int:
        """Acts so far."""
        return self._seq - len(self._heap)

    def stop(self) -> None:
        """Nothing happens any more."""
        self._stopped = True
