"""What does a batch do whose engine guesses ahead?

The laws of a batch are of steps, and stay that: a sequence makes fewer of them than it has tokens, and each
is longer. So they are given its steps for its tokens,

    steps = (tokens after the first + what is left over of the last step) / tokens per step,

in the mean, and as uneven as luck makes them. What is of tokens stays: the context that is attended to, and
the KV cache. TTFT, E2E and the gaps between steps are then right as they come; TPOT alone is put together
anew, of how long steps take and how many of them a request had.

Of every sequence its guesses take from the token budget of a step, and prompts are computed once.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from math import sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.core.curve import Curve
from tidegate.perf.speculative import Verifying, accepted_variance, left_over
from tidegate.plan.laws.batching import Batch
from tidegate.plan.laws.engine import Engine
from tidegate.plan.laws.lengths import Kind, Lengths
from tidegate.plan.laws.spread import LEVELS, Spread

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Law = tuple[Floats, Floats]
    """Seconds, and how often they come."""

PARTS: Final = 100
"""Equally likely ones, into which the luck of guesses is cut: nearly normal, of many steps."""


class SpeculatingBatch(Batch):
    """A batch of steps."""

    def __init__(self, engine: Engine, curve: Verifying, lengths: Lengths) -> None:
        """`curve` is the engine's."""
        self.of_tokens = Batch(engine, lengths)
        """What is counted in tokens."""
        most = min(engine.max_num_seqs, self.of_tokens.kv_gate)
        left = max(1, engine.max_batched_tokens - curve.draft_tokens * most)
        kinds = tuple(_in_steps(kind, curve) for kind in lengths.kinds)
        super().__init__(
            msgspec.structs.replace(engine, max_batched_tokens=left),
            msgspec.structs.replace(lengths, kinds=kinds),
        )
        self.context_tokens = self.of_tokens.context_tokens

    @property
    def kv_gate(self) -> int:
        """As it is without guesses, but for what is drafted last."""
        return self.of_tokens.kv_gate

    @property
    def tokens_per_step(self) -> float:
        """Of a sequence; what is left over of its last step is none."""
        return self.of_tokens.decode_steps / self.decode_steps if self.decode_steps else 1.0

    def tpot_gate(self, tpot_s: float) -> int:
        """The most sequences that get their tokens so fast."""
        return super().tpot_gate(tpot_s * self.tokens_per_step)


def batch_of(engine: Engine, lengths: Lengths) -> Batch:
    """Of an engine that guesses ahead, or does not."""
    if isinstance(engine.curve, Verifying):
        return SpeculatingBatch(engine, engine.curve, lengths)
    return Batch(engine, lengths)


def pace_of(batch: Batch) -> float:
    """Tokens that a step yields of each sequence that decodes, mean."""
    return batch.tokens_per_step if isinstance(batch, SpeculatingBatch) else 1.0


def of_tokens(batch: Batch) -> Batch:
    """The same, counting tokens where it counts steps."""
    return batch.of_tokens if isinstance(batch, SpeculatingBatch) else batch


def tpot_of(batch: Batch, inside: int) -> float:
    """Of a batch that always has so many, mean."""
    return batch.saturated(inside).tpot_s / pace_of(batch)


def tpots_of(batch: Batch, steps_s: Spread) -> Spread:
    """TPOT over requests, of the time of a request's steps."""
    import numpy as np

    if not isinstance(batch, SpeculatingBatch) or not np.isfinite(steps_s.mean):
        return steps_s
    edges = np.array([0.0, *((low + high) / 2 for low, high in pairwise(LEVELS)), 1.0])
    law = np.array(steps_s.at), np.diff(edges)
    found = Spread.of(by_luck(law, batch.engine.curve, batch.of_tokens.decode_steps))
    return msgspec.structs.replace(found, mean=steps_s.mean / batch.tokens_per_step)


def steps_for(decode_tokens: float, curve: Curve | Verifying) -> float:
    """That yield so many tokens after the first, mean."""
    if not isinstance(curve, Verifying) or not decode_tokens:
        return decode_tokens
    left = left_over(curve.acceptance_ratio, curve.draft_tokens)
    # At least one, for less than that many tokens the law of what is left over is not yet true.
    return max(min(1.0, decode_tokens), (decode_tokens + left) / curve.tokens_per_step)


def by_luck(law: Law, curve: Curve | Verifying, decode_tokens: float) -> Law:
    """Times per token of requests whose steps take such times: some had more guesses right than others."""
    import numpy as np

    if not isinstance(curve, Verifying) or not decode_tokens:
        return law
    steps = steps_for(decode_tokens, curve)
    deviation = sqrt(_variance(decode_tokens, curve))
    least = max(1.0, decode_tokens / (curve.draft_tokens + 1))
    made = (
        np.clip(steps + deviation * np.array(_deviations()), least, max(steps, decode_tokens)) / decode_tokens
    )
    shares = np.full(PARTS, 1 / PARTS)
    return np.outer(law[0], made).ravel(), np.outer(law[1], shares).ravel()


def _in_steps(kind: Kind, curve: Verifying) -> Kind:
    """With its steps for tokens: both have a first one, which the prompt's step makes."""
    tokens = kind.output_tokens - 1
    if not tokens:
        return kind
    steps = steps_for(tokens, curve)
    spread = (kind.output_cv * tokens / curve.tokens_per_step) ** 2 + _variance(tokens, curve)
    return msgspec.structs.replace(kind, output_tokens=1 + steps, output_cv=sqrt(spread) / steps)


def _variance(tokens: float, curve: Verifying) -> float:
    """Of the steps that so many tokens take: tokens x Var[X] / E[X]^3 (Feller, chapter XI.5)."""
    each = accepted_variance(curve.acceptance_ratio, curve.draft_tokens)
    return tokens * each / curve.tokens_per_step**3


@cache
def _deviations() -> tuple[float, ...]:
    normal = NormalDist()
    return tuple(normal.inv_cdf((each + 0.5) / PARTS) for each in range(PARTS))
