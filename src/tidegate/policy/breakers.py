"""Circuit breaker: has a replica failed so often that sending it more only hurts?

    CLOSED ── failures in a row, or a failure rate ──> OPEN ── open_s x 2^k ──> HALF_OPEN
      ^                                                 ^                          │
      └──────────── enough trials succeed ──────────────┼── one trial fails <──────┘

Success is any answer below 500 but 404. A 404 (see `black_holes`), back-pressure (429, 503) and what a
caller brought on itself (cancels, its own short deadline) are neutral. The breaker is a pure function of
samples; it never knows which request they came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

from tidegate.policy.settings import BreakerSettings


class BreakerState(StrEnum):
    """Where a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


# By themselves: a look-up on the enum costs as much as a call.
CLOSED: Final = BreakerState.CLOSED
OPEN: Final = BreakerState.OPEN
HALF_OPEN: Final = BreakerState.HALF_OPEN


@dataclass(slots=True)
class Breaker:
    """The state machine of the module's picture."""

    settings: BreakerSettings
    state: BreakerState = CLOSED
    reopens_at: float = inf
    trials: int = 0
    _in_a_row: int = 0
    _times_opened: int = 0
    _trial_successes: int = 0
    _round: int = 0
    _window_until: float = 0.0
    _window_failures: int = 0
    _window_samples: int = 0

    def admits(self, now: float) -> bool:
        """Whether one more request may be sent: always, once the pause is over, while trials are left."""
        if self.state is CLOSED:
            return True
        if self.state is OPEN:
            return now >= self.reopens_at
        return self.trials < self.settings.half_open_trials

    def next_wakeup(self) -> float:
        """When an open breaker becomes half open; inf otherwise."""
        return self.reopens_at if self.state is OPEN else inf

    def state_at(self, now: float) -> BreakerState:
        """Where it stands: an open one whose pause is over is half open, tried or not."""
        return HALF_OPEN if self.state is OPEN and now >= self.reopens_at else self.state

    def on_dispatch(self, now: float) -> int:
        """A request was sent. Not 0 if it is a trial: its outcome must come back with this number."""
        if self.state is CLOSED:
            return 0
        if self.state is OPEN:
            self.state = HALF_OPEN
            self.trials = self._trial_successes = 0
            self._round += 1
        self.trials += 1
        return self._round

    def on_success(self, now: float, trial: int) -> None:
        """An answer below 500 came back."""
        self._in_a_row = 0
        self._count(now, failed=False)
        if trial and self._end_trial(trial):
            self._trial_successes += 1
            if self._trial_successes >= self.settings.successes_to_close:
                self.close()

    def on_neutral(self, trial: int) -> None:
        """The attempt says nothing about the replica; a trial's permit is freed for the next."""
        self._end_trial(trial)

    def on_failure(self, now: float, trial: int, may_open: bool = True) -> bool:
        """A transport fault, a stall or a 5xx. True if this opened the breaker.

        `may_open` is false while too many of the pool are already out: counting goes on, opening waits.
        """
        self._in_a_row += 1
        self._count(now, failed=True)
        if self._end_trial(trial):
            self.open(now)
            return True
        if self.state is CLOSED and may_open and self._too_many():
            self.open(now)
            return True
        return False

    def open(self, now: float) -> None:
        """Send nothing for `open_s`, doubled each time in a row, up to `open_max_s`."""
        pause_s = min(self.settings.open_s * 2**self._times_opened, self.settings.open_max_s)
        self._times_opened = min(self._times_opened + 1, 16)
        self.state = OPEN
        self.reopens_at = now + pause_s
        self._forget()

    def close(self) -> None:
        """The replica is believed in again."""
        self.state = CLOSED
        self.reopens_at = inf
        self._times_opened = 0
        self._forget()

    def _end_trial(self, trial: int) -> bool:
        # A trial of an earlier half-open round says nothing about this one.
        if self.state is not HALF_OPEN or trial != self._round:
            return False
        self.trials -= 1
        return True

    def _too_many(self) -> bool:
        settings = self.settings
        return self._in_a_row >= settings.consecutive_failures or (
            self._window_samples >= settings.min_samples
            and self._window_failures >= settings.failure_ratio * self._window_samples
        )

    def _count(self, now: float, failed: bool) -> None:
        if now >= self._window_until:
            self._window_until = now + self.settings.window_s
            self._window_failures = self._window_samples = 0
        self._window_samples += 1
        self._window_failures += failed

    def _forget(self) -> None:
        self.trials = self._trial_successes = self._in_a_row = 0
        self._window_failures = self._window_samples = 0
