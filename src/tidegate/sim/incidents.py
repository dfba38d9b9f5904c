"""Who comes, who goes and what breaks: a scenario's replicas and faults, put on the agenda."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import inf, prod

from tidegate.core.messages import DrainAsked, ReplicaAdded
from tidegate.policy.settings import GateSettings
from tidegate.sim.agenda import Agenda
from tidegate.sim.driver import Driver
from tidegate.sim.faults import Crash, Drain, Errors, Fault, Flap, Leave, Slow, crashes
from tidegate.sim.fleet import Node
from tidegate.sim.scenario import ReplicaScenario, Scenario

NO_GATE = GateSettings()


@dataclass(slots=True, eq=False)
class Incidents:
    """Strikes nodes, and tells the gateway only what it would be told."""

    agenda: Agenda
    driver: Driver
    _crashes: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """That last, by replica: it is up again when all of them are over."""
    _factors: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By which it is slow at present: they multiply."""

    def plan(self, scenario: Scenario) -> None:
        """Put all of it on the agenda."""
        for pool, replicas in scenario.pools.items():
            for replica in replicas:
                self.agenda.at(replica.joins_at_s, self._join, (pool, replica))
        for fault in scenario.faults:
            self._plan(fault, self.driver.fleet.nodes[fault.replica])

    def _plan(self, fault: Fault, node: Node) -> None:
        at = self.agenda.at
        match fault:
            case Crash() | Flap():
                for away_at, back_at in crashes(fault):
                    at(away_at, self._crash, node)
                    at(back_at, self._restart, node)
            case Slow():
                at(fault.at_s, self._slow, (node, fault.factor))
                at(_end(fault.at_s, fault.for_s), self._recover, (node, fault.factor))
            case Errors():
                at(fault.at_s, self._fail, (node, fault.share, fault.status))
                at(_end(fault.at_s, fault.for_s), self._heal, (node, fault.share, fault.status))
            case Drain():
                at(fault.at_s, self.driver.tell, DrainAsked(replica=node.name))
                at(
                    _end(fault.at_s, fault.for_s),
                    self.driver.tell,
                    DrainAsked(replica=node.name, drain=False),
                )
            case Leave():
                at(fault.at_s, self._leave, node)
                at(_end(fault.at_s, fault.grace_s), self.driver.remove, node)

    def _join(self, now: float, joining: tuple[str, ReplicaScenario]) -> None:
        pool, replica = joining
        gate = replica.gate or NO_GATE
        node = self.driver.fleet.nodes[replica.name]
        if node.gone:
            return  # it was to leave before it had come
        node.up = not self._crashes[node.name]
        self.driver.tell(
            now,
            ReplicaAdded(
                pool=pool,
                replica=replica.name,
                weight=replica.weight,
                max_concurrency=gate.max_concurrency,
                kv_capacity_tokens=gate.kv_tokens,
                max_prefill_tokens=gate.max_prefill_tokens,
            ),
        )

    def _crash(self, now: float, node: Node) -> None:
        self._crashes[node.name] += 1
        node.up = False
        self.driver.fleet.lose(now, node)

    def _restart(self, now: float, node: Node) -> None:
        self._crashes[node.name] -= 1
        node.up = not (node.gone or self._crashes[node.name])

    def _slow(self, now: float, slowed: tuple[Node, float]) -> None:
        node, factor = slowed
        self._factors[node.name].append(factor)
        self._set_pace(now, node)

    def _recover(self, now: float, slowed: tuple[Node, float]) -> None:
        node, factor = slowed
        self._factors[node.name].remove(factor)
        self._set_pace(now, node)

    def _set_pace(self, now: float, node: Node) -> None:
        node.engine.slow(now, prod(self._factors[node.name]))
        self.driver.fleet.arm(node)

    @staticmethod
    def _fail(now: float, failing: tuple[Node, float, int]) -> None:
        node, share, status = failing
        node.errors.append((share, status))

    @staticmethod
    def _heal(now: float, failing: tuple[Node, float, int]) -> None:
        node, share, status = failing
        node.errors.remove((share, status))

    def _leave(self, now: float, node: Node) -> None:
        self.driver.tell(now, DrainAsked(replica=node.name))
        if node.open_attempts:
            node.leaving = True
        else:
            self.driver.remove(now, node)


def _end(at_s: float, for_s: float | None) -> float:
    return inf if for_s is None else at_s + for_s
