"""Would it hold? One run of a scenario under a workload, through the gateway's own policies.

    outcome = simulate(scenario, workload, seed, for_s=600.0, on_record=records.append)

The same scenario, workload and seed give the same run to the byte. Each purpose has its own dice, so that one
more fault moves nobody's arrivals. Nothing is kept but what lives: records go to `on_record` one by one.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from random import Random

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.core.records import RequestRecord
from tidegate.policy.contract import Policy
from tidegate.policy.governor import Governor
from tidegate.policy.settings import GovernorSettings
from tidegate.sim.agenda import Agenda
from tidegate.sim.counts import Counts
from tidegate.sim.dice import dice
from tidegate.sim.disaggregated import Engine, engine_of
from tidegate.sim.driver import Driver
from tidegate.sim.fleet import Node
from tidegate.sim.incidents import Incidents
from tidegate.sim.samples import Sample, Sampler
from tidegate.sim.scenario import ReplicaScenario, Scenario, check
from tidegate.sim.traffic import Traffic
from tidegate.workload.requests import Workload

OnFleetBatch = Callable[[str, float, float, int, int, int, int, float], None]
"""What `sim.replica.OnBatch` is told, after the name of the replica."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A run in figures. The requests themselves went to `on_record`."""

    counts: Counts
    retries: int
    """Of the requests that arrived, those that a client made again."""
    last_arrival_at: float
    """Instant of the last arrival that is no such retry; 0 without any."""
    simulated_s: float
    """From the start to the last event."""
    events: int
    replicas: dict[str, Engine]
    """As they stand at the end: see their counters."""


def govern(settings: GovernorSettings, seed: int) -> Policy:
    """A governor; `policy.tape.Recorder.of` makes one that is written down."""
    return Governor(settings, Random(seed))


def simulate(
    scenario: Scenario,
    workload: Workload,
    seed: int,
    *,
    on_record: Callable[[RequestRecord], None],
    for_s: float = inf,
    sample_s: float | None = None,
    on_sample: Callable[[Sample], None] | None = None,
    on_batch: OnFleetBatch | None = None,
    govern: Callable[[GovernorSettings, int], Policy] = govern,
) -> Outcome:
    """Let a workload meet a fleet; instants count from 0 s.

    Requests come before `for_s`; the run ends when all of them have. `workload` is used up. Every `sample_s`
    seconds `on_sample` is told how things stand; `on_batch` is told of every run of steps of a
    replica. ConfigurationError if the scenario cannot be.
    """
    check(scenario)
    if not for_s > 0:
        raise ConfigurationError([f"a run lasts longer than 0 s, not {for_s:g}"])
    agenda = Agenda()
    policy = govern(scenario.governor, dice(seed, "governor").getrandbits(63))
    nodes = {
        each.name: _node(each, seed, on_batch) for replicas in scenario.pools.values() for each in replicas
    }
    driver = Driver(policy, agenda, scenario.network, nodes, on_record)
    Incidents(agenda, driver).plan(scenario)
    if sample_s is not None and on_sample is not None:
        Sampler(agenda, driver, sample_s, on_sample).start()
    traffic = Traffic(scenario, workload, agenda, driver, dice(seed, "clients"), for_s)
    traffic.start()
    with _rarely_collected():
        agenda.run()
    return Outcome(
        counts=driver.close(),
        retries=traffic.retries,
        last_arrival_at=traffic.last_arrival_at,
        simulated_s=agenda.now,
        events=agenda.events,
        replicas={node.name: node.engine for node in nodes.values()},
    )


@contextmanager
def _rarely_collected() -> Iterator[None]:
    """A run makes hardly any cycles, and to look for them among all that lives is a quarter of its cost."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _node(replica: ReplicaScenario, seed: int, on_batch: OnFleetBatch | None) -> Node:
    name = replica.name
    engine = engine_of(
        replica.profile,
        dice(seed, f"speculation of {name}"),
        on_batch=None if on_batch is None else partial(on_batch, name),
    )
    return Node(name, engine, dice(seed, f"faults of {name}"), dice(seed, f"way to {name}"))
