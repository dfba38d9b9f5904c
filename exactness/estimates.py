"""What does the simulator say of a queue, and how sure is that?

Replications are independent, so that Student's t is right. What luck a replication had with its draws is
known, and taken off: controls are figures of the draws alone, whose true means are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from math import inf, isinf, nan, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exactness import theory
from exactness.cases import Case
from exactness.systems import CV2, Sample, System, Values, sample
from tidegate.simulate.intervals import Estimate, mean_within, spread_within, t_quantile
from tidegate.simulate.results import saturated

FASTER = 1 / 0.95
"""Speed of the server whose queue is a control of one server's."""


class Interval(NamedTuple):
    """A figure over replications, and its standard error."""

    value: float
    error: float
    degrees: int

    def half_width(self, level: float) -> float:
        """Of the interval that holds the true value in that share of cases, 0..1."""
        return t_quantile(0.5 + level / 2, self.degrees) * self.error


class Figures(NamedTuple):
    """What one replication says."""

    mean: float
    p99: float
    """nan where theory does not know it."""
    refused: float
    controls: tuple[float, ...]
    """Each is 0 in the mean."""


def over(values: Sequence[float], controls: NDArray[np.float64] | None = None) -> Interval:
    """The mean over replications, freed of what `controls` explain: columns whose true mean is 0.

    Source: Lavenberg and Welch (1981), control variables with known means. nan if a value is.
    """
    count, against = len(values), np.ones((len(values), 1))
    if controls is not None:
        against = np.hstack([against, controls[:, np.ptp(controls, axis=0) > 1e-9]])
    inverse = np.linalg.inv(against.T @ against)
    fitted = inverse @ against.T @ np.array(values)
    degrees = count - against.shape[1]
    rest = np.array(values) - against @ fitted
    return Interval(float(fitted[0]), sqrt(float(rest @ rest) / degrees * inverse[0, 0]), degrees)


def figures(system: System, requests: int, seed: int) -> Figures:
    """Of a replication, without the first tenth, in which the queue fills."""
    run = sample(system, requests, seed)
    gaps, services, waits = (each[requests // 10 :] for each in run)
    served = waits[waits < inf]
    controls = [float(gaps.mean()) * system.servers * system.load - 1, float(services.mean()) - 1]
    if system.places is None:
        controls += _of_another_queue(system, run)
    return Figures(
        mean=float(served.mean()),
        p99=_p99(system, served) if system.service == "M" else nan,
        refused=1 - len(served) / len(waits),
        controls=tuple(controls),
    )


def _p99(system: System, waits: Values) -> float:
    """From the share of waits beyond the exact P99, by the density there: a sample's own P99 is biased.

    The exact one is where the share is 0.01, and of a share it is known how sure it is (Woodruff 1952).
    """
    exact = theory.mmc_wait_p99(system.servers, system.load)
    density = 0.01 * system.servers * (1 - system.load)
    return exact + (float(np.mean(waits > exact)) - 0.01) / density


def _of_another_queue(system: System, run: Sample) -> list[float]:
    """How far the waits of a like queue with the same draws are from what theory says of that one, relative.

    Half as many servers that are twice as fast, or one that is faster by a twentieth. It is long when the
    queue in question is, and to find its waits takes no simulator. Exponential service: of its tail, too.
    """
    servers, speed = max(1, system.servers // 2), system.servers / max(1, system.servers // 2)
    if system.servers == 1:
        speed = FASTER
    load = system.load * system.servers / servers / speed
    waits = theory.waits(servers, run.gaps.tolist(), (run.services / speed).tolist())
    after = np.array(waits[len(waits) // 10 :])
    if system.service != "M":
        return [float(after.mean()) * speed / theory.mg1_wait(load, CV2[system.service]) - 1]
    tail_from = theory.mmc_wait_p99(servers, load) / speed
    mean = theory.mmc_wait(servers, load) / speed
    return [float(after.mean()) / mean - 1, float(np.mean(after > tail_from)) / 0.01 - 1]


def replications(system: System, requests: int, seeds: range, cores: Executor) -> dict[str, Interval]:
    """Figures over runs of so many requests each, one per seed."""
    runs = list(cores.map(partial(figures, system, requests), seeds))
    controls = np.array([run.controls for run in runs])
    return {
        "mean": over([run.mean for run in runs], controls),
        "p99": over([run.p99 for run in runs], controls),
        "refused": over([run.refused for run in runs], controls),
    }


class Coverage(NamedTuple):
    """How the intervals of single runs did: shares of the runs, 0..1."""

    held: float
    """The truth is inside."""
    warned: float
    """It is warned that the interval may be too narrow, of all figures or of this one."""
    misled: float
    """The truth is outside, and nothing warned."""


def coverage(case: Case, truths: dict[str, float], cores: Executor) -> dict[str, Coverage]:
    """Of each figure: whether the 95 % intervals of single runs hold what is exact."""
    runs = list(cores.map(partial(_held_and_warned, case.system, truths, case.requests), case.seeds))
    found = {}
    for figure in truths:
        held, warned = np.array([run[figure] for run in runs], dtype=np.bool_).T
        shares = (held, warned, ~held & ~warned)
        found[figure] = Coverage(*(float(each.mean()) for each in shares))
    return found


def _held_and_warned(
    system: System, truths: dict[str, float], requests: int, seed: int
) -> dict[str, tuple[bool, bool]]:
    waits = sample(system, requests, seed).waits[requests // 10 :]
    if system.places is not None:
        refused = mean_within(np.where(waits == inf, 1.0, 0.0))
        return {"refused": (_holds(refused, truths["refused"]), False)}
    spread = spread_within(waits)
    doubtful = spread.doubtful or saturated(spread)
    found = {}
    for figure, truth in truths.items():
        estimate: Estimate = getattr(spread, figure)
        warned = doubtful or isinf(estimate.high)
        found[figure] = (_holds(estimate, truth), warned)
    return found


def _holds(estimate: Estimate, truth: float) -> bool:
    return estimate.low <= truth <= estimate.high
