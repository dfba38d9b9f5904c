"""When does each step of a replica end, in real time?

One timer per replica, for the end of the step that is under way. A step begins when its predecessor was
planned to end, not when the timer fired, so that nothing drifts; if the process was late by more than a
step, all that is due is delivered at once, as one longer piece of text per stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence as Several
from typing import Protocol

from tidegate.emulator.batching import Replica, Sequence, StepResult
from tidegate.emulator.metrics import Meter
from tidegate.emulator.profile import Profile

CATCH_UP_STEPS = 64
"""Steps made in one go when late, before other work of the process has its turn."""


class Taker(Protocol):
    """Whoever waits for tokens."""

    def flush(self) -> None:
        """Called once per delivery, when all the choices that it waits for are up to date."""


class Choice:
    """One output of one request."""

    __slots__ = ("arrived_at", "cut", "finished", "index", "ready", "seed", "sent", "sequence", "taker")

    def __init__(self, index: int, seed: int, sequence: Sequence, cut: bool, arrived_at: float) -> None:
        self.index = index
        self.seed = seed
        self.sequence = sequence
        self.cut = cut  # ended by max_tokens, not by itself
        self.arrived_at = arrived_at
        self.taker: Taker
        self.ready = 0  # tokens produced, by steps that are over
        self.sent = 0  # tokens of these that were passed on
        self.finished = False


class Engine:
    """One replica on the event loop's clock."""

    __slots__ = ("_ends_at", "_left_s", "_loop", "_owners", "_step", "_timer", "meter", "replica", "slowness")

    def __init__(self, profile: Profile, loop: asyncio.AbstractEventLoop) -> None:
        self.replica = Replica(profile)
        self.meter = Meter()
        self.slowness = 1.0
        """Steps take so many times as long as planned."""
        self._loop = loop
        self._owners: dict[Sequence, Choice] = {}
        self._step: StepResult | None = None
        self._ends_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._left_s: float | None = None  # of the step under way, while stalled

    @property
    def stalled(self) -> bool:
        """True between `stall` and `go_on`."""
        return self._left_s is not None

    def submit(self, choices: Several[Choice]) -> None:
        """Queue all of them; the first step begins now if the replica was idle."""
        for choice in choices:
            self._owners[choice.sequence] = choice
            self.replica.submit(choice.sequence)
        if self._step is None and not self.stalled:
            self._ends_at = self._loop.time()
            self._plan()
            self._arm()

    def cancel(self, choice: Choice) -> None:
        """Free its seat and its blocks at once; it is told nothing more."""
        if self._owners.pop(choice.sequence, None) is not None:
            self.replica.cancel(choice.sequence)

    def stall(self) -> None:
        """Stop computing, as a hung GPU does."""
        if not self.stalled:
            self._left_s = max(0.0, self._ends_at - self._loop.time())
            self._disarm()

    def go_on(self) -> None:
        """Compute again, from where it stopped."""
        if self._left_s is None:
            return
        self._ends_at = self._loop.time() + self._left_s
        self._left_s = None
        if self._step is None:
            self._plan()
        self._arm()

    def close(self) -> None:
        """Forget everything."""
        self._disarm()
        self._owners.clear()
        self._step = None

    def _plan(self) -> None:
        """Plan the step that begins where the last one ended."""
        self._step = step = self.replica.step()
        if step is not None:
            self._ends_at += step.duration_s * self.slowness

    def _arm(self) -> None:
        if self._step is not None:
            self._timer = self._loop.call_at(self._ends_at, self._on_time)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_time(self) -> None:
        now = self._loop.time()
        takers: dict[Taker, None] = {}
        for _ in range(CATCH_UP_STEPS):
            step = self._step
            if step is None:
                break
            self._deliver(step, takers)
            self._plan()
            if self._ends_at > now:
                break
        self._arm()
        for taker in takers:
            taker.flush()

    def _deliver(self, step: StepResult, takers: dict[Taker, None]) -> None:
        """Make what a step has produced ready, for whoever still waits for it."""
        owners = self._owners
        first_tokens = 0
        for sequence, tokens in step.produced:
            choice = owners.get(sequence)
            if choice is not None:
                if not choice.ready:
                    first_tokens += 1
                    self.meter.first_token(sequence.prompt_tokens, self._ends_at - choice.arrived_at)
                choice.ready += tokens
                takers[choice.taker] = None
        for sequence in step.finished:
            choice = owners.pop(sequence, None)
            if choice is not None:
                choice.finished = True
                takers[choice.taker] = None
                self.meter.finished(sequence, choice.cut, self._ends_at - choice.arrived_at)
        self.meter.stepped(step, first_tokens, self.slowness)
