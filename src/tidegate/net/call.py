"""What is one call to an engine, from its sending to its single end?"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Protocol

from tidegate.core.messages import FailureKind
from tidegate.net.headers import Headers

if TYPE_CHECKING:
    from tidegate.net.client import Client
    from tidegate.net.upstream import UpstreamConnection


class ResponseSink(Protocol):
    """Is told what comes of a call, synchronously: exactly one of `on_end` and `on_failure`, and last."""

    def on_head(self, status: int, headers: Headers) -> None:
        """The final status and the lower-case headers; interim answers are skipped."""

    def on_body(self, data: bytes) -> None:
        """All body bytes of one read."""

    def on_end(self) -> None:
        """The answer is complete by its framing."""

    def on_failure(self, kind: FailureKind, detail: str) -> None:
        """There will be no (further) answer: CONNECT, RESET, GARBAGE or STALLED."""


class Call:
    """A handle on one request under way. After `cancel` the sink hears nothing more."""

    __deletable__ = ("sink",)  # as mypyc wants it said
    __slots__ = (
        "_client",
        "_ended",
        "_paused",
        "_within_s",
        "body",
        "close_delimited",
        "connection",
        "deadline_at",
        "dialling",
        "head",
        "heard",
        "patience_s",
        "reusable",
        "sent",
        "sink",
        "stale_until",
    )

    def __init__(self, client: Client, head: bytes, body: bytes, sink: ResponseSink) -> None:
        self.reusable = True
        """Set False to forbid that the connection is used again after this call."""
        self.close_delimited = False
        """True if the answer has no framing of its own and ends where the connection does."""
        self._client = client
        self._ended = False
        self._paused = False
        self._within_s = inf
        # The connection's and the pool's own:
        self.connection: UpstreamConnection | None = None
        self.head = head
        self.body = body
        self.sink = sink
        self.sent = False  # to a connection, which may have carried it to the engine
        self.stale_until = -inf  # a break until then is the fault of a reused connection
        self.patience_s = inf  # how long it may be silent from each read on
        self.deadline_at = inf
        self.heard = False  # something was read since the sweeper looked last: it puts the deadline off
        self.dialling: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """Close the engine's connection at once, so that it stops; idempotent."""
        if not self._ended:
            self._end()

    def pause(self) -> None:
        """Read no more for now; the engine's writes will stall. The stall deadline does not run."""
        if not self._paused and not self._ended:
            self._paused = True
            self.patience_s = self.deadline_at = inf
            if self.connection is not None:
                self.connection.pause()

    def resume(self) -> None:
        """Read on."""
        if self._paused and not self._ended:
            self._paused = False
            self.expect_within(self._within_s)
            if self.connection is not None:
                self.connection.resume()

    def expect_within(self, seconds: float | None) -> None:
        """Fail with STALLED unless a byte comes within `seconds`, now and after each read; None: never."""
        self._within_s = inf if seconds is None else seconds
        if not self._paused and not self._ended:
            self.patience_s = self._within_s
            self.deadline_at = self._client.now() + self.patience_s

    # -- told by the connection ----------------------------------------------------------------------

    def attach(self, connection: UpstreamConnection) -> bool:
        """Ride on this connection; False if the call has ended meanwhile."""
        if self._ended:
            return False
        self.connection = connection
        if self._paused:
            connection.pause()
        return True

    def replay(self) -> None:
        """Begin again on a new connection."""
        self.connection = None
        self.stale_until = -inf
        self._client.dial(self)

    def complete(self) -> None:
        """The answer has ended and its connection has been let go."""
        if not self._ended:
            sink = self.sink
            self.connection = None
            self._end()
            sink.on_end()

    def fail(self, kind: FailureKind, detail: str) -> None:
        """Nothing more will come; the connection, if any, is closed."""
        if not self._ended:
            sink = self.sink
            self._end()
            sink.on_failure(kind, detail)

    def _end(self) -> None:
        self._ended = True
        self.deadline_at = inf
        del self.sink  # which usually holds the call: a cycle, if it were kept
        self._client.calls.discard(self)
        connection = self.connection
        self.connection = None
        if connection is not None:
            connection.drop()
        if self.dialling is not None:
            self.dialling.cancel()
            self.dialling = None
