"""What has the gateway done, in Prometheus' terms?

Every figure comes from the tally of what has ended (`tallies`), or is read from the governor at the scrape;
nothing is counted twice in two places. Samples are made only when somebody scrapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate import __version__
from tidegate.gateway.tallies import Histogram, RequestTally
from tidegate.policy.governor import Governor

HISTOGRAMS = (
    ("tidegate_time_to_first_token_seconds", "Arrival at the gateway to the first token; streams.", "ttft"),
    ("tidegate_time_per_output_token_seconds", "(E2E - TTFT) / (output tokens - 1); streams.", "tpot"),
    ("tidegate_e2e_request_latency_seconds", "Arrival to the end of what was dispatched.", "e2e"),
    ("tidegate_request_queue_time_seconds", "Arrival to the last dispatch.", "queued"),
)


class Metrics(Collector):
    """Shows what has ended, and the governor's state."""

    def __init__(self, governor: Governor, tally: RequestTally, now: Callable[[], float]) -> None:
        self._governor = governor
        self._tally = tally
        self._now = now
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def page(self) -> bytes:
        """The whole exposition."""
        return generate_latest(self.registry)

    # -- the scrape -------------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        """Every family."""
        for name, documentation, attribute in HISTOGRAMS:
            histograms = HistogramMetricFamily(name, documentation, labels=("pool", "class"))
            for where, latencies in self._tally.latencies.items():
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
        for who, counts in self._tally.counts.items():
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
        for key, count in self._tally.refusals.items():
            refusals.add_metric(key, count)
        budgets = CounterMetricFamily(
            "tidegate_budget_requests",
            "Requests that held, or missed, the latency budgets of their class.",
            labels=("pool", "class", "outcome"),
        )
        for where, latencies in self._tally.latencies.items():
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
