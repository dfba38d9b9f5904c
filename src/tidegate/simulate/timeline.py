"""How did a run go over time? A few hundred samples, as series for plots."""

from __future__ import annotations

from math import nan

import msgspec

from tidegate.sim.samples import Sample

SAMPLES = 240
"""Over a run: what a plot of ordinary width can show."""
LEAST_STEP_S = 0.05


class PoolSeries(msgspec.Struct):
    """One pool; a value for each instant of the timeline."""

    queued: list[float] = []
    """Requests in the gateway's queue."""
    running: list[float] = []
    """Sequences in the batches of its replicas, together."""
    waiting: list[float] = []
    """Requests in the queues of its engines, together."""
    kv_used_ratio: list[float] = []
    """Mean of its replicas that are up; nan if none is."""
    kv_used_most: list[float] = []
    """The fullest of them."""


class Timeline(msgspec.Struct):
    """Series over the instants `at_s`, seconds from the start."""

    step_s: float
    at_s: list[float] = []
    pools: dict[str, PoolSeries] = {}
    tenant_tokens: dict[str, list[float]] = {}
    """Tokens of the requests that ended since the sample before, by tenant."""
    refusals: dict[str, list[float]] = {}
    """The same, of refused or cut requests, by reason."""


def step_of(span_s: float) -> float:
    """Seconds between samples of a run in which requests come for `span_s`."""
    return max(LEAST_STEP_S, span_s / SAMPLES)


class Recorder:
    """Takes samples; `pool_of` says which pool a replica is of."""

    def __init__(self, step_s: float, pool_of: dict[str, str]) -> None:
        self.timeline = Timeline(step_s=step_s, pools={name: PoolSeries() for name in pool_of.values()})
        self._pool_of = pool_of

    def __call__(self, sample: Sample) -> None:
        """Take one."""
        timeline = self.timeline
        timeline.at_s.append(sample.at_s)
        for name, series in timeline.pools.items():
            own = [each for replica, each in sample.replicas.items() if self._pool_of[replica] == name]
            used = [each.kv_used_ratio for each in own if each.up]
            pool = sample.pools.get(name)
            series.queued.append(pool.queued if pool is not None else 0)
            series.running.append(sum(each.running for each in own))
            series.waiting.append(sum(each.waiting for each in own))
            series.kv_used_ratio.append(sum(used) / len(used) if used else nan)
            series.kv_used_most.append(max(used, default=nan))
        _append(timeline.tenant_tokens, sample.tenant_tokens, len(timeline.at_s))
        _append(timeline.refusals, sample.refusals, len(timeline.at_s))


def _append(series: dict[str, list[float]], found: dict[str, int], length: int) -> None:
    """A name that turns up late was 0 before."""
    for name in found:
        series.setdefault(name, [0.0] * (length - 1))
    for name, values in series.items():
        values.append(found.get(name, 0))
