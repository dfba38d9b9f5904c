"""An event loop whose time passes as fast as it can: it jumps from one timer to the next.

Timers fire at the very instant that they were set for; those of one instant in the order of their setting.
What a callback raises is raised by `run`. There is no I/O.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from heapq import heappop, heappush
from typing import Any, NoReturn, cast


class VirtualLoop:
    """As much of a loop as `gateway.driver` and agendas need."""

    def __init__(self) -> None:
        self._now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._seq = 0
        self._stopped = False

    def time(self) -> float:
        """Seconds since it was made."""
        return self._now

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Have it called at that instant."""
        timer = asyncio.TimerHandle(when, callback, args, cast(asyncio.AbstractEventLoop, self), context)
        self._seq += 1
        heappush(self._timers, (when, self._seq, timer))
        return timer

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Have it called after so many seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> NoReturn:
        """Nothing may go wrong unnoticed."""
        raise AssertionError(context["message"]) from context.get("exception")

    def get_debug(self) -> bool:
        """Handles ask."""
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Handles tell."""

    def run(self) -> None:
        """Until no timer is left, or it is stopped."""
        while self._timers and not self._stopped:
            when, _, timer = heappop(self._timers)
            if not timer.cancelled():
                assert when >= self._now
                self._now = when
                timer._run()

    def stop(self) -> None:
        """Let no timer fire after this one, whoever still sets any."""
        self._stopped = True


@contextmanager
def virtual_loop() -> Iterator[VirtualLoop]:
    """One that counts as running, so that what is made inside finds it."""
    loop = VirtualLoop()
    asyncio._set_running_loop(cast(asyncio.AbstractEventLoop, loop))
    try:
        yield loop
    finally:
        asyncio._set_running_loop(None)
