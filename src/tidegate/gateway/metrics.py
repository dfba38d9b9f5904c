"""What has the gateway done, in Prometheus' terms?

Every figure comes from the `RequestRecord` that the governor writes at each ending, or is read from the
governor at the scrape; nothing is counted twice in two places. Observing one record costs a few
dictionary look-ups: samples are made only when somebody scrapes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate import __version__
from tidegate.core.reasons import Reason
from tidegate.core.records import Budgets, RequestRecord
from tidegate.policy.governor import Governor

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
TPOT_SECONDS = (0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.5, 1.0)


class Histogram:
    """Counts by bucket and label values."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.series: dict[tuple[str, ...], list[float]] = {}  # counts by bucket, the overflow, then the sum

    def observe(self, labels: tuple[str, ...], value: float) -> None:
        """Count one value."""
        counts = self.series.get(labels)
        if counts is None:
            counts = self.series[labels] = [0.0] * (len(self.bounds) + 2)
        counts[bisect_left(self.bounds, value)] += 1
        counts[-1] += value

    def family(self, name: str, documentation: str, labels: tuple[str, ...]) -> HistogramMetricFamily:
        """As Prometheus wants it: cumulative."""
        family = HistogramMetricFamily(name, documentation, labels=labels)
        for values, counts in self.series.items():
            running, buckets = 0.0, []
            for bound, count in zip((*map(str, self.bounds), "+Inf"), counts, strict=False):
                running += count
                buckets.append((bound, running))
            family.add_metric(values, buckets, counts[-1])
        return family


class Metrics(Collector):
    """Counts what ends, and shows the governor's state."""

    def __init__(self, governor: Governor, now: Callable[[], float], budgets: dict[str, Budgets]) -> None:
        self._governor = governor
        self._now = now
        self._budgets = budgets
        self._ttft = Histogram(SECONDS)
        self._tpot = Histogram(TPOT_SECONDS)
        self._e2e = Histogram(SECONDS)
        self._queued = Histogram(SECONDS)
        self._requests: defaultdict[tuple[str, ...], float] = defaultdict(float)
        self._refusals: defaultdict[tuple[str, ...], float] = defaultdict(float)
        self._tokens: defaultdict[tuple[str, ...], float] = defaultdict(float)
        self._budget: defaultdict[tuple[str, ...], float] = defaultdict(float)
        self._retries: defaultdict[tuple[str, ...], float] = defaultdict(float)
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def page(self) -> bytes:
        """The whole exposition."""
        return generate_latest(self.registry)

    def observe(self, record: RequestRecord) -> None:
        """A request has ended."""
        where = (record.pool, record.priority)
        reason = record.reason
        self._requests[record.pool, record.priority, record.tenant, str(record.status)] += 1
        if reason is not None:
            self._refusals[reason.value, record.pool, record.tenant] += 1
        if record.dispatched_at is not None:
            self._queued.observe(where, record.dispatched_at - record.arrived_at)
            self._tokens[record.pool, record.tenant, "input"] += record.prompt_tokens
            self._tokens[record.pool, record.tenant, "output"] += record.output_tokens
            self._tokens[record.pool, record.tenant, "cached_input"] += record.cached_tokens
            if record.attempts > 1:
                self._retries[record.pool,] += record.attempts - 1
            if reason is not Reason.CLIENT_GONE:
                self._e2e.observe(where, record.ended_at - record.arrived_at)
            if (ttft_s := record.ttft_s) is not None:
                self._ttft.observe(where, ttft_s)
            if (tpot_s := record.tpot_s) is not None:
                self._tpot.observe(where, tpot_s)
        budgets = self._budgets.get(record.priority)
        if budgets is not None and reason is not Reason.CLIENT_GONE:
            self._budget[(*where, "held" if budgets.held_by(record) else "missed")] += 1

    def refused(self, reason: Reason, tenant: str) -> None:
        """A request was refused before the governor saw it."""
        self._refusals[reason.value, "", tenant] += 1

    # -- the scrape -------------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        """Every family."""
        where = ("pool", "class")
        yield self._ttft.family(
            "tidegate_time_to_first_token_seconds",
            "Arrival at the gateway to the first token, streams.",
            where,
        )
        yield self._tpot.family(
            "tidegate_time_per_output_token_seconds", "(E2E - TTFT) / (output tokens - 1), streams.", where
        )
        yield self._e2e.family(
            "tidegate_e2e_request_latency_seconds", "Arrival to the end of what was dispatched.", where
        )
        yield self._queued.family(
            "tidegate_request_queue_time_seconds", "Arrival to the last dispatch.", where
        )
        yield _counter(
            "tidegate_requests",
            "Requests ended, by the status that the client got.",
            ("pool", "class", "tenant", "status"),
            self._requests,
        )
        yield _counter(
            "tidegate_refusals",
            "Requests refused, cut or left, by reason.",
            ("reason", "pool", "tenant"),
            self._refusals,
        )
        yield _counter("tidegate_tokens", "LLM tokens settled.", ("pool", "tenant", "type"), self._tokens)
        yield _counter("tidegate_retries", "Attempts after the first.", ("pool",), self._retries)
        yield _counter(
            "tidegate_budget_requests",
            "Requests that held, or missed, the latency budgets of their class.",
            ("pool", "class", "outcome"),
            self._budget,
        )
        yield from self._pools()
        yield from self._replicas()
        build = GaugeMetricFamily("tidegate_build_info", "Version of this gateway.", labels=("version",))
        build.add_metric((__version__,), 1)
        yield build

    def _pools(self) -> Iterator[Metric]:
        requests = _gauge("tidegate_queue_requests", "Requests that wait.", ("pool", "class"))
        tokens = _gauge("tidegate_queue_tokens", "Estimated tokens that wait.", ("pool", "class"))
        pressure = _gauge(
            "tidegate_pool_pressure_ratio", "How near the queue is to refusing, 0..1.", ("pool",)
        )
        drain = _gauge("tidegate_drain_tokens_per_second", "How fast the queue is worked off.", ("pool",))
        steps = _gauge("tidegate_degradation_active", "1 while the step is taken.", ("pool", "step"))
        for name, pool in self._governor.pools.items():
            for lane in pool.queue.lanes:
                requests.add_metric((name, lane.name), lane.requests)
                tokens.add_metric((name, lane.name), lane.tokens)
            pressure.add_metric((name,), pool.pressure())
            drain.add_metric((name,), pool.drain.tokens_per_s)
            for step in pool.ladder.names():
                steps.add_metric((name, step), 1)
        yield from (requests, tokens, pressure, drain, steps)

    def _replicas(self) -> Iterator[Metric]:
        labels = ("pool", "replica")
        in_flight = _gauge("tidegate_replica_in_flight", "Attempts that run on it.", labels)
        kv = _gauge("tidegate_replica_kv_held_tokens", "KV tokens reserved on it.", labels)
        up = _gauge("tidegate_replica_available", "1 while it is in the set.", labels)
        state = _gauge("tidegate_replica_state", "1 for the state that it is in.", (*labels, "state"))
        now = self._now()
        for name, member in self._governor.members.items():
            values = (member.pool.name, name)
            in_flight.add_metric(values, member.replica.in_flight)
            kv.add_metric(values, member.replica.kv_held)
            up.add_metric(values, float(member.available(now)))
            state.add_metric((*values, member.state(now)), 1)
        live = GaugeMetricFamily("tidegate_in_flight_requests", "Requests arrived and not ended.")
        live.add_metric((), self._governor.live)
        yield from (in_flight, kv, up, state, live)


def _counter(
    name: str, documentation: str, labels: tuple[str, ...], values: dict[tuple[str, ...], float]
) -> CounterMetricFamily:
    family = CounterMetricFamily(name, documentation, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _gauge(name: str, documentation: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, documentation, labels=labels)
