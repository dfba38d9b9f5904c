"""How do things stand, from time to time? A sample of queues, batches, caches, tenants and refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from tidegate.core.records import RequestRecord
from tidegate.sim.agenda import Agenda
from tidegate.sim.driver import Driver


class PoolSample(msgspec.Struct, frozen=True, kw_only=True):
    """A pool at one instant."""

    queued: int
    """Requests in the gateway's queue."""


class ReplicaSample(msgspec.Struct, frozen=True, kw_only=True):
    """A replica at one instant, as it really is."""

    up: bool
    running: int
    waiting: int
    """Requests in the engine's own queue."""
    kv_used_ratio: float


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """How things stand at `at_s`, and what has ended since the sample before."""

    at_s: float
    pools: dict[str, PoolSample]
    replicas: dict[str, ReplicaSample]
    tenant_tokens: dict[str, int]
    """Prompt and output tokens of the requests that ended, by tenant."""
    refusals: dict[str, int]
    """Requests that ended other than by an engine's own answer, by reason."""


@dataclass(slots=True, eq=False)
class Sampler:
    """Takes a sample every `every_s` seconds, from the start on."""

    agenda: Agenda
    driver: Driver
    every_s: float
    on_sample: Callable[[Sample], None]
    _taken: int = 0
    _tokens: dict[str, int] = field(default_factory=dict)
    _refusals: dict[str, int] = field(default_factory=dict)

    def start(self) -> None:
        """Put the first sample on the agenda, and look at every record from now on."""
        passed_on = self.driver.on_record

        def on_record(record: RequestRecord) -> None:
            self._observe(record)
            passed_on(record)

        self.driver.on_record = on_record
        self.agenda.at(self.agenda.now, self._take, None)

    def _observe(self, record: RequestRecord) -> None:
        tokens = record.prompt_tokens + record.output_tokens
        self._tokens[record.tenant] = self._tokens.get(record.tenant, 0) + tokens
        if record.reason is not None:
            self._refusals[record.reason] = self._refusals.get(record.reason, 0) + 1

    def _take(self, now: float, _: None) -> None:
        for node in self.driver.fleet.nodes.values():
            node.engine.let_pass(now)
        self.on_sample(
            Sample(
                at_s=now,
                pools={
                    name: PoolSample(queued=pool.queue.requests)
                    for name, pool in self.driver.policy.pools.items()
                },
                replicas={
                    node.name: ReplicaSample(
                        up=node.up,
                        running=node.engine.running,
                        waiting=node.engine.waiting,
                        kv_used_ratio=node.engine.kv_used_ratio,
                    )
                    for node in self.driver.fleet.nodes.values()
                },
                tenant_tokens=self._tokens,
                refusals=self._refusals,
            )
        )
        self._tokens, self._refusals = {}, {}
        self._taken += 1
        self.agenda.at(self._taken * self.every_s, self._take, None)
