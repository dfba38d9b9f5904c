"""Graceful degradation: under this pressure, what does a request still get?

One pressure figure 0..1 per pool drives a ladder of steps, in the order in which they are configured:
clamp `max_tokens`, fall back to a smaller model, shed. A step is entered at `above` and left when the
pressure has been under `below` for `dwell_s`: two thresholds and a dwell, so that it cannot flap.
Protected classes are never touched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from tidegate.policy.settings import ClampStep, FallbackStep, ShedStep, Step


class Relief(NamedTuple):
    """What the active steps mean for one request."""

    max_tokens: int | None = None
    pool: str | None = None
    shed: bool = False


NO_RELIEF: Final = Relief()


@dataclass(slots=True)
class Ladder:
    """The steps of one pool, and which of them are active."""

    steps: tuple[Step, ...]
    active: list[bool] = field(default_factory=list)
    _calm_since: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.active = [False] * len(self.steps)
        self._calm_since = [inf] * len(self.steps)

    def on_pressure(self, now: float, pressure: float) -> None:
        """Enter and leave steps for a pressure in 0..1."""
        for index, step in enumerate(self.steps):
            if pressure >= step.above:
                self.active[index] = True
            if not self.active[index] or pressure >= step.below:
                self._calm_since[index] = inf
                continue
            self._calm_since[index] = min(self._calm_since[index], now)
            # The same sum as in `next_wakeup`: a difference may round to just below the dwell, for ever.
            if now >= self._calm_since[index] + step.dwell_s:
                self.active[index] = False
                self._calm_since[index] = inf

    def next_wakeup(self) -> float:
        """When the earliest calm step may be left; inf while none is calm."""
        return min(
            (calm + step.dwell_s for calm, step in zip(self._calm_since, self.steps, strict=True)),
            default=inf,
        )

    def relief(self, class_name: str, protected: bool) -> Relief:
        """What a request of that class gets now."""
        if protected or not any(self.active):
            return NO_RELIEF
        applying = [
            step
            for step, active in zip(self.steps, self.active, strict=True)
            if active and (step.classes is None or class_name in step.classes)
        ]
        clamps = [step.max_tokens for step in applying if isinstance(step, ClampStep)]
        pools = [step.pool for step in applying if isinstance(step, FallbackStep)]
        return Relief(
            max_tokens=min(clamps, default=None),
            pool=pools[0] if pools else None,
            shed=any(isinstance(step, ShedStep) for step in applying),
        )

    def names(self) -> tuple[str, ...]:
        """Labels of the active steps, for status and metrics."""
        return tuple(
            str(step.__struct_config__.tag)
            for step, active in zip(self.steps, self.active, strict=True)
            if active
        )
