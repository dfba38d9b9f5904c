"""What is being computed just now, and when does each step of it end?

boundary k = start + k * first_s + growth_s * k * (k - 1) / 2
"""

from __future__ import annotations

from math import sqrt

import msgspec

from tidegate.sim.sequence import Sequence


class Segment(msgspec.Struct, kw_only=True):
    """One step that is begun, or a run of decode steps that are begun when it is over."""

    start: float
    first_s: float
    growth_s: float = 0.0
    """By which a step of a run takes longer than the one before."""
    steps: int = 1
    """At most: the run may end before."""
    run: bool = False
    decodes: int
    prefill_tokens: int = 0
    ending: list[Sequence] = []
    """Sequences all of whose known tokens are computed when the step ends, by a chunk."""
    idle: list[Sequence] = []
    """Sequences that decode, but not in this step."""
    event_steps: int = 0
    """After so many of its steps it needs attention,"""
    event_at: float = 0.0
    """which is at this instant,"""
    tells: bool = False
    """for there is something to tell, and not only to plan."""

    def boundary(self, step: int) -> float:
        """When so many of its steps are over."""
        return self.start + (step * self.first_s + self.growth_s * (step * (step - 1) / 2))

    def whole(self, now: float) -> int:
        """Its steps that are over by `now`, were it without end."""
        passed = now - self.start
        slope = self.first_s - self.growth_s / 2
        steps = int(2 * passed / (slope + sqrt(slope * slope + 2 * self.growth_s * passed)))
        while self.boundary(steps) > now:  # the root is rounded
            steps -= 1
        while self.boundary(steps + 1) <= now:
            steps += 1
        return steps

    def begun(self, now: float) -> int:
        """Its steps that began before `now`."""
        steps = self.whole(now)
        return steps + (self.boundary(steps) < now)
