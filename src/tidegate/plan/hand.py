"""What does a replica do of which only its throughput and its pace are known?

The places in its batch are taken for the servers of a queue, M/M/c, each serving one request at a time in
`output tokens x TPOT` seconds: right as long as the pace does not depend on the batch, which two figures
cannot tell.
"""

from __future__ import annotations

from math import floor

from tidegate.core.units import format_duration, format_number
from tidegate.plan.answer import Gates, Impossible, Percentiles, Room, Wait
from tidegate.plan.ask import HandFigures, Load, Terms
from tidegate.plan.ceilings import highest
from tidegate.plan.laws.queues import Queue, survival
from tidegate.plan.room import burst_room, lost_room, queue_room
from tidegate.plan.station import SHOWN, Bound, ClassLatencies, Latencies
from tidegate.plan.tenants import of_class

BISECTIONS = 50


class HandStation:
    """A replica of which two figures are known."""

    def __init__(self, figures: HandFigures, load: Load, terms: Terms) -> None:
        self._figures, self._load, self._terms = figures, load, terms
        # As 2000 x 0.02 is 40 and not 39.999...
        self._places = floor(figures.tokens_per_s * figures.tpot_s * (1 + 1e-9))
        self._service_s = load.output_tokens * figures.tpot_s

    @property
    def gates(self) -> Gates:
        """Only the pace bounds."""
        return Gates(tpot=self._places)

    @property
    def sustained_per_s(self) -> float:
        """Places over the time that a request holds one."""
        return self._places / self._service_s

    @property
    def full_tpot_s(self) -> float:
        """The pace."""
        return self._figures.tpot_s

    @property
    def decode_steps(self) -> float:
        """Each output token takes a step: nothing is known of prompts."""
        return self._load.output_tokens

    def completed_per_s(self, inside: int) -> float:
        """As many servers as there are requests."""
        return inside / self._service_s

    def tpot_s(self, inside: int) -> float:
        """The pace, whatever the batch."""
        return self._figures.tpot_s

    @property
    def bound(self) -> Bound:
        """The pace, and what it was computed from."""
        figures = self._figures
        pace = f"{format_number(1 / figures.tpot_s)} tokens/s (TPOT {format_duration(figures.tpot_s, 3)})"
        return Bound(
            binding="latency_budget",
            because=(
                f"The pace binds: {format_number(figures.tokens_per_s)} tokens/s at {pace} each are "
                f"{self._places} requests at once; each takes {format_duration(self._service_s, 3)}, so a "
                f"replica sustains {format_number(self.sustained_per_s)} requests/s."
            ),
        )

    def within(self, terms: Terms, rate_per_s: float, replicas: int) -> bool:
        """See `Station`."""
        found = self.latencies(rate_per_s, replicas)
        return found is not None and found.within(terms)

    def latencies(self, rate_per_s: float, replicas: int) -> Latencies | None:
        """Waits by M/M/c; the rest is the pace. The prompt's own time is not known, and not in it."""
        queue = self._queue(rate_per_s, replicas)
        if queue.utilisation >= 1:
            return None
        wait_s = Percentiles(
            mean=queue.mean_wait_s,
            p50=queue.wait_s(0.5),
            p95=queue.wait_s(0.95),
            p99=queue.wait_s(0.99),
            at_percentile=queue.wait_s(self._terms.percentile),
        )
        tpot_s = self._figures.tpot_s
        return Latencies(
            wait_s=wait_s,
            ttft_s=wait_s.plus(tpot_s),
            tpot_s=Percentiles.of(tpot_s),
            e2e_s=self._e2e(queue, self._load) if len(self._load.kinds) > 1 else wait_s.plus(self._service_s),
            classes=tuple(self._of_class(queue, wait_s, each.name) for each in self._terms.classes),
        )

    def _of_class(self, queue: Queue, wait_s: Percentiles, name: str) -> ClassLatencies:
        tpot_s = self._figures.tpot_s
        return ClassLatencies(
            name=name,
            ttft_s=wait_s.plus(tpot_s),
            tpot_s=Percentiles.of(tpot_s),
            e2e_s=self._e2e(queue, of_class(self._load, name)),
        )

    def _e2e(self, queue: Queue, load: Load) -> Percentiles:
        return Percentiles(
            mean=queue.mean_wait_s + load.output_tokens * self._figures.tpot_s,
            p50=self._e2e_s(queue, load, 0.5),
            p95=self._e2e_s(queue, load, 0.95),
            p99=self._e2e_s(queue, load, 0.99),
            at_percentile=self._e2e_s(queue, load, self._terms.percentile),
        )

    def _e2e_s(self, queue: Queue, load: Load, quantile: float) -> float:
        """That a share of these requests stays within: a wait, and then an output of any length."""
        weight = sum(kind.share for kind in load.kinds)
        services = [(kind.share / weight, kind.output_tokens * self._figures.tpot_s) for kind in load.kinds]

        waits, relief_per_s = queue.wait_probability, queue.relief_per_s

        def later(seconds: float) -> float:
            return sum(
                share * (1.0 if seconds < service_s else survival(waits, relief_per_s, seconds - service_s))
                for share, service_s in services
            )

        low, high = 0.0, max(service_s for _, service_s in services) + queue.wait_s(quantile)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if later(middle) > 1 - quantile + 1e-12 else (low, middle)
        return high

    def waits(self, replicas: int) -> tuple[Wait, ...]:
        """One queue for each replica, and one for all of them."""
        return tuple(self._wait(utilisation, replicas) for utilisation in SHOWN)

    def _wait(self, utilisation: float, replicas: int) -> Wait:
        quantile, each = self._terms.percentile, utilisation * self.sustained_per_s
        pooled_s = self._queue(each * replicas, replicas).wait_s(quantile)
        return Wait(
            utilisation=utilisation,
            isolated_s=self._queue(each, 1).wait_s(quantile),
            pooled_s=pooled_s,
            pooled_replicas=replicas,
            ttft_s=pooled_s + self._figures.tpot_s,
            tpot_s=self._figures.tpot_s,
        )

    def room(self, replicas: int, lost: int) -> tuple[Room, ...]:
        """The queue, bursts, a lost replica, and what is not known of the batch."""
        isolated, pooled = self._ceiling(1), self._ceiling(replicas - lost)
        return (
            queue_room(self._terms, isolated, pooled, replicas - lost),
            lost_room(pooled, replicas, lost),
            burst_room(self._load.peak_ratio),
            Room(
                reason="batch",
                utilisation=None,
                words="TPOT grows with it: two figures do not tell how much",
            ),
        )

    def _queue(self, rate_per_s: float, replicas: int) -> Queue:
        return Queue(
            servers=self._places * replicas,
            rate_per_s=rate_per_s,
            service_s=self._service_s,
            arrivals_cv2=self._load.gap_cv**2,
            service_cv2=self._load.output_cv**2 if len(self._load.kinds) > 1 else 1.0,
        )

    def _ceiling(self, replicas: int) -> float:
        """The utilisation up to which so many replicas hold every budget."""

        def held(utilisation: float) -> bool:
            found = self.latencies(utilisation * replicas * self.sustained_per_s, replicas)
            return found is not None and found.within(self._terms)

        return highest(held, 1.0)


def hand_station(figures: HandFigures, load: Load, terms: Terms) -> HandStation | Impossible:
    """The replica, unless it cannot serve one such request within the terms."""
    tpot_s, service_s = figures.tpot_s, load.output_tokens * figures.tpot_s
    if figures.tokens_per_s * tpot_s * (1 + 1e-9) < 1:
        return Impossible(
            problem=(
                f"{format_number(figures.tokens_per_s)} tokens/s are less than one request at a TPOT of "
                f"{format_duration(tpot_s, 3)} takes, {format_number(1 / tpot_s)} tokens/s"
            ),
            remedy=f"a TPOT of {format_duration(1 / figures.tokens_per_s, 3)} is what one request alone gets",
            binding="latency_budget",
            needed=1 / tpot_s,
            available=figures.tokens_per_s,
            unit="tokens_per_s",
        )
    e2e_s, ttft_s = terms.budgets.e2e_s, terms.budgets.ttft_s
    if e2e_s is not None and e2e_s < service_s:
        output = format_number(load.output_tokens)
        return Impossible(
            problem=(
                f"{output} output tokens at a TPOT of {format_duration(tpot_s, 3)} take "
                f"{format_duration(service_s, 3)}, more than the E2E budget of {format_duration(e2e_s, 3)}"
            ),
            remedy=(
                f"a TPOT of {format_duration(e2e_s / load.output_tokens, 3)}, {floor(e2e_s / tpot_s)} output "
                "tokens or a longer budget would fit"
            ),
            binding="latency_budget",
            needed=service_s,
            available=e2e_s,
            unit="s",
        )
    if ttft_s is not None and ttft_s < tpot_s:
        return Impossible(
            problem=(
                f"the TTFT budget of {format_duration(ttft_s, 3)} is below one step, "
                f"which takes the TPOT of {format_duration(tpot_s, 3)}"
            ),
            remedy=f"a TTFT budget of {format_duration(tpot_s, 3)} is the least, without the prompt's time",
            binding="latency_budget",
            needed=tpot_s,
            available=ttft_s,
            unit="s",
        )
    return HandStation(figures, load, terms)
