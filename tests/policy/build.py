"""How does a policy test say, in one line, a request, a governor, and what happens to it?"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

import pytest

from tidegate.core.messages import (
    Arrived,
    Command,
    Dispatch,
    Event,
    Evict,
    Failed,
    FailureKind,
    Probe,
    Probed,
    Reject,
    ReplicaAdded,
)
from tidegate.core.request import Request, Usage
from tidegate.policy.governor import Governor
from tidegate.policy.settings import (
    ClassSettings,
    Deadlines,
    GovernorSettings,
    HealthSettings,
    PoolSettings,
    PredictionSettings,
)

QUIET = HealthSettings(interval_s=1e9)
"""No probe comes between the commands that a test is about."""

PATIENT = {"default": ClassSettings(max_wait_s=1_000.0)}
"""Classes that let a request wait for as long as a test may take."""

LENIENT = Deadlines(ttft_s=1e6, total_s=1e6)
"""Deadlines that no test meets by accident."""

BUDGETS = {"deadlines": Deadlines(ttft_s=10.0, total_s=20.0)}
"""Of a pool whose deadlines the test is about."""

C = TypeVar("C")

approx: Callable[..., Any] = pytest.approx
"""Typed so that it may stand anywhere in a value, as within a tuple."""

EXACT = PredictionSettings(bytes_per_token=1.0, output_tokens=10.0)
"""A byte is a token, and every output is thought to be ten: sizes in tests can be read off."""


def ask(request_id: int, **fields: Any) -> Request:
    """A request of ten prompt tokens (under EXACT) of tenant `a`."""
    values: dict[str, Any] = {"model": "m", "tenant": "a", "key": "k", "priority": "default"}
    return Request(**(values | {"request_id": request_id, "prompt_bytes": 10} | fields))


def used(prompt_tokens: int, output_tokens: int, cached_tokens: int = 0) -> Usage:
    """What an engine reports."""
    return Usage(prompt_tokens=prompt_tokens, output_tokens=output_tokens, cached_tokens=cached_tokens)


def govern(
    replicas: int = 1, concurrency: int | None = 1, pool: dict[str, Any] | None = None, **settings: Any
) -> Governor:
    """A governor of one pool `m` with replicas `r0`, `r1`, … that joined at 0 and were probed."""
    pools = {"m": PoolSettings(**({"prediction": EXACT, "health": QUIET} | (pool or {})))}
    governor = Governor(GovernorSettings(**({"pools": pools} | settings)), Random(1))
    commands: list[Command] = []
    for index in range(replicas):
        joined = ReplicaAdded(pool="m", replica=f"r{index}", max_concurrency=concurrency)
        commands += governor.handle(joined, 0.0)
    for command in commands + governor.on_wakeup(0.0):
        assert isinstance(command, Probe)
        governor.handle(Probed(replica=command.replica, ok=True), 0.0)
    return governor


def only(commands: list[Command], kind: type[C]) -> C:
    """The one command there is, which must be of that kind."""
    assert [type(each) for each in commands] == [kind], commands
    (command,) = commands
    assert isinstance(command, kind)
    return command


def of(commands: list[Command], kind: type[C]) -> list[C]:
    """The commands of that kind, in order."""
    return [each for each in commands if isinstance(each, kind)]


def refusals(commands: list[Command]) -> list[tuple[int, str]]:
    """Who was refused and why, in order."""
    return [(each.request_id, each.reason.name) for each in commands if isinstance(each, Reject | Evict)]


def sent(commands: list[Command]) -> list[tuple[int, int, str]]:
    """Request, attempt and replica of each dispatch, in order."""
    return [(each.request_id, each.attempt, each.replica) for each in commands if isinstance(each, Dispatch)]


def tell(governor: Governor, now: float, *events: Event) -> list[Command]:
    """Several events at one instant, the invariants asserted after each."""
    out: list[Command] = []
    for event in events:
        out += governor.handle(event, now)
        governor.check()
    return out


def wake(governor: Governor, until: float, alive: bool = True) -> list[tuple[float, Command]]:
    """Let all wake-ups up to that instant pass, probes answered at once; what was commanded when."""
    out: list[tuple[float, Command]] = []
    while (now := governor.next_wakeup()) <= until:
        for command in governor.on_wakeup(now):
            if isinstance(command, Probe):
                governor.handle(Probed(replica=command.replica, ok=alive), now)
            else:
                out.append((now, command))
        governor.check()
    return out


def arrive(governor: Governor, now: float, request_id: int, **fields: Any) -> list[Command]:
    return tell(governor, now, Arrived(ask(request_id, **fields)))


def failed(request_id: int, kind: FailureKind, attempt: int = 1, **fields: Any) -> Failed:
    return Failed(request_id, attempt, kind, **fields)


def ended(governor: Governor) -> list[tuple[int, str, float]]:
    """Who has ended since the last time, how, and at what charge."""
    return [
        (record.request_id, record.reason.name if record.reason else "OK", record.charged_credits)
        for record in governor.take_ended()
    ]
