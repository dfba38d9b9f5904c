"""How long does a first token take on replicas that only compute prompts?

The chain of `prompts` without its vacations: where no sequence decodes, an idle replica takes no steps, and
whoever comes is computed at once. Of several replicas an arrival finds none idle as often as Erlang's C says
(the shortest queue is nearly one queue). Each gets its part of arrivals as evenly as in the long run: unlike
decoding, prompts are done in the order of their work, so that replicas nearly take turns. Beside simulations
of 2 to 8 replicas means are 6 % off in the median; with the gaps of replicas that decode (`next_cv2`), 23 %.
"""

from __future__ import annotations

from tidegate.plan.laws.batching import Batch
from tidegate.plan.laws.population import Arrivals
from tidegate.plan.laws.prompts import Chain
from tidegate.plan.laws.queues import erlang_c
from tidegate.plan.laws.spread import Spread


def first_tokens(batch: Batch, arrivals: Arrivals) -> Spread:
    """From arrival to the end of the step that finishes the prompt, at a rate that is sustained."""
    import numpy as np

    chain = _Idling(batch, arrivals.each_per_s, 0.0, arrivals.each_cv2)
    waits_s, shares = chain.prompts().waits
    busy = chain.busy()
    if arrivals.replicas > 1:
        busy = erlang_c(arrivals.replicas, arrivals.replicas * busy)
    alone_s, alone = batch.alone
    return Spread.of(
        (np.concatenate([alone_s, waits_s]), np.concatenate([(1 - busy) * alone, busy * shares]))
    )


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
