"""What has the gateway done, in Prometheus' terms?

Every figure comes from the `RequestRecord` that the governor writes at each ending, or is read from the
governor at the scrape; nothing is counted twice in two places. Observing one record costs a few
dictionary look-ups: samples are made only when somebody scrapes.
"""

from __future__ import annotations

from bisect import bisect_left
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


HISTOGRAMS = (
    ("tidegate_time_to_first_token_seconds", "Arrival at the gateway to the first token; streams.", "ttft"),
    ("tidegate_time_per_output_token_seconds", "(E2E - TTFT) / (output tokens - 1); streams.", "tpot"),
    ("tidegate_e2e_request_latency_seconds", "Arrival to the end of what was dispatched.", "e2e"),
    ("tidegate_request_queue_time_seconds", "Arrival to the last dispatch.", "queued"),
)


class Histogram:
    """Counts by bucket, and the sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
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

    __slots__ = ("cached_input", "input", "output", "retries", "statuses")

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.input = self.output = self.cached_input = self.retries = 0


class Metrics(Collector):
    """Counts what ends, and shows the governor's state."""

    def __init__(self, governor: Governor, now: Callable[[], float], budgets: dict[str, Budgets]) -> None:
        self._governor = governor
        self._now = now
        self._budgets = budgets
        self._latencies: dict[tuple[str, str], Latencies] = {}  # by pool and class
        self._counts: dict[tuple[str, str, str], Counts] = {}  # by pool, class and tenant
        self._refusals: dict[tuple[str, str, str], int] = {}  # by reason, pool and tenant
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def page(self) -> bytes:
        """The whole exposition."""
        return generate_latest(self.registry)

    def observe(self, record: RequestRecord) -> None:
        """A request has ended."""
        pool, priority, reason = record.pool, record.priority, record.reason
        counts = self._counts.get((pool, priority, record.tenant))
        if counts is None:
            counts = self._counts[pool, priority, record.tenant] = Counts()
        counts.statuses[record.status] = counts.statuses.get(record.status, 0) + 1
        if reason is not None:
            self.refused(reason, record.tenant, pool)
        latencies = self._latencies.get((pool, priority))
        if latencies is None:
            latencies = self._latencies[pool, priority] = Latencies()
        if record.dispatched_at is not None:
            counts.input += record.prompt_tokens
            counts.output += record.output_tokens
            counts.cached_input += record.cached_tokens
            counts.retries += record.attempts - 1
            self._time(latencies, record)
        budgets = self._budgets.get(priority)
        if budgets is not None and reason is not Reason.CLIENT_GONE:
            if budgets.held_by(record):
                latencies.held += 1
            else:
                latencies.missed += 1

    @staticmethod
    def _time(latencies: Latencies, record: RequestRecord) -> None:
        assert record.dispatched_at is not None
        latencies.queued.observe(record.dispatched_at - record.arrived_at)
        if record.reason is not Reason.CLIENT_GONE:
            latencies.e2e.observe(record.ended_at - record.arrived_at)
        if record.first_token_at is not None:
            latencies.ttft.observe(record.first_token_at - record.arrived_at)
            if (tpot_s := record.tpot_s) is not None:
                latencies.tpot.observe(tpot_s)

    def refused(self, reason: Reason, tenant: str, pool: str = "") -> None:
        """A request was refused, by the governor or before it saw the request."""
        key = (reason.value, pool, tenant)
        self._refusals[key] = self._refusals.get(key, 0) + 1

    # -- the scrape -------------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        """Every family."""
        for name, documentation, attribute in HISTOGRAMS:
            histograms = HistogramMetricFamily(name, documentation, labels=("pool", "class"))
            for where, latencies in self._latencies.items():
                histogram: Histogram = getattr(latencies, attribute)
                histograms.add_metric(where, histogram.buckets(), histogram.sum)
            yield histograms
        yield from self._totals()
        yield from self._pools()
        yield from self._replicas()
        build = GaugeMetricFamily("tidegate_build_info", "Version of this gateway.", labels=("version",))
        build.add_metric((__version__,), 1)
        yield build

    def _totals(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "tidegate_requests",
            "Requests ended, by the status that the client got.",
            labels=("pool", "class", "tenant", "status"),
        )
        tokens = CounterMetricFamily(
            "tidegate_tokens", "LLM tokens settled.", labels=("pool", "class", "tenant", "type")
        )
        retries = CounterMetricFamily(
            "tidegate_retries", "Attempts after the first.", labels=("pool", "class", "tenant")
        )
        for who, counts in self._counts.items():
            for status, count in counts.statuses.items():
                requests.add_metric((*who, str(status)), count)
            for kind in ("input", "output", "cached_input"):
                tokens.add_metric((*who, kind), getattr(counts, kind))
            retries.add_metric(who, counts.retries)
        refusals = CounterMetricFamily(
            "tidegate_refusals",
            "Requests refused, cut or left, by reason.",
            labels=("reason", "pool", "tenant"),
        )
        for key, count in self._refusals.items():
            refusals.add_metric(key, count)
        budgets = CounterMetricFamily(
            "tidegate_budget_requests",
            "Requests that held, or missed, the latency budgets of their class.",
            labels=("pool", "class", "outcome"),
        )
        for where, latencies in self._latencies.items():
            budgets.add_metric((*where, "held"), latencies.held)
            budgets.add_metric((*where, "missed"), latencies.missed)
        yield from (requests, tokens, retries, refusals, budgets)

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


def _gauge(name: str, documentation: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, documentation, labels=labels)
