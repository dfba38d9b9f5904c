"""What happened, and what must be done about it?

Drivers tell the governor *events*; it answers with *commands*. Both are frozen values, so that a
tape of them can be recorded, replayed and compared. Each about an attempt carries `request_id` and
`attempt`: what a dead attempt still reports is ignored.

The driver owes exactly one terminal event (`Finished`, `Failed` or `Cancelled`) for each attempt
that the governor dispatched and did not itself `Abort`.

None of them refers to what could refer back to it, so the collector of cycles need not look at them
(`gc=False`): that is a tenth of what a simulated request costs.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tidegate.core.reasons import Reason
from tidegate.core.request import Request, Usage

FIRST_PROGRESS_TOKENS = 32
"""`Progressed` is told at so many output tokens, and at every doubling: the marks."""


def mark_above(tokens: float) -> int:
    """The first mark above so many output tokens, at least 0."""
    return FIRST_PROGRESS_TOKENS << (int(tokens) // FIRST_PROGRESS_TOKENS).bit_length()


class FailureKind(StrEnum):
    """How an attempt failed, as the driver saw it. What that means for health is policy's to say."""

    CONNECT = "connect"
    """No connection: refused, unreachable, TLS, or the connect deadline."""
    RESET = "reset"
    """The connection broke before the answer was complete."""
    SERVER_ERROR = "server_error"
    """A 5xx other than 503."""
    BUSY = "busy"
    """429 or 503: the engine's own back-pressure."""
    DENIED = "denied"
    """401 or 403: the replica does not accept the gateway's credential."""
    GARBAGE = "garbage"
    """Bytes that are not HTTP, or an event stream that is not what it says."""
    STALLED = "stalled"
    """No byte within the inter-token or write deadline."""


_KIND_OF_STATUS = {
    401: FailureKind.DENIED,
    403: FailureKind.DENIED,
    429: FailureKind.BUSY,
    503: FailureKind.BUSY,
}


def failure_of(status: int) -> FailureKind | None:
    """What an HTTP status says of the replica; None: it is an answer, if only to a wrong request."""
    return _KIND_OF_STATUS.get(status, FailureKind.SERVER_ERROR if status >= 500 else None)


# -- events: what happened ------------------------------------------------------------------------


class Arrived(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A request was read and authenticated."""

    request: Request


class FirstToken(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The first content, reasoning or tool delta of a stream; an answer that comes whole has none."""

    request_id: int
    attempt: int


class Progressed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """An attempt has produced `output_tokens` so far; told at doubling counts, not for each chunk."""

    request_id: int
    attempt: int
    output_tokens: int


class Finished(msgspec.Struct, frozen=True, tag=True, gc=False):
    """An attempt's answer is complete (2xx to 4xx), or was truncated as commanded.

    `usage` is the engine's total where it gave one; `output_tokens` is what the driver counted.
    """

    request_id: int
    attempt: int
    status: int = 200
    usage: Usage | None = None
    output_tokens: int = 0


class Failed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """An attempt failed. `committed` once a byte of it reached the client: then it cannot be retried."""

    request_id: int
    attempt: int
    kind: FailureKind
    committed: bool = False
    status: int = 0
    output_tokens: int = 0
    usage: Usage | None = None
    retry_after_s: float | None = None
    detail: str = ""
    """What the engine said of it, for the client's error message; printable and short."""


class Cancelled(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The client left; the driver has already stopped the engine. Ends the request in any state."""

    request_id: int
    output_tokens: int = 0
    usage: Usage | None = None


class Probed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A health probe that the governor commanded has come back."""

    replica: str
    ok: bool


class ReplicaSeen(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A scrape of the engine's own metrics. None where the engine does not tell."""

    replica: str
    running: int | None = None
    waiting: int | None = None
    kv_used_ratio: float | None = None
    kv_capacity_tokens: int | None = None
    slots: int | None = None
    context_tokens: int | None = None
    in_flight_before: int = 0
    """Attempts of ours that ran there when the scrape was asked for; some have ended since."""


class ReplicaAdded(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A replica joined a pool. `weight` is its share beside the others'; None: the pool's own gate."""

    pool: str
    replica: str
    weight: float = 1.0
    max_concurrency: int | None = None
    kv_capacity_tokens: int | None = None
    max_prefill_tokens: int | None = None


class ReplicaRemoved(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A replica is gone: nothing new goes there, attempts still open there are the driver's to end."""

    replica: str


class DrainAsked(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Send a replica nothing new (`drain`), or take it back into the set."""

    replica: str
    drain: bool = True


class ShutdownAsked(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Refuse what arrives, evict what waits, truncate what still runs after `grace_s`."""

    grace_s: float


Event = (
    Arrived
    | FirstToken
    | Progressed
    | Finished
    | Failed
    | Cancelled
    | Probed
    | ReplicaSeen
    | ReplicaAdded
    | ReplicaRemoved
    | DrainAsked
    | ShutdownAsked
)


# -- commands: what must be done ------------------------------------------------------------------


class Quota(msgspec.Struct, frozen=True, gc=False):
    """What is left of the tightest request and token limit, for `x-ratelimit-*`. None: no such limit."""

    limit_requests: int | None = None
    remaining_requests: int | None = None
    reset_requests_s: float | None = None
    limit_tokens: int | None = None
    remaining_tokens: int | None = None
    reset_tokens_s: float | None = None


class Dispatch(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Send attempt `attempt` of a request to `replica`."""

    request_id: int
    attempt: int
    replica: str
    pool: str
    """Differs from the model asked for when a fallback was taken."""
    max_tokens: int | None = None
    """Write this bound per choice into the body; None leaves the body's own."""
    degraded: tuple[str, ...] = ()
    """Degradation steps that touched this request, for the response header."""
    progress_from_tokens: int = FIRST_PROGRESS_TOKENS
    """The first mark at which `Progressed` says anything: before it, no more came than is reserved."""
    queued_s: float = 0.0
    quota: Quota | None = None


class Reject(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Refuse a request that never waited."""

    request_id: int
    reason: Reason
    detail: str = ""
    retry_after_s: float | None = None
    quota: Quota | None = None


class Evict(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Refuse a request that had been queued or tried, and got no answer that can be passed on."""

    request_id: int
    reason: Reason
    detail: str = ""
    retry_after_s: float | None = None
    quota: Quota | None = None
    final: bool = False
    """It has been retried here, or the retry budget forbade it: a client's retries would multiply ours."""


class Truncate(msgspec.Struct, frozen=True, tag=True, gc=False):
    """End an answer under way, well-formed at an event boundary, and stop the engine.

    The driver still owes `Finished`, with what was produced.
    """

    request_id: int
    attempt: int
    reason: Reason


class Abort(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Stop an attempt that has produced nothing for the client. Ends its hold; nothing is owed."""

    request_id: int
    attempt: int


class Probe(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Ask a replica for its health and answer with `Probed`."""

    replica: str


Command = Dispatch | Reject | Evict | Truncate | Abort | Probe
