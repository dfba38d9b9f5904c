"""Who tells the governor what happens, and does what it says? This, on the event loop.

The driver holds the only clock. It delivers one event at a time: what happens while commands are carried out
waits for its turn, so that the governor never runs inside itself.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from tidegate.core.messages import (
    Abort,
    Command,
    Dispatch,
    Event,
    Failed,
    FailureKind,
    Probe,
    Truncate,
)
from tidegate.core.records import RequestRecord
from tidegate.policy.contract import Policy

if TYPE_CHECKING:
    from tidegate.gateway.flight import Flight


class Driver:
    """The governor's event loop."""

    def __init__(
        self,
        governor: Policy,
        on_probe: Callable[[str], None],
        on_record: Callable[[RequestRecord], None],
    ) -> None:
        self.governor = governor
        self.flights: dict[int, Flight] = {}
        """Requests told to the governor and not yet refused or reported ended, by id."""
        self.now: Callable[[], float] = time.monotonic
        self._loop = asyncio.get_running_loop()
        self._on_probe = on_probe
        self._on_record = on_record
        self._pending: deque[Event] = deque()
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None
        self._armed_at = inf

    def tell(self, event: Event) -> None:
        """Something happened."""
        if self._busy:
            self._pending.append(event)
        else:
            self._run(self.governor.handle(event, self.now()))

    def close(self) -> None:
        """No further wake-ups."""
        if self._timer is not None:
            self._timer.cancel()

    def _wake(self) -> None:
        self._timer = None
        self._armed_at = inf
        # A timer may fire a hair early; then it is simply armed again.
        self._run(self.governor.on_wakeup(self.now()))

    def _run(self, commands: list[Command]) -> None:
        governor, pending = self.governor, self._pending
        self._busy = True
        try:
            while True:
                for command in commands:
                    self._carry_out(command)
                if not pending:
                    break
                commands = governor.handle(pending.popleft(), self.now())
        finally:
            self._busy = False
        if governor.ended:
            for record in governor.take_ended():
                self._on_record(record)
        wake_at = governor.next_wakeup()
        if wake_at < self._armed_at:
            self._arm(wake_at)

    def _arm(self, wake_at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_at = wake_at
        self._timer = self._loop.call_later(max(0.0, wake_at - self.now()), self._wake)

    def _carry_out(self, command: Command) -> None:
        """Do it. A fault of ours costs the one request, never those whose commands stand behind it."""
        try:
            if isinstance(command, Dispatch):
                flight = self.flights.get(command.request_id)
                if flight is not None:
                    flight.dispatch(command)
            elif isinstance(command, Probe):
                self._on_probe(command.replica)
            elif (flight := self.flights.get(command.request_id)) is None:
                pass  # its end waits in `_pending`: a deadline of the same instant was let pass before it
            elif isinstance(command, Truncate):
                flight.truncate(command)
            elif isinstance(command, Abort):
                flight.abort(command)
            else:
                del self.flights[command.request_id]
                flight.refuse(command)
        except Exception as error:
            self._report(command, error)

    def _report(self, command: Command, error: Exception) -> None:
        self._loop.call_exception_handler({"message": f"failed: {command!r}", "exception": error})
        if isinstance(command, Dispatch | Truncate):  # what is owed for an attempt stays owed
            committed = isinstance(command, Truncate)
            if committed:
                self.flights.pop(command.request_id, None)
            self._pending.append(
                Failed(
                    request_id=command.request_id,
                    attempt=command.attempt,
                    kind=FailureKind.CONNECT,
                    committed=committed,
                )
            )
