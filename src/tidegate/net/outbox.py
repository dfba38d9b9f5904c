"""When do written bytes leave? Together, once all that the loop has read in this turn has been dealt with.

A write at once wakes its reader, who takes the few bytes and sleeps again before the next write: where
peers are on the same machine, waking costs more than writing. So what a turn of the loop has to say
to many peers is said in one go, and never later than before the loop waits again. What is written first
leaves first, whatever its size: prompts reach an engine in the order in which they were dispatched.
"""

from __future__ import annotations

import asyncio
from typing import Final

AT_ONCE_BYTES: Final = 16_384
"""More than this is written at once, behind all that waits: it gains nothing by company, and back-pressure
must see it."""


class Outbox:
    """What waits to be written to the transports of one loop."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[asyncio.Transport, bytes] = {}

    def write(self, transport: asyncio.Transport, data: bytes) -> None:
        """Have `data` written before the loop waits for anything again."""
        waiting = self._waiting
        before = waiting.get(transport)
        if before is not None:
            data = before + data
        if len(data) > AT_ONCE_BYTES:
            waiting.pop(transport, None)
            self.flush_all()
            transport.write(data)
        else:
            if not waiting:
                self._loop.call_soon(self.flush_all)
            waiting[transport] = data

    def flush(self, transport: asyncio.Transport) -> None:
        """Write now what waits for this one: something else is about to be done to it."""
        data = self._waiting.pop(transport, None)
        if data is not None:
            transport.write(data)

    def forget(self, transport: asyncio.Transport) -> None:
        """The transport is gone, or will be cut: nothing more leaves by it."""
        self._waiting.pop(transport, None)

    def flush_all(self) -> None:
        """Write all that waits, in its order."""
        waiting, self._waiting = self._waiting, {}
        for transport, data in waiting.items():
            if not transport.is_closing():
                try:
                    transport.write(data)
                except Exception as error:  # of one peer: the others' bytes must leave all the same
                    self._loop.call_exception_handler({"message": "a write failed", "exception": error})
