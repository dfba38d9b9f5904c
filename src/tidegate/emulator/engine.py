"""When does each step of a replica end, in real time?

The simulator's replica does the batching; here its clock is tied to the event loop's. One timer per replica,
for the end of the step that is under way. A step begins when its predecessor was planned to end, not when the
timer fired, so that nothing drifts; if the process was late by more than a step, all that is due is delivered
at once, as one longer piece of text per stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence as Several
from math import inf, nextafter
from typing import Protocol

from tidegate.core.errors import CallerError
from tidegate.emulator.metrics import Meter
from tidegate.sim.happening import FINISHED, FIRST_TOKEN
from tidegate.sim.profiles import Profile
from tidegate.sim.replica import Replica
from tidegate.sim.sequence import Sequence


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

    __slots__ = (
        "_ahead_s",
        "_due",
        "_loop",
        "_now",
        "_owners",
        "_stalled_at",
        "_step_began_at",
        "_timer",
        "meter",
        "replica",
    )

    def __init__(self, profile: Profile, loop: asyncio.AbstractEventLoop) -> None:
        self.replica = Replica(profile)
        self.meter = Meter()
        self._loop = loop
        self._owners: dict[Sequence, Choice] = {}
        self._ahead_s = 0.0  # of the replica's clock, the loop's: what stalls have cost
        self._now = -inf  # the replica was last told
        self._step_began_at = -inf  # by the replica's clock, the one under way,
        self._due = inf  # and when it ends
        self._timer: asyncio.TimerHandle | None = None
        self._stalled_at: float | None = None

    @property
    def stalled(self) -> bool:
        """True between `stall` and `go_on`."""
        return self._stalled_at is not None

    def submit(self, choices: Several[Choice]) -> None:
        """Queue all of them; the first step begins now if the replica was idle."""
        now = self._clock()
        for choice in choices:
            if (why := self.replica.submit(now, choice.sequence)) is not None:
                raise CallerError(why)
            self._owners[choice.sequence] = choice
        if self._timer is None and not self.stalled:
            self._arm()

    def cancel(self, choice: Choice) -> None:
        """Free its seat and its blocks at once; it is told nothing more."""
        if self._owners.pop(choice.sequence, None) is not None:
            self.replica.cancel(self._clock(), choice.sequence)

    def slow(self, factor: float) -> None:
        """Steps that begin from now on take `factor` times as long as planned."""
        self.replica.slow(self._clock(), factor)

    def stall(self) -> None:
        """Stop computing, as a hung GPU does."""
        if not self.stalled:
            self._stalled_at = self._clock()
            self._disarm()

    def go_on(self) -> None:
        """Compute again, from where it stopped."""
        if self._stalled_at is not None:
            self._ahead_s = self._loop.time() - self._stalled_at
            self._stalled_at = None
            self._arm()

    def close(self) -> None:
        """Forget everything."""
        self._disarm()
        self._owners.clear()

    def _clock(self) -> float:
        """The replica's: it stands still in a stall, and never goes back though a timer fires too early."""
        if self._stalled_at is None:
            self._now = max(self._now, self._loop.time() - self._ahead_s)
        return self._now

    def _arm(self) -> None:
        """Wake at the end of the step under way. If none is, one begins; nobody can be in time for it."""
        self._now = nextafter(self._now, inf)
        self._due = self.replica.boundary_after(self._now)
        if self._due == inf and self._owners:
            self._due = self._now  # the last step ended at this very instant, and nobody was told yet
        if self._due < inf:
            self._step_began_at = self.replica.boundary_before(self._now)
            self._timer = self._loop.call_at(self._due + self._ahead_s, self._on_time)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_time(self) -> None:
        self._timer = None
        self._now = now = max(self._due, self._clock())
        takers: dict[Taker, None] = {}
        self._deliver(now, takers)
        self._arm()
        for taker in takers:
            taker.flush()

    def _deliver(self, now: float, takers: dict[Taker, None]) -> None:
        """Make what is there by now ready, for whoever still waits for it."""
        owners, meter = self._owners, self.meter
        firsts = tokens = steps = 0
        for happening in self.replica.advance(now):
            choice = owners.get(happening.sequence)
            if choice is None:
                continue
            if happening.kind == FIRST_TOKEN:
                firsts += 1
                meter.first_token(choice.sequence, happening.at + self._ahead_s - choice.arrived_at)
            elif happening.kind == FINISHED:
                del owners[happening.sequence]
                tokens += happening.output_tokens - choice.ready
                steps = max(steps, happening.output_tokens - choice.ready)
                choice.ready = happening.output_tokens
                choice.finished = True
                takers[choice.taker] = None
                meter.finished(choice.sequence, choice.cut, happening.at + self._ahead_s - choice.arrived_at)
        for sequence, ready in self.replica.decoding_at(now):
            choice = owners[sequence]
            if fresh := ready - choice.ready:
                tokens += fresh
                steps = fresh if fresh > steps else steps
                choice.ready = ready
                takers[choice.taker] = None
        if tokens:
            step_s = (self.replica.boundary_before(now) - self._step_began_at) / steps
            meter.generated(tokens, firsts, step_s)
