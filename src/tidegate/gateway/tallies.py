"""What has become of the requests, in sums? Counts and histograms that each ending is added to.

Everything comes from the `RequestRecord` that the governor writes at each ending; to add one costs a few
look-ups. `metrics` shows it.
"""

from __future__ import annotations

from typing import Final

from tidegate.core.reasons import Reason
from tidegate.core.records import Budgets, RequestRecord

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
TPOT_SECONDS = (0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.5, 1.0)

CLIENT_GONE: Final = Reason.CLIENT_GONE


class Histogram:
    """Counts by bucket, and the sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        index = 0
        for bound in self.bounds:
            if value <= bound:
                break
            index += 1
        self.counts[index] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus wants them: cumulative, by upper bound."""
        running, found = 0.0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            running += count
            found.append((bound, running))
        return found


class Latencies:
    """The histograms of one class in one pool."""

    __slots__ = ("e2e", "held", "missed", "queued", "tpot", "ttft")

    def __init__(self) -> None:
        self.ttft = Histogram(SECONDS)
        self.tpot = Histogram(TPOT_SECONDS)
        self.e2e = Histogram(SECONDS)
        self.queued = Histogram(SECONDS)
        self.held = self.missed = 0


class Counts:
    """What one tenant has had in one class of one pool."""

    __slots__ = ("cached_input", "input", "latencies", "output", "retries", "statuses")

    def __init__(self, latencies: Latencies) -> None:
        self.latencies = latencies
        """Of all tenants in that class and pool."""
        self.statuses: dict[int, int] = {}
        self.input = self.output = self.cached_input = self.retries = 0


class RequestTally:
    """Sums over all that has ended."""

    def __init__(self, budgets: dict[str, Budgets]) -> None:
        self.latencies: dict[tuple[str, str], Latencies] = {}
        """By pool and class."""
        self.counts: dict[tuple[str, str, str], Counts] = {}
        """By pool, class and tenant."""
        self.refusals: dict[tuple[str, str, str], int] = {}
        """By reason, pool and tenant."""
        self._budgets = budgets
        self._unbounded = {name for name, each in budgets.items() if each == Budgets()}
        """Classes whose requests need only succeed."""

    def observe(self, record: RequestRecord) -> None:
        """A request has ended."""
        pool, priority, reason, status = record.pool, record.priority, record.reason, record.status
        tenant = record.tenant
        counts = self.counts.get((pool, priority, tenant))
        if counts is None:
            counts = self.counts[pool, priority, tenant] = Counts(self._latencies(pool, priority))
        counts.statuses[status] = counts.statuses.get(status, 0) + 1
        if reason is not None:
            self.refused(reason, tenant, pool)
        latencies = counts.latencies
        if record.dispatched_at is not None:
            counts.input += record.prompt_tokens
            counts.output += record.output_tokens
            counts.cached_input += record.cached_tokens
            counts.retries += record.attempts - 1
            self._time(latencies, record)
        budgets = self._budgets.get(priority)
        if budgets is not None and reason is not CLIENT_GONE:
            held = reason is None and 200 <= status < 300  # `record.ok`, without the call of a property
            if held and priority not in self._unbounded:
                held = budgets.held_by(record)
            if held:
                latencies.held += 1
            else:
                latencies.missed += 1

    def _latencies(self, pool: str, priority: str) -> Latencies:
        found = self.latencies.get((pool, priority))
        if found is None:
            found = self.latencies[pool, priority] = Latencies()
        return found

    @staticmethod
    def _time(latencies: Latencies, record: RequestRecord) -> None:
        arrived_at, dispatched_at, first_token_at = (
            record.arrived_at,
            record.dispatched_at,
            record.first_token_at,
        )
        assert dispatched_at is not None
        latencies.queued.observe(dispatched_at - arrived_at)
        if record.reason is not CLIENT_GONE:
            latencies.e2e.observe(record.ended_at - arrived_at)
        if first_token_at is not None:
            latencies.ttft.observe(first_token_at - arrived_at)
            if (tpot_s := record.tpot_s) is not None:
                latencies.tpot.observe(tpot_s)

    def refused(self, reason: Reason, tenant: str, pool: str = "") -> None:
        """A request was refused, by the governor or before it saw the request."""
        key = (reason.value, pool, tenant)
        self.refusals[key] = self.refusals.get(key, 0) + 1
