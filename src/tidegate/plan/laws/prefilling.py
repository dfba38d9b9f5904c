"""How long does a first token take on replicas that only compute prompts?

The chain of `prompts` without its vacations: where no sequence decodes, an idle replica takes no steps, and
whoever comes is computed at once. Of several replicas an arrival finds none idle as often as Erlang's C says
(the shortest queue is nearly one queue). Each gets its part of arrivals as evenly as in the long run: unlike
decoding, prompts are done in the order of their work, so that replicas nearly take turns. Beside simulations
of 2 to 8 replicas means are 6 % off in the median; with the gaps of replicas that decode (`next_cv2`), 23 %.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tidegate.plan.laws.batching import Batch
from tidegate.plan.laws.population import Arrivals
from tidegate.plan.laws.prompts import Chain
from tidegate.plan.laws.queues import erlang_c
from tidegate.plan.laws.spread import Spread

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Law = tuple[NDArray[np.float64], NDArray[np.float64]]


class Met(msgspec.Struct, frozen=True, kw_only=True):
    """What prompts meet."""

    busy: float
    """Share that finds no replica idle, 0..1."""
    alone: Law
    """First tokens of the others, and their shares."""
    waits: Law
    """The same of those."""


def first_tokens(batch: Batch, arrivals: Arrivals) -> Spread:
    """From arrival to the end of the step that finishes the prompt, at a rate that is sustained."""
    import numpy as np

    met = met_by(batch, arrivals)
    (alone_s, alone), (waits_s, shares) = met.alone, met.waits
    return Spread.of(
        (
            np.concatenate([alone_s, waits_s]),
            np.concatenate([(1 - met.busy) * alone, met.busy * shares]),
        )
    )


def met_by(batch: Batch, arrivals: Arrivals) -> Met:
    """The same, those who wait apart from those who do not."""
    chain = _Idling(batch, arrivals.each_per_s, 0.0, arrivals.each_cv2)
    waits, busy = chain.prompts().waits, chain.busy()
    if arrivals.replicas > 1:
        busy = erlang_c(arrivals.replicas, arrivals.replicas * busy)
    return Met(busy=busy, alone=batch.alone, waits=waits)


class _Idling(Chain):
    """A step that computes nothing takes no time, and is followed by one with one prompt."""

    instants = 16  # steps are long where they are full of prompts

    def __init__(self, batch: Batch, rate_per_s: float, decodes: float, cv2: float) -> None:
        super().__init__(batch, rate_per_s, decodes, cv2)
        self._rate_per_s = rate_per_s
        self._come[0] = self._one
        self._seconds[0] = 0.0

    def busy(self) -> float:
        """Share of the time in which it computes."""
        states = self._states()
        computing_s = float((states * self._steps_s()).sum())
        return computing_s / (computing_s + float(states[0]) / self._rate_per_s)
