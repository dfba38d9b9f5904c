"""What has changed that an operator should find in the log at 3 a.m.?

Looks at the governor once a second and says what is different: replicas that went or came back, steps of
degradation, and how many requests the fleet (not a tenant's own quota) has left without an answer.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from tidegate.core.reasons import Reason
from tidegate.core.records import RequestRecord
from tidegate.policy.governor import Governor

log = logging.getLogger("tidegate.watch")

LOOK_S = 1.0
SUM_UP_EVERY = 10
"""Looks between two sums of what was refused."""

FLEET = frozenset(
    {
        Reason.QUEUE_FULL,
        Reason.WAIT_TOO_LONG,
        Reason.SHED,
        Reason.DISPLACED,
        Reason.QUEUE_TIMEOUT,
        Reason.TTFT_TIMEOUT,
        Reason.TOTAL_TIMEOUT,
        Reason.NO_REPLICA,
        Reason.UPSTREAM_BUSY,
    }
)
"""Reasons that say the fleet is short; a failed attempt has a line of its own, a quota is its tenant's."""

QUIET = frozenset({"up", "busy"})
"""States between which a replica moves all day."""


class Watch:
    """The governor as it was at the last look."""

    def __init__(self, governor: Governor, now: Callable[[], float]) -> None:
        self._governor = governor
        self._now = now
        self._states: dict[str, str] = {}
        self._steps: dict[str, tuple[str, ...]] = {}
        self._refused: Counter[str] = Counter()
        self._looks = 0

    def observe(self, record: RequestRecord) -> None:
        """A request has ended."""
        if record.reason in FLEET:
            assert record.reason is not None
            self._refused[record.reason.value] += 1

    def look(self) -> None:
        """Say what has changed since the last time."""
        self._look_at_replicas()
        self._look_at_steps()
        self._looks += 1
        if self._looks % SUM_UP_EVERY == 0 and self._refused:
            reasons = ", ".join(f"{reason} {count}" for reason, count in self._refused.most_common())
            log.warning("in the last %g s the fleet left unanswered: %s", LOOK_S * SUM_UP_EVERY, reasons)
            self._refused.clear()

    def _look_at_replicas(self) -> None:
        now = self._now()
        for name, member in self._governor.members.items():
            before, state = self._states.get(name, "up"), member.state(now)
            self._states[name] = state
            if state == before or (state in QUIET and before in QUIET):
                continue
            level = logging.INFO if state in QUIET or state == "draining" else logging.WARNING
            log.log(
                level, "replica %s is %s, was %s; %d in flight", name, state, before, member.replica.in_flight
            )

    def _look_at_steps(self) -> None:
        for name, pool in self._governor.pools.items():
            before, steps = self._steps.get(name, ()), pool.ladder.names()
            self._steps[name] = steps
            if steps != before:
                log.warning(
                    "pool %s degrades: %s (was: %s), pressure %.0f %%",
                    name,
                    ", ".join(steps) or "nothing",
                    ", ".join(before) or "nothing",
                    100 * pool.pressure(),
                )
