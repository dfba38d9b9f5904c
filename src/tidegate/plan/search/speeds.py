"""How fast is one sequence decoded on each accelerator, at most and about?

Each step reads every weight, whatever the batch: bandwidth over weights, times the tokens of a step where the
engine guesses ahead, is a bound that nothing passes, and the order of accelerators follows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidegate.catalog.accelerators import Accelerator
from tidegate.perf.deployment import Deployment
from tidegate.perf.work import work_of
from tidegate.plan.alternatives import Speed
from tidegate.plan.laws.batching import Batch
from tidegate.plan.search.candidate import Whole
from tidegate.plan.search.candidates import Space
from tidegate.plan.served import lengths_of


def speeds_of(space: Space, asked: Sequence[Whole]) -> tuple[Speed, ...]:
    """The fastest first: of each accelerator the fewest that hold the model, in the most bits."""
    found = (_speed(each) for each in _smallest(space, asked))
    return tuple(sorted(found, key=lambda speed: (-speed.most_tokens_per_s, speed.accelerator)))


def token_bytes(deployment: Deployment) -> float:
    """Of weights that one sequence reads for a token, on all devices together."""
    work = work_of(deployment)
    chosen = sum(work.expert_bytes) * work.chosen_share
    return (sum(work.read_bytes) + chosen + work.head_bytes) * deployment.stage_devices


def most_tokens_per_s(deployment: Deployment) -> float:
    """Of one sequence. Stages take turns: of their devices those of one read at a time."""
    rate = deployment.stage_devices * deployment.accelerator.bandwidth_bytes_per_s
    return rate / token_bytes(deployment)


def _smallest(space: Space, asked: Sequence[Whole]) -> Iterator[Whole]:
    for accelerator in space.accelerators:
        mine = [each for each in asked if _plain(each.deployment, accelerator)]
        if mine:
            yield min(mine, key=lambda each: each.deployment.devices)


def _plain(deployment: Deployment, accelerator: Accelerator) -> bool:
    return deployment.accelerator is accelerator and deployment.attention_dp == 1


def _speed(candidate: Whole) -> Speed:
    deployment = candidate.deployment
    batch = Batch(candidate.replica.engine, lengths_of(candidate.ask.load))
    return Speed(
        accelerator=deployment.accelerator.name,
        replica=candidate.replica.name,
        tp=deployment.tp,
        weights=deployment.precision,
        weights_bytes=token_bytes(deployment),
        bandwidth_bytes_per_s=deployment.stage_devices * deployment.accelerator.bandwidth_bytes_per_s,
        most_tokens_per_s=most_tokens_per_s(deployment) * batch.engine.tokens_per_step,
        tokens_per_s=batch.engine.tokens_per_step / batch.decode_s(1),
    )
