"""How long does a request wait for one of several servers?

The classical forms, for what they are right about: a fixed number of slots that each serve one request at a
time, at a speed that does not depend on the others. A continuous batch is not that (see `batching`); a gate
of so many requests in front of it is, as long as the batch behind it stays full.

`Queue` is exact where theory is: the M/M/c queue in mean and percentile, the M/G/1 queue in the mean. Between
and beyond them stands the approximation of Allen and Cunneen; its mean and percentiles agree with both, and
with each other.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, inf, log, sqrt

import msgspec

from tidegate.core.errors import CallerError

FORGOTTEN = 9.0
"""Standard deviations of a Poisson count after which Erlang's recursion has lost its start: e^(-81/2)."""
CLOSE = 1e-12
"""Relative width at which a bisection ends."""


def erlang_b(servers: int, load: float) -> float:
    """The chance that an arrival is lost where nobody may wait (M/G/c/c); `load` in Erlang, any real number.

    By the recursion 1/B(k) = 1 + (k/load) / B(k - 1), which is stable, because all of its terms are positive.
    Below k = load a step shrinks the error of the one before it by k/load, so that it needs to begin only
    `FORGOTTEN` deviations below; above, 1/B soon is infinite and B is 0. Hence the cost grows as the root of
    the load. Source: Erlang (1917); Jagerman, Some properties of the Erlang loss function, BSTJ 53 (1974).
    """
    _check(servers >= 0 and servers == int(servers), f"servers must be a whole number from 0, not {servers}")
    _check(0 <= load < inf, f"load must be 0 or more and finite, not {load}")
    if load == 0:
        return 0.0 if servers else 1.0
    start = int(min(servers, load) - FORGOTTEN * sqrt(load) - FORGOTTEN)
    # Where so few servers meet so much load, the others are all busy: the fluid limit 1 - k/load.
    inverse = 1 / (1 - start / load) if start > 0 else 1.0
    for k in range(max(start, 0) + 1, servers + 1):
        inverse = 1 + k / load * inverse
        if inverse == inf:
            return 0.0
    return 1 / inverse


def erlang_c(servers: int, load: float) -> float:
    """The chance that an arrival has to wait (M/M/c); 1 where the load is no less than the servers.

    C = B / (1 - utilisation x (1 - B)). Source: Erlang (1917), in terms of his own B.
    """
    _check(servers >= 1, f"servers must be at least 1, not {servers}")
    lost = erlang_b(servers, load)
    return lost / (1 - load / servers * (1 - lost)) if load < servers else 1.0


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """First come, first served, by `servers` equal servers (G/G/c)."""

    servers: int
    rate_per_s: float
    """Of arrivals."""
    service_s: float
    """Of one request at one server, mean."""
    arrivals_cv2: float = 1.0
    """Squared coefficient of variation of the times between arrivals; 1: Poisson."""
    service_cv2: float = 1.0
    """Of the service times; 1: exponential, 0: all equal."""

    def __post_init__(self) -> None:
        """CallerError for what is no queue. More load than servers is one: its wait is infinite."""
        _check(self.servers >= 1, f"servers must be at least 1, not {self.servers}")
        _check(0 <= self.rate_per_s < inf, f"rate_per_s must be 0 or more and finite, not {self.rate_per_s}")
        _check(0 < self.service_s < inf, f"service_s must be above 0 and finite, not {self.service_s}")
        for name in ("arrivals_cv2", "service_cv2"):
            _check(0 <= getattr(self, name) < inf, f"{name} must be 0 or more and finite")

    @property
    def load(self) -> float:
        """Erlang: servers that would be busy, were there enough."""
        return self.rate_per_s * self.service_s

    @property
    def utilisation(self) -> float:
        """Load over servers; from 1 on the queue grows without end."""
        return self.load / self.servers

    @property
    def wait_probability(self) -> float:
        """The chance of having to wait at all, as in M/M/c."""
        return erlang_c(self.servers, self.load)

    @property
    def relief_per_s(self) -> float:
        """The rate at which a wait's tail decays: P(wait > t) = wait_probability x exp(-relief_per_s x t).

        2 (c mu - lambda) / (arrivals_cv2 + service_cv2): exact for M/M/c, and the exponent of heavy traffic
        for the others (Kingman 1962; Koellerstroem, Heavy traffic theory for queues with several servers,
        J. Appl. Prob. 11 (1974)).
        """
        spare = self.servers / self.service_s - self.rate_per_s
        variation = (self.arrivals_cv2 + self.service_cv2) / 2
        if spare <= 0:
            return 0.0
        return spare / variation if variation else inf

    @property
    def mean_wait_s(self) -> float:
        """Mean over all requests, those that do not wait among them.

        C / (c mu - lambda) x (arrivals_cv2 + service_cv2) / 2. Source: Allen, Probability, Statistics, and
        Queueing Theory (1990), there "Allen-Cunneen"; with one server and Poisson arrivals it is the exact
        one of Pollaczek and Khinchine, lambda E[S^2] / (2 (1 - utilisation)).
        """
        return self.wait_probability / relief if (relief := self.relief_per_s) else inf

    def wait_s(self, quantile: float) -> float:
        """The wait that a share `quantile` (0..1) of the requests stay within: ln(C / (1 - q)) / relief."""
        return _percentile(self.wait_probability, self.relief_per_s, quantile)


def servers_for_blocking(load: float, most_blocked: float) -> int:
    """The fewest servers that lose no more than the share `most_blocked` of the arrivals."""
    _check(0 < most_blocked < 1, f"most_blocked must be between 0 and 1, not {most_blocked}")
    return _fewest(lambda servers: erlang_b(servers, load) <= most_blocked, 0)


def load_for_blocking(servers: int, most_blocked: float) -> float:
    """The highest load, in Erlang, of which no more than the share `most_blocked` is lost."""
    _check(servers >= 1, f"servers must be at least 1, not {servers}")
    _check(0 < most_blocked < 1, f"most_blocked must be between 0 and 1, not {most_blocked}")
    # What is carried, load x (1 - B), is less than the servers.
    return _highest(lambda load: erlang_b(servers, load) <= most_blocked, servers / (1 - most_blocked))


def servers_for_wait(queue: Queue, quantile: float, most_wait_s: float) -> int:
    """The fewest servers with which that share of requests waits no longer; `queue.servers` is not read."""
    _check(0 <= most_wait_s < inf, f"most_wait_s must be 0 or more and finite, not {most_wait_s}")
    return _fewest(
        lambda servers: msgspec.structs.replace(queue, servers=servers).wait_s(quantile) <= most_wait_s,
        max(1, int(queue.load)),
    )


def rate_for_wait(queue: Queue, quantile: float, most_wait_s: float) -> float:
    """The highest rate at which that share of requests waits no longer; `queue.rate_per_s` is not read."""
    _check(0 <= most_wait_s < inf, f"most_wait_s must be 0 or more and finite, not {most_wait_s}")
    return _highest(
        lambda rate: msgspec.structs.replace(queue, rate_per_s=rate).wait_s(quantile) <= most_wait_s,
        queue.servers / queue.service_s,
    )


def survival(probability: float, relief_per_s: float, wait_s: float) -> float:
    """The chance of a wait above `wait_s` of 0 or more, where waits have an exponential tail."""
    return probability * exp(-relief_per_s * wait_s) if wait_s else probability


def _percentile(probability: float, relief_per_s: float, quantile: float) -> float:
    _check(0 <= quantile < 1, f"a quantile is from 0 to below 1, not {quantile}")
    if not relief_per_s:
        return inf
    above = probability / (1 - quantile)
    return log(above) / relief_per_s if above > 1 else 0.0


def _fewest(enough: Callable[[int], bool], least: int) -> int:
    """The smallest number from `least` on that is enough, of which every larger one is."""
    step, high = 1, least
    while not enough(high):
        least, high, step = high + 1, high + step, 2 * step
    while least < high:
        middle = (least + high) // 2
        if enough(middle):
            high = middle
        else:
            least = middle + 1
    return high


def _highest(bearable: Callable[[float], bool], most: float) -> float:
    """The largest number up to `most` that is bearable, of which every smaller one is."""
    low, high = 0.0, most
    while high - low > CLOSE * high:
        middle = (low + high) / 2
        if bearable(middle):
            low = middle
        else:
            high = middle
    return low


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise CallerError(otherwise)
