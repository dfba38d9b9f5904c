"""What a request costs stays the same, however large the fleet, the crowd, the answer or the queue.

Counted in lines of Python executed, which are the same on each machine; `benchmarks/` measures seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import msgspec
import pytest

from tests.sim.build import SLOW, ask, fleet, replica
from tidegate.policy.settings import GateSettings, HealthSettings, QueueSettings
from tidegate.sim.profiles import Profile
from tidegate.sim.run import simulate
from tidegate.sim.scenario import Scenario
from tidegate.workload.requests import OpenLoop, PlannedRequest

LARGE = Profile(
    curve=SLOW.curve,
    replica=msgspec.structs.replace(SLOW.replica, max_num_seqs=32, kv_tokens=10**9, max_batched_tokens=2**17),
)


def lines_of(run: Callable[[], object]) -> int:
    """Lines of Python that it executes."""
    count = 0

    def trace(frame: FrameType, kind: str, arg: Any) -> Any:
        nonlocal count
        count += kind == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def cost(scenario: Scenario, work: list[PlannedRequest]) -> float:
    """Lines per request."""
    return lines_of(lambda: simulate(scenario, OpenLoop(work), 1, on_record=lambda _: None)) / len(work)


def of_replicas(replicas: int, *, full: bool) -> float:
    """Each serves ten requests that come evenly; `full` gives them room for half of what comes."""
    scenario = fleet(
        *(replica(f"r{index}", LARGE) for index in range(replicas)),
        pool={
            "gate": GateSettings(max_concurrency=2 if full else None),
            "health": HealthSettings(interval_s=20.0),
            "queue": QueueSettings(max_requests=10**6),
        },
    )
    work = [ask(5.0 + index * 5.0 / replicas, 20, tenant=f"t{index % 10}") for index in range(10 * replicas)]
    return cost(scenario, work)


def of_tenants(tenants: int) -> float:
    """Requests of so many tenants in turn, most of which wait."""
    scenario = fleet(replica("r0", LARGE), pool={"queue": QueueSettings(max_requests=10**6)})
    return cost(scenario, [ask(index / 10, 20, tenant=f"t{index % tenants}") for index in range(2_000)])


def of_tokens(output_tokens: int) -> float:
    """Answers of so many tokens, as many at a time."""
    work = [ask(index * output_tokens / 16, output_tokens) for index in range(300)]
    return cost(fleet(replica("r0", LARGE)), work)


def of_queue(waiting: int) -> float:
    """So many come at once, and nearly all wait."""
    scenario = fleet(replica("r0", LARGE), pool={"queue": QueueSettings(max_requests=10**6, max_tokens=1e12)})
    return cost(scenario, [ask(index * 1e-6, 20, tenant=f"t{index % 10}") for index in range(waiting)])


@pytest.mark.parametrize(
    ("small", "large", "most"),
    [
        pytest.param(
            lambda: of_replicas(4, full=False), lambda: of_replicas(200, full=False), 1.15, id="replicas"
        ),
        pytest.param(lambda: of_replicas(4, full=True), lambda: of_replicas(200, full=True), 1.15, id="full"),
        pytest.param(lambda: of_tenants(2), lambda: of_tenants(1_000), 1.1, id="tenants"),
        pytest.param(lambda: of_tokens(100), lambda: of_tokens(4_000), 1.2, id="tokens"),
        pytest.param(lambda: of_queue(200), lambda: of_queue(4_000), 1.4, id="queue"),
    ],
)
def test_a_request_costs_the_same(
    small: Callable[[], float], large: Callable[[], float], most: float
) -> None:
    """At most so much more where there is twenty to five hundred times as much of it."""
    assert large() <= most * small()
