"""Who asks for what, under which limits, on which fleet? The classic, pinned.

Every tenant may send 60 requests a minute. Three send 50 with the lengths of a real chat trace; one sends 40,
each with a prompt of 100,000 tokens. Counted in requests it is the most modest of the four; counted in tokens
it asks for nearly all that the fleet can compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from random import Random

import msgspec

from tidegate.config import Config
from tidegate.config.simulation import SimulationConfig
from tidegate.config.traces import load_trace
from tidegate.policy.settings import MINUTE_S, LimitSettings
from tidegate.sim.profiles import Profile, named
from tidegate.workload.laws.arrivals import Constant, Poisson
from tidegate.workload.laws.lengths import same_lengths, trace_lengths
from tidegate.workload.requests import PlannedRequest, TenantShare, plan_requests
from tidegate.workload.traces.rows import TraceRow
from tidegate.workload.traces.scaling import windowed

CONFIG, PROFILE, TRACE = "neighbours/noisy-neighbour.yaml", "demo-128k", "azure-conv"
TRACE_WINDOW_S = (60.0, 1200.0)
"""Where in the trace, and for how long, the others' lengths are taken from."""
NOISY, OTHERS = "noisy", ("ada", "ben", "cyd")
KEYS = {name: f"key-of-{name}" for name in (*OTHERS, NOISY)}
REQUESTS_PER_MINUTE = 60.0
"""What each tenant may send under request limits."""
OTHERS_PER_MINUTE, NOISY_PER_MINUTE = 50.0, 40.0
NOISY_PROMPT_TOKENS, NOISY_OUTPUT_TOKENS = 100_000, 200


DRAIN_S = 20.0
"""How long answers may take after the last request."""


class Contest(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    for_s: float = 120.0
    """Of traffic, in seconds of the scenario."""
    speed: float = 2.0
    """Fleet, traffic and limits alike run so many times as fast."""
    seed: int = 0
    live: bool = True
    quiet: bool = False


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One of the runs that are compared."""

    name: str
    noisy: bool
    """Whether the noisy tenant is there."""
    by_tokens: bool
    """Token limits, or request limits."""


BASELINE = Rule(name="no noisy tenant", noisy=False, by_tokens=True)
BY_REQUESTS = Rule(name="request limits", noisy=True, by_tokens=False)
BY_TOKENS = Rule(name="token limits", noisy=True, by_tokens=True)
RULES = (BASELINE, BY_REQUESTS, BY_TOKENS)


def profile(speed: float) -> Profile:
    """Each replica, so many times as fast as it is pinned."""
    return named(PROFILE, speed)


def capacity_tokens_per_minute(replicas: int) -> float:
    """The most that the fleet can compute: full steps of nothing but prompts, at the pinned speed.

    No real mix reaches it, so that an equal share of it is more than an equal share of the fleet.
    """
    pinned = profile(1.0)
    tokens = pinned.replica.max_batched_tokens
    return replicas * MINUTE_S * tokens / pinned.curve.step_s(0, 0, [(tokens, 0)])


def traffic(seed: int, for_s: float, speed: float) -> list[PlannedRequest]:
    """What all four send in `for_s` seconds, at `speed` times its pace, in order of arrival."""
    rows = list(windowed(load_trace(TRACE), *TRACE_WINDOW_S))
    plans = [_other(name, rows, Random(f"{seed} {name}"), for_s) for name in OTHERS]
    plans.append(_noisy(Random(seed), for_s))
    return [
        msgspec.structs.replace(planned, at_s=planned.at_s / speed)
        for planned in merge(*plans, key=lambda planned: planned.at_s)
    ]


def under(rule: Rule, requests: Sequence[PlannedRequest]) -> list[PlannedRequest]:
    """The part of the traffic that there is: the others' is the same whatever the rule."""
    return [planned for planned in requests if rule.noisy or planned.tenant != NOISY]


def _other(name: str, rows: Sequence[TraceRow], rng: Random, for_s: float) -> Iterator[PlannedRequest]:
    first = rng.randrange(len(rows) // 2)
    return plan_requests(
        Poisson(OTHERS_PER_MINUTE / MINUTE_S),
        trace_lengths(islice(rows, first, None)),
        rng,
        tenants=[TenantShare(name)],
        for_s=for_s,
    )


def _noisy(rng: Random, for_s: float) -> Iterator[PlannedRequest]:
    return plan_requests(
        Constant(NOISY_PER_MINUTE / MINUTE_S),
        same_lengths(NOISY_PROMPT_TOKENS, NOISY_OUTPUT_TOKENS),
        rng,
        tenants=[TenantShare(NOISY)],
        for_s=for_s,
    )


def ruled(config: Config, rule: Rule, speed: float) -> Config:
    """The shipped configuration under that rule, on a fleet that is `speed` times as fast."""
    tenants = {
        name: msgspec.structs.replace(
            tenant, limits=_sped_up(tenant.limits if rule.by_tokens else BY_REQUEST_COUNT, speed)
        )
        for name, tenant in config.tenants.items()
    }
    classes = {
        name: msgspec.structs.replace(each, max_wait_s=each.max_wait_s / speed)
        for name, each in config.classes.items()
    }
    simulation = _faster(config.simulation, speed)
    return msgspec.structs.replace(config, tenants=tenants, classes=classes, simulation=simulation)


BY_REQUEST_COUNT = LimitSettings(requests_per_minute=REQUESTS_PER_MINUTE)


def _sped_up(limits: LimitSettings | None, speed: float) -> LimitSettings | None:
    if limits is None:
        return None
    requests, tokens = limits.requests_per_minute, limits.tokens_per_minute
    return msgspec.structs.replace(
        limits,
        requests_per_minute=None if requests is None else requests * speed,
        tokens_per_minute=None if tokens is None else tokens * speed,
        burst_s=limits.burst_s / speed,
    )


def _faster(simulation: SimulationConfig, speed: float) -> SimulationConfig:
    """The engines of `profile`, as the simulator is told of them."""
    pools = {
        name: msgspec.structs.replace(pool, engine=msgspec.structs.replace(pool.engine, speed=speed))
        for name, pool in simulation.pools.items()
    }
    return msgspec.structs.replace(simulation, pools=pools)
