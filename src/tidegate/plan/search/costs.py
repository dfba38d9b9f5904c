"""By what is one configuration better than another, and how is it told?"""

from __future__ import annotations

from math import floor
from typing import Protocol

from tidegate.perf.deployment import Deployment
from tidegate.plan.alternatives import Point
from tidegate.plan.ask import Ask, Replica
from tidegate.plan.laws.batching import Batch

Key = tuple[float, float, float]
"""By which one is better than another: cost, then more bits of weights, then of the cache."""


class Costed(Protocol):
    """Replicas that do both, or disaggregated ones."""

    kind: str
    ask: Ask
    deployment: Deployment
    replica: Replica


def cost_key(ask: Ask, accelerators: float, rate: float) -> float:
    """US dollars an hour for the same load, else per million output tokens; an unknown price as a dollar."""
    price = 1.0 if ask.terms.per_hour_usd is None else ask.terms.per_hour_usd
    if ask.load.requests_per_s is not None or ask.load.users is not None:
        return price * accelerators
    return price * accelerators / per_hour_tokens(ask, rate) * 1e6


def per_hour_tokens(ask: Ask, rate: float) -> float:
    """Output tokens in an hour at the mean rate."""
    return rate / ask.load.peak_ratio * ask.load.output_tokens * 3600


def prompt_alone_s(batch: Batch, percentile: float) -> float:
    """Of prompts that meet no other, so long take this share (0..1) at most: no rate has less."""
    seconds, shares = batch.alone
    level = floor(100 * percentile + 1e-9) / 100  # between whole percents a law is taken for straight
    order = seconds.argsort()
    place = int(shares[order].cumsum().searchsorted(level - 1e-9))
    return float(seconds[order[min(place, len(order) - 1)]])


def point_of(candidate: Costed, **figures: object) -> Point:
    """As told, with these figures, of replicas that are all alike."""
    ask, deployment = candidate.ask, candidate.deployment
    price, accelerators = ask.terms.per_hour_usd, figures["accelerators"]
    assert isinstance(accelerators, int)
    rate = figures["requests_per_s"]
    assert isinstance(rate, int | float)
    return Point(
        accelerator=deployment.accelerator.name,
        replica=candidate.replica.name,
        kind=candidate.kind,  # type: ignore[arg-type]
        tp=deployment.tp,
        attention_dp=deployment.attention_dp,
        ep=deployment.ep,
        weights=deployment.precision,
        kv=deployment.kv,
        prefill_replicas=None,
        cost_per_hour=None if price is None else price * accelerators,
        cost_per_million_output_tokens=(
            None if price is None else price * accelerators / per_hour_tokens(ask, rate) * 1e6
        ),
        **figures,  # type: ignore[arg-type]
    )
