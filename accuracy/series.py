"""Is the simulated engine, second by second, in the state that the real one was in?"""

from __future__ import annotations

from collections import deque
from statistics import fmean

import msgspec

from accuracy.engines import Engine
from accuracy.replay import prompt_of
from accuracy.runs import Run, Tick
from tidegate.core.curve import Curve
from tidegate.sim.profiles import Profile
from tidegate.sim.replica import Replica


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Means over the seconds of a run: of what was recorded, and of how far off the simulation was then."""

    running: float
    running_off: float
    waiting: float
    waiting_off: float
    kv_used: float | None
    """Share of the KV cache, 0..1; None: the run did not record it."""
    kv_used_off: float | None


def second_by_second(run: Run, engine: Engine, curve: Curve) -> Series | None:
    """None where nothing was recorded, and for data-parallel ranks, which are no one replica."""
    if not run.ticks or engine.data_ranks > 1:
        return None
    replica = Replica(Profile(curve=curve, replica=engine.settings))
    coming = deque(run.requests)
    simulated = []
    for tick in run.ticks:
        while coming and coming[0].queued_s <= tick.at_s:
            request = coming.popleft()
            replica.submit(request.queued_s, prompt_of(request))
        replica.advance(tick.at_s)
        simulated.append(
            Tick(
                at_s=tick.at_s,
                running=replica.running,
                waiting=replica.waiting,
                kv_used=replica.kv_used_ratio,
            )
        )
    pairs = list(zip(run.ticks, simulated, strict=True))
    recorded_kv = any(tick.kv_used for tick in run.ticks)
    return Series(
        running=fmean(tick.running for tick in run.ticks),
        running_off=fmean(abs(ours.running - theirs.running) for theirs, ours in pairs),
        waiting=fmean(tick.waiting for tick in run.ticks),
        waiting_off=fmean(abs(ours.waiting - theirs.waiting) for theirs, ours in pairs),
        kv_used=fmean(tick.kv_used for tick in run.ticks) if recorded_kv else None,
        kv_used_off=fmean(abs(ours.kv_used - theirs.kv_used) for theirs, ours in pairs)
        if recorded_kv
        else None,
    )
