"""How does a test of the simulator say, in few words, a fleet, its work, and what was heard and said?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tidegate.core.curve import Linear
from tidegate.core.messages import Command, Event
from tidegate.core.records import RequestRecord
from tidegate.policy.governor import Governor
from tidegate.policy.pool import Pool
from tidegate.policy.settings import ClassSettings, Deadlines, GovernorSettings, HealthSettings, PoolSettings
from tidegate.sim.network import Network
from tidegate.sim.profiles import Profile
from tidegate.sim.run import Outcome, simulate
from tidegate.sim.scenario import ReplicaScenario, Scenario
from tidegate.sim.settings import ReplicaSettings
from tidegate.workload.requests import OpenLoop, PlannedRequest, Workload

SLOW = Profile(
    curve=Linear(a_s=1.0),
    replica=ReplicaSettings(
        max_num_seqs=4, max_batched_tokens=10_000, kv_tokens=100_000, context_tokens=10_000
    ),
)
"""Every step takes a second: a token a second, whatever else the replica does."""

NEAR = Network(delay_s=0.125)
"""A wire whose delays can be read off a record, and add up without rounding."""

QUIET = HealthSettings(interval_s=1e9)
"""One probe when it joins, and no further."""


def replica(name: str, profile: Profile = SLOW, **fields: Any) -> ReplicaScenario:
    """A replica of a token a second, there from the start."""
    return ReplicaScenario(name=name, profile=profile, **fields)


def fleet(
    *replicas: ReplicaScenario, pool: dict[str, Any] | None = None, governor: Any = None, **fields: Any
) -> Scenario:
    """One pool `m` of these replicas (`r0` by default), and one class whose requests wait for long."""
    lenient: dict[str, Any] = {"health": QUIET, "deadlines": Deadlines(ttft_s=1e6, total_s=1e6)}
    governed: dict[str, Any] = {
        "pools": {"m": PoolSettings(**(lenient | (pool or {})))},
        "classes": {"default": ClassSettings(max_wait_s=1e6)},
    }
    return Scenario(
        governor=GovernorSettings(**(governed | (governor or {}))),
        pools={"m": replicas or (replica("r0"),)},
        **({"network": NEAR} | fields),
    )


def ask(at_s: float, output_tokens: int = 3, prompt_tokens: int = 10, **fields: Any) -> PlannedRequest:
    """One request."""
    return PlannedRequest(at_s=at_s, prompt_tokens=prompt_tokens, output_tokens=output_tokens, **fields)


@dataclass
class Watched:
    """A governor whose invariants are asserted after each call, and whose every event and command is kept."""

    governor: Governor
    events: list[tuple[float, Event]] = field(default_factory=list)
    commands: list[tuple[float, Command]] = field(default_factory=list)

    @property
    def pools(self) -> dict[str, Pool]:
        """The governor's."""
        return self.governor.pools

    @property
    def ended(self) -> list[RequestRecord]:
        """The governor's."""
        return self.governor.ended

    def handle(self, event: Event, now: float) -> list[Command]:
        """As the governor."""
        self.events.append((now, event))
        return self._checked(self.governor.handle(event, now), now)

    def on_wakeup(self, now: float) -> list[Command]:
        """As the governor."""
        return self._checked(self.governor.on_wakeup(now), now)

    def next_wakeup(self) -> float:
        """As the governor."""
        return self.governor.next_wakeup()

    def take_ended(self) -> list[RequestRecord]:
        """As the governor."""
        return self.governor.take_ended()

    def check(self) -> None:
        """As the governor."""
        self.governor.check()

    def _checked(self, commands: list[Command], now: float) -> list[Command]:
        self.governor.check()
        self.commands += [(now, command) for command in commands]
        return commands


@dataclass
class Run:
    """What a simulation gave."""

    outcome: Outcome
    records: list[RequestRecord]
    """In order of arrival."""
    watched: Watched

    def heard(self, *kinds: type) -> list[tuple[float, Event]]:
        """Events of these kinds, and when the governor heard them."""
        return [(at, event) for at, event in self.watched.events if isinstance(event, kinds)]

    def said(self, *kinds: type) -> list[tuple[float, Command]]:
        """Commands of these kinds, and when the governor gave them."""
        return [(at, command) for at, command in self.watched.commands if isinstance(command, kinds)]


def run(
    scenario: Scenario,
    work: Workload | Iterable[PlannedRequest],
    seed: int = 1,
    *,
    watch: type[Watched] = Watched,
    **fields: Any,
) -> Run:
    """Simulate, with the governor watched."""
    watched: list[Watched] = []

    def govern(settings: GovernorSettings, dice: int) -> Watched:
        watched.append(watch(Governor(settings, Random(dice))))
        return watched[0]

    records: list[RequestRecord] = []
    workload = OpenLoop(list(work)) if isinstance(work, Iterable) else work
    outcome = simulate(scenario, workload, seed, on_record=records.append, govern=govern, **fields)
    return Run(outcome, sorted(records, key=lambda record: record.request_id), watched[0])
