"""What became of a request, and what do many of them say together?

The gateway and the bench fill the same record and summarise it with the same
code: figures from different tools can be compared because they cannot be measured differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import nan

import msgspec

from tidegate.core.reasons import Reason


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request, ended. Instants are seconds of the driver's monotonic clock; None: never reached."""

    request_id: int
    tenant: str
    key: str = ""
    priority: str
    pool: str
    replica: str = ""
    attempts: int = 0
    arrived_at: float
    dispatched_at: float | None = None
    first_token_at: float | None = None
    ended_at: float
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    charged_credits: float = 0.0
    """Credits settled in the tightest token limit's weights; 0 when nothing was dispatched."""
    reason: Reason | None = None
    """None: the engine's own answer was passed on."""
    status: int = 200

    @property
    def queued_s(self) -> float:
        """Arrival to the last dispatch; to the end for a request that was never dispatched."""
        return (self.ended_at if self.dispatched_at is None else self.dispatched_at) - self.arrived_at

    @property
    def ttft_s(self) -> float | None:
        """Time to first token, from arrival at the gateway."""
        return None if self.first_token_at is None else self.first_token_at - self.arrived_at

    @property
    def e2e_s(self) -> float:
        """Arrival to the end, whatever the end was."""
        return self.ended_at - self.arrived_at

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first: (E2E - TTFT) / (output tokens - 1)."""
        if self.first_token_at is None or self.output_tokens < 2:
            return None
        return (self.ended_at - self.first_token_at) / (self.output_tokens - 1)

    @property
    def ok(self) -> bool:
        """Answered by an engine with a 2xx, to its natural end."""
        return self.reason is None and 200 <= self.status < 300


ROUNDING = 1 + 1e-9
"""Instants are sums of steps: a latency that is a budget to the digit is not above it."""


class Budgets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Latency objectives of a class, in seconds. They are measured against; deadlines are enforced.

    A budget applies where its figure exists: TTFT to answers whose first token was seen, which a whole (not
    streamed) answer's never is, and TPOT to those of two tokens or more.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    def held_by(self, record: RequestRecord) -> bool:
        """True if the request succeeded, first of all, and within every budget that applies to it."""
        return (
            record.ok
            and (self.ttft_s is None or (ttft := record.ttft_s) is None or ttft <= self.ttft_s * ROUNDING)
            and (self.tpot_s is None or (tpot := record.tpot_s) is None or tpot <= self.tpot_s * ROUNDING)
            and (self.e2e_s is None or record.e2e_s <= self.e2e_s * ROUNDING)
        )


def percentile(ordered: Sequence[float], ratio: float) -> float:
    """Value at `ratio` (0..1) of an ascending sequence, linear between ranks; nan when empty.

    Source: Hyndman and Fan (1996), definition 7, which is also numpy's default.
    """
    if not ordered:
        return nan
    rank = ratio * (len(ordered) - 1)
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """A sample in five figures, in the unit of its values."""

    count: int
    mean: float
    p50: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Distribution:
        """Summarise `values`; every figure but `count` is nan when there are none."""
        ordered = sorted(values)
        count = len(ordered)
        return cls(
            count=count,
            mean=sum(ordered) / count if count else nan,
            p50=percentile(ordered, 0.50),
            p95=percentile(ordered, 0.95),
            p99=percentile(ordered, 0.99),
            max=ordered[-1] if ordered else nan,
        )


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a run looked like: latencies in seconds, rates per second of `span_s`."""

    requests: int
    ok: int
    span_s: float
    ttft_s: Distribution
    tpot_s: Distribution
    e2e_s: Distribution
    prompt_tokens: int
    output_tokens: int
    goodput_ratio: float
    """Requests that held every budget, over all requests, 0..1; nan when there were none."""
    goodput_per_s: float


def summarise(records: Sequence[RequestRecord], budgets: Budgets, span_s: float) -> Summary:
    """Summarise records over `span_s` seconds; latencies are of successful requests only."""
    good = [record for record in records if record.ok]
    held = sum(budgets.held_by(record) for record in good)
    return Summary(
        requests=len(records),
        ok=len(good),
        span_s=span_s,
        ttft_s=Distribution.of(t for r in good if (t := r.ttft_s) is not None),
        tpot_s=Distribution.of(t for r in good if (t := r.tpot_s) is not None),
        e2e_s=Distribution.of(r.e2e_s for r in good),
        prompt_tokens=sum(r.prompt_tokens for r in good),
        output_tokens=sum(r.output_tokens for r in good),
        goodput_ratio=held / len(records) if records else nan,
        goodput_per_s=held / span_s if span_s > 0 else nan,
    )
