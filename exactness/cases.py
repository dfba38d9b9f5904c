"""Which queues are simulated, for how long, with which seeds?

Seeds are named here before anybody has seen what they give; lengths were chosen with others.

How long: the waits of one customer tell much about those of the next. Near saturation the mean of n waits has
a variance of about 2 (ca2 + cs2) / (1 - load)^2 / n, relative to their squared mean and divided by the share
of customers who wait at all (Whitt 1989, "Planning queueing simulations"): four million customers of M/M/1 at
0.9 for an interval of 2 %. Controls leave an eighth of that for one server, and a hundredth for several.
"""

from __future__ import annotations

from typing import NamedTuple

from exactness import theory
from exactness.systems import CV2, System

SEEDS = range(2_000, 2_040)
"""Of the replications."""
OTHER_SEEDS = range(6_000, 6_080)
"""Of a second opinion on M/M/50/50: with `SEEDS`, and steps of 1/1000 of a service, it was 3.1 errors off."""
COVERAGE_SEEDS = range(3_000, 3_200)
"""Of the runs whose own intervals are judged."""

MEAN_WITHIN, P99_WITHIN = 0.02, 0.05
"""Half of a 95 % interval, relative to the figure, at most."""
COVERED = (0.90, 0.99)
"""Share of 95 % intervals that hold the truth."""
MISLED = 0.08
"""Share of runs that miss it without a warning, at most: the nominal 5 %, and two errors of 200 runs."""


class Case(NamedTuple):
    """A system, customers per run, and the seeds of its runs."""

    system: System
    requests: int
    seeds: range = SEEDS


REPLICATIONS = (
    Case(System("M", 1, 0.9), 60_000),
    Case(System("D", 1, 0.9), 30_000),
    Case(System("E2", 1, 0.9), 40_000),
    Case(System("M", 4, 0.9), 20_000),
    Case(System("M", 4, 0.9, governed=True), 20_000),
    Case(System("M", 10, 0.9, governed=True), 20_000),
    Case(System("M", 50, 0.95, governed=True), 30_000),
    Case(System("M", 1, 0.5, governed=True, places=0), 2_000),
    Case(System("M", 4, 0.75, governed=True, places=0), 4_000),
    Case(System("M", 50, 0.95, governed=True, places=0), 8_000),
    Case(System("M", 50, 0.95, governed=True, places=0), 8_000, OTHER_SEEDS),
)

COVERAGE = (
    Case(System("M", 1, 0.5), 10_000, COVERAGE_SEEDS),
    Case(System("D", 1, 0.5), 5_000, COVERAGE_SEEDS),
    Case(System("E2", 1, 0.5), 8_000, COVERAGE_SEEDS),
    Case(System("M", 4, 0.7, governed=True), 5_000, COVERAGE_SEEDS),
    Case(System("M", 4, 0.75, governed=True, places=0), 4_000, COVERAGE_SEEDS),
    Case(System("M", 1, 0.9), 10_000, COVERAGE_SEEDS),
    Case(System("D", 1, 0.9), 10_000, COVERAGE_SEEDS),
    Case(System("M", 4, 0.9), 5_000, COVERAGE_SEEDS),
)


def exact(system: System) -> dict[str, float]:
    """What theory says: `mean` and `p99` of the wait in seconds, or `refused`, a share of all."""
    servers, load = system.servers, system.load
    if system.places == 0:
        return {"refused": theory.erlang_b(servers, servers * load)}
    if system.service == "M":
        return {"mean": theory.mmc_wait(servers, load), "p99": theory.mmc_wait_p99(servers, load)}
    return {"mean": theory.mg1_wait(load, CV2[system.service])}


def exact_within(system: System) -> dict[str, float]:
    """The same of what a single run states intervals of: `p95`, too, where `p99` is known."""
    known = exact(system)
    if "p99" not in known:
        return known
    p95 = theory.mmc_wait_beyond(system.servers, system.load, 0.05)
    return {"mean": known["mean"], "p95": p95, "p99": known["p99"]}
