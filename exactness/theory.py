"""What does queueing theory say exactly? Service takes 1 s in the mean: a load is a rate per server."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import log


def erlang_b(servers: int, offered: float) -> float:
    """Share of arrivals that find all servers taken and leave. Source: Erlang (1917), by recursion."""
    blocked = 1.0
    for taken in range(1, servers + 1):
        blocked = offered * blocked / (taken + offered * blocked)
    return blocked


def erlang_c(servers: int, offered: float) -> float:
    """Share of arrivals that must wait."""
    blocked = erlang_b(servers, offered)
    return blocked / (1 - offered / servers * (1 - blocked))


def mmc_wait(servers: int, load: float) -> float:
    """Mean time in the queue of M/M/c with `load` (0..1) per server."""
    return erlang_c(servers, servers * load) / (servers * (1 - load))


def mmc_wait_p99(servers: int, load: float) -> float:
    """Time in the queue that one in a hundred exceeds."""
    return mmc_wait_beyond(servers, load, 0.01)


def mmc_wait_beyond(servers: int, load: float, share: float) -> float:
    """Time in the queue that this share (0..1) of customers exceeds."""
    return max(0.0, log(erlang_c(servers, servers * load) / share) / (servers * (1 - load)))


def mg1_wait(load: float, cv2: float) -> float:
    """Mean time in the queue of M/G/1, by the squared coefficient of variation of its service.

    Source: Pollaczek (1930) and Khinchin (1932); `cv2` 0 is M/D/1, 1 is M/M/1.
    """
    return load * (1 + cv2) / (2 * (1 - load))


def refusals(servers: int, gaps: Sequence[float], services: Sequence[float]) -> list[bool]:
    """Which customers find all servers taken, where nobody waits."""
    now, found, free_at = 0.0, list[bool](), list[float]()
    for gap, service in zip(gaps, services, strict=True):
        now += gap
        while free_at and free_at[0] <= now:
            heappop(free_at)
        found.append(len(free_at) == servers)
        if len(free_at) < servers:
            heappush(free_at, now + service)
    return found


def waits(servers: int, gaps: Sequence[float], services: Sequence[float]) -> list[float]:
    """Of each customer of a first-come-first-served queue, by recursion.

    Source: Kiefer and Wolfowitz (1955).
    """
    now, found, free_at = 0.0, [], [0.0] * servers
    heapify(free_at)
    for gap, service in zip(gaps, services, strict=True):
        now += gap
        start = max(now, free_at[0])
        heapreplace(free_at, start + service)
        found.append(start - now)
    return found
