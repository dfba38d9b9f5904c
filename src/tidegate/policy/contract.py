"""What may a driver ask of a governor?"""

from __future__ import annotations

from typing import Protocol

from tidegate.core.messages import Command, Event
from tidegate.core.records import RequestRecord
from tidegate.policy.pool import Pool


class Policy(Protocol):
    """What a driver needs of a governor; a `Recorder` has it too."""

    @property
    def pools(self) -> dict[str, Pool]:
        """By name."""

    @property
    def ended(self) -> list[RequestRecord]:
        """Records not taken yet."""

    def handle(self, event: Event, now: float) -> list[Command]:
        """Tell it what happened; it says what to do."""

    def next_wakeup(self) -> float:
        """The instant at which `on_wakeup` must be called; inf for never."""

    def on_wakeup(self, now: float) -> list[Command]:
        """Let the deadlines pass that are due."""

    def take_ended(self) -> list[RequestRecord]:
        """Records of what ended since the last time, oldest first."""

    def check(self) -> None:
        """Assert the invariants."""
