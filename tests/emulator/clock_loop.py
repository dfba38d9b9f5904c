"""An event loop whose clock the test moves."""

from __future__ import annotations

from collections.abc import Callable


class ClockLoop:
    """The part of an event loop that an engine uses; its timers fire when the test says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: tuple[float, Callable[[], None]] | None = None

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> ClockLoop:
        assert self.due is None, "one timer per replica"
        self.due = when, callback
        return self

    def cancel(self) -> None:
        self.due = None

    def fire(self, late_s: float = 0.0) -> None:
        """Let time pass until the timer, and `late_s` more."""
        assert self.due is not None
        when, callback = self.due
        self.due = None
        self.now = max(self.now, when) + late_s
        callback()
