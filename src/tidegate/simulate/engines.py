"""What did the engines do: how busy were they, what did their caches find, how often did they preempt?"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidegate.sim.run import Outcome
from tidegate.sim.scenario import ReplicaScenario, Scenario
from tidegate.simulate.intervals import Estimate, estimate_over


class PoolFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the engines of a pool did, over the whole run."""

    replicas: int
    utilisation_ratio: Estimate
    """Share of the time in which steps were computed, mean of the replicas since they joined; 0..1."""
    decodes_per_step: Estimate
    """Sequences that decode in a step, mean of all steps: how full batches are."""
    prefix_hit_ratio: Estimate
    """Prompt tokens found in prefix caches, of those looked for; nan if none were."""
    preemptions: Estimate
    prefill_tokens: Estimate
    """Computed, again after preemptions too."""
    decode_tokens: Estimate


def engines_of(scenario: Scenario, outcome: Outcome) -> dict[str, PoolFigures]:
    """Of one run, by pool."""
    return {pool: _pool_figures(outcome, replicas) for pool, replicas in scenario.pools.items()}


def _pool_figures(outcome: Outcome, replicas: Sequence[ReplicaScenario]) -> PoolFigures:
    counters = [outcome.replicas[each.name].counters for each in replicas]
    queried = sum(each.prefix_queried_tokens for each in counters)
    hit = sum(each.prefix_hit_tokens for each in counters)
    steps, decoded = sum(each.steps for each in counters), sum(each.decode_tokens for each in counters)
    there_s = sum(max(0.0, outcome.simulated_s - each.joins_at_s) * _engines_in(each) for each in replicas)
    return PoolFigures(
        replicas=len(counters),
        utilisation_ratio=_ratio(sum(each.busy_s for each in counters), there_s),
        decodes_per_step=_ratio(decoded, steps),
        prefix_hit_ratio=_ratio(hit, queried),
        preemptions=Estimate(float(sum(each.preemptions for each in counters))),
        prefill_tokens=Estimate(float(sum(each.prefill_tokens for each in counters))),
        decode_tokens=Estimate(float(decoded)),
    )


def _engines_in(replica: ReplicaScenario) -> int:
    """A disaggregated replica is several, and counts what all of them do."""
    parts = replica.profile.disaggregation
    return 1 if parts is None else parts.prefill_replicas + parts.decode_replicas


def _ratio(amount: float, whole: float) -> Estimate:
    return Estimate(amount / whole) if whole else Estimate()


def engines_over(runs: list[dict[str, PoolFigures]]) -> dict[str, PoolFigures]:
    """Of several seeds, as means."""
    runs = [each for each in runs if each]
    return {name: _over([each[name] for each in runs]) for name in (runs[0] if runs else {})}


def _over(runs: list[PoolFigures]) -> PoolFigures:
    names = [name for name in PoolFigures.__struct_fields__ if name != "replicas"]
    means = {name: estimate_over([getattr(each, name).value for each in runs]) for name in names}
    return msgspec.structs.replace(runs[0], **means)
