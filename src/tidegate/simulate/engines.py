"""What did the engines do: how busy were they, what did their caches find, how often did they preempt?"""

from __future__ import annotations

import msgspec

from tidegate.sim.run import Outcome
from tidegate.sim.scenario import Scenario
from tidegate.sim.statistics import Estimate, estimate_over


class PoolFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the engines of a pool did, over the whole run."""

    replicas: int
    utilisation_ratio: Estimate
    """Share of the time in which steps were computed, mean of the replicas; 0..1."""
    prefix_hit_ratio: Estimate
    """Prompt tokens found in prefix caches, of those looked for; nan if none were."""
    preemptions: Estimate
    prefill_tokens: Estimate
    """Computed, again after preemptions too."""
    decode_tokens: Estimate


def engines_of(scenario: Scenario, outcome: Outcome) -> dict[str, PoolFigures]:
    """Of one run, by pool."""
    return {
        pool: _pool_figures(outcome, [each.name for each in replicas], outcome.simulated_s)
        for pool, replicas in scenario.pools.items()
    }


def _pool_figures(outcome: Outcome, names: list[str], span_s: float) -> PoolFigures:
    counters = [outcome.replicas[name].counters for name in names]
    queried = sum(each.prefix_queried_tokens for each in counters)
    hit = sum(each.prefix_hit_tokens for each in counters)
    whole = span_s * len(counters)
    return PoolFigures(
        replicas=len(counters),
        utilisation_ratio=Estimate(sum(each.busy_s for each in counters) / whole) if whole else Estimate(),
        prefix_hit_ratio=Estimate(hit / queried) if queried else Estimate(),
        preemptions=Estimate(float(sum(each.preemptions for each in counters))),
        prefill_tokens=Estimate(float(sum(each.prefill_tokens for each in counters))),
        decode_tokens=Estimate(float(sum(each.decode_tokens for each in counters))),
    )


def engines_over(runs: list[dict[str, PoolFigures]]) -> dict[str, PoolFigures]:
    """Of several seeds, as means."""
    runs = [each for each in runs if each]
    return {name: _over([each[name] for each in runs]) for name in (runs[0] if runs else {})}


def _over(runs: list[PoolFigures]) -> PoolFigures:
    def estimate(name: str) -> Estimate:
        return estimate_over([getattr(each, name).value for each in runs])

    return PoolFigures(
        replicas=runs[0].replicas,
        utilisation_ratio=estimate("utilisation_ratio"),
        prefix_hit_ratio=estimate("prefix_hit_ratio"),
        preemptions=estimate("preemptions"),
        prefill_tokens=estimate("prefill_tokens"),
        decode_tokens=estimate("decode_tokens"),
    )
