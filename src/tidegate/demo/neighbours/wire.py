"""How long is the way from a gateway to an engine and back, on this machine, at this time?

A first token goes three ways: its request travels to the engine, a timer says that the step is over, the
token travels back. A health check that a timer sets off goes the same three, through the same event loop and
the same sockets. What a simulation is told of the wire is measured so, and not fitted to any result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import cycle
from time import monotonic

from tidegate.core.records import percentile
from tidegate.net.client import Client
from tidegate.sim.network import Network

HOST = "127.0.0.1"
EVERY_S = 0.1
QUICK = 0.1
"""A trip at this rank met nothing on its way."""


async def time_round_trips(ports: Sequence[int], trips_s: list[float]) -> None:
    """Until cancelled, add how long after the instant at which each check was due its answer came."""
    clients = [Client(HOST, port) for port in ports]
    due_at = monotonic()
    try:
        for client in cycle(clients):
            due_at = max(due_at + EVERY_S, monotonic())
            await asyncio.sleep(due_at - monotonic())
            await client.request("GET", "/health", [])
            trips_s.append(monotonic() - due_at)
    finally:
        for client in clients:
            await client.close()


def network_of(trips_s: Sequence[float]) -> Network:
    """A wire whose quick trips are as quick as these, and whose average trip takes as long as these did."""
    quick_s = max(0.0, percentile(sorted(trips_s), QUICK)) if trips_s else 0.0
    mean_s = sum(trips_s) / len(trips_s) if trips_s else 0.0
    return Network(delay_s=quick_s / 2, jitter_s=max(0.0, mean_s - quick_s))
