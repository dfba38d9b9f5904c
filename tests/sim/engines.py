"""A replica whose figures can be checked in the head, and what it tells, one event after the other."""

from __future__ import annotations

from math import inf
from typing import Any

from tidegate.core.curve import Curve, Linear
from tidegate.sim.happening import Happening
from tidegate.sim.profiles import Profile
from tidegate.sim.replica import Replica
from tidegate.sim.settings import ReplicaSettings

SECOND = Linear(a_s=1.0)
"""Every step takes a second."""


def replica(curve: Curve = SECOND, **changes: Any) -> Replica:
    """Roomy unless `changes` say otherwise."""
    settings: dict[str, Any] = {
        "max_num_seqs": 8,
        "max_batched_tokens": 1024,
        "kv_tokens": 16_384,
        "context_tokens": 8192,
    }
    return Replica(Profile(curve=curve, replica=ReplicaSettings(**(settings | changes))))


def told(engine: Replica, until: float = inf) -> list[Happening]:
    """Everything up to and including `until`, looked at only when it says that there is something."""
    news = []
    while (at := engine.next_at()) <= until and at < inf:
        news += engine.advance(at)
        engine.check()
        for sequence, tokens in engine.decoding_at(at):
            assert tokens == engine.tokens_at(sequence, at)
    return news


def short(news: list[Happening]) -> list[tuple[float, str, int, int]]:
    """At, what, of whom, output tokens."""
    kinds = ("first", "progress", "finished")
    return [(one.at, kinds[one.kind], one.sequence.id, one.output_tokens) for one in news]
