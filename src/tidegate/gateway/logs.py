"""How much may be said? One line for what went wrong, but a flood of faults must not become one of lines."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from tidegate.core.text import printable
from tidegate.policy.limits import Bucket

LINES_PER_S = 20.0
BURST_LINES = 100.0


class Lines:
    """A logger that drops lines above a rate, and says how many it dropped."""

    def __init__(self, log: logging.Logger, now: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._now = now
        self._bucket = Bucket(rate_per_s=LINES_PER_S, burst=BURST_LINES)
        self._dropped = 0

    def warn(self, message: str, *values: object) -> None:
        """One warning. Text from outside is made printable and kept on one line."""
        now = self._now()
        if self._bucket.wait_s(now, 1) > 0:
            self._dropped += 1
            return
        self._bucket.take(now, 1)
        if self._dropped:
            self._log.warning("%d lines like the following were left out", self._dropped)
            self._dropped = 0
        self._log.warning(
            message, *(printable(value) if isinstance(value, str) else value for value in values)
        )
