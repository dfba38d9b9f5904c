"""What is being computed just now, and when does each step of it end?

boundary k = start + k * first_s + growth_s * k * (k - 1) / 2
"""

from __future__ import annotations

from collections.abc import Collection
from math import sqrt

from tidegate.sim.sequence import Sequence


class Segment:
    """One step that is begun, or a run of decode steps that are begun when it is over."""

    __slots__ = (
        "decodes",
        "ending",
        "event_at",
        "event_steps",
        "first_s",
        "growth_s",
        "idle",
        "prefill_tokens",
        "run",
        "start",
        "steps",
        "tells",
    )

    def __init__(
        self,
        start: float,
        first_s: float,
        decodes: int,
        *,
        growth_s: float = 0.0,
        steps: int = 1,
        run: bool = False,
        prefill_tokens: int = 0,
        ending: Collection[Sequence] = (),
        idle: Collection[Sequence] = (),
    ) -> None:
        self.start = start
        self.first_s = first_s
        self.decodes = decodes
        self.growth_s = growth_s  # by which a step of a run takes longer than the one before
        self.steps = steps  # at most: a run may end before
        self.run = run
        self.prefill_tokens = prefill_tokens
        self.ending = ending  # all of whose known tokens are computed when the step ends, by a chunk
        self.idle = idle  # that decode, but not in this step

        self.event_steps: int = 0  # after so many of its steps it needs attention,
        self.event_at: float = 0.0  # which is at this instant,
        self.tells: bool = False  # for there is something to tell, and not only to plan

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
