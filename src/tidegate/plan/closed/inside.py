"""How does a replica fare that has so many requests inside its gate, each client asking again at once?

`loop` in its steady state: long past the beginning, at which all ask in the same instant. That is an opening,
and is asked for apart. No more are inside than the plan's gate lets in, whatever the engine would take.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

import msgspec

from tidegate.plan.closed.loop import REQUESTS_PER_CLIENT, Clients, Loop, closed_loop
from tidegate.plan.laws.lengths import pieces
from tidegate.plan.laws.speculating import by_luck, steps_for

if TYPE_CHECKING:
    from tidegate.plan.answer import Gates
    from tidegate.plan.ask import Load, Replica
    from tidegate.plan.closed.spread import Law

EXACTLY = 64
"""Up to so many inside each number is looked at, beyond every sixteenth part of it."""
ROOMY_TOKENS = 2**40
"""Of KV cache and context: the gate has counted them."""


class Inside:
    """A replica under a load; its loops are remembered, for users before any number of such replicas."""

    def __init__(self, replica: Replica, load: Load, gates: Gates) -> None:
        self.gate = gates.least
        self.think_s = load.think_s
        self.output_tokens = load.output_tokens
        self.outputs = [
            (1 + (kind.output_tokens - 1) * ratio, kind.share * share)
            for kind in load.kinds
            for ratio, share in pieces(kind.output_cv)
        ]
        """Output tokens, and how often they come."""
        self._copies, self._waiting, self._own = replica.copies, replica.waiting, replica.engine
        self._engine = msgspec.structs.replace(
            replica.engine, max_num_seqs=self.gate, kv_tokens=ROOMY_TOKENS, context_tokens=ROOMY_TOKENS
        )
        self._prompt_tokens = max(1.0, load.prompt_tokens)
        self._cached_tokens = load.prefix_hit_ratio * self._prompt_tokens
        decoded = load.output_tokens - 1
        self._tokens_per_step = decoded / steps_for(decoded, replica.engine.curve) if decoded else 1.0
        self._loops: dict[tuple[int, float], Loop] = {}

    def loop(self, inside: int, requests: float = inf) -> Loop:
        """Of so many, as many as the gate lets in at most, who ask that many times from a start at once."""
        key = inside, requests
        if (found := self._loops.get(key)) is None:
            found = self._loops[key] = self._loop(inside, requests)
        return found

    def benchmark(self, clients: int) -> Loop:
        """Of so many who begin at once, before the engine itself: it takes as many as it has room for."""
        return closed_loop(
            self._own, self._clients(clients, REQUESTS_PER_CLIENT), copies=self._copies, waiting=self._waiting
        )

    def tpots(self, loop: Loop) -> Law:
        """The same of all that are in it, but for the luck of their guesses."""
        import numpy as np

        alike = np.array([loop.tpot_s * self._tokens_per_step]), np.ones(1)
        return by_luck(alike, self._engine.curve, self.output_tokens - 1)

    def completed_per_s(self, inside: int) -> float:
        """Requests per second; never less with more inside, as fitted waits would have it of a few."""
        numbers, rates = self._rates
        at = bisect_left(numbers, inside)
        if numbers[at] == inside:
            return rates[at]
        along = (inside - numbers[at - 1]) / (numbers[at] - numbers[at - 1])
        return rates[at - 1] + along * (rates[at] - rates[at - 1])

    @property
    def sustained_per_s(self) -> float:
        """With the gate full."""
        return self._rates[1][-1]

    @cached_property
    def _rates(self) -> tuple[list[int], list[float]]:
        numbers, rates = [0], [0.0]
        while numbers[-1] < self.gate:
            last = numbers[-1]
            numbers.append(min(self.gate, last + max(1, last // 16 if last >= EXACTLY else 1)))
            rates.append(max(rates[-1], self.loop(numbers[-1]).requests_per_s))
        return numbers, rates

    def _loop(self, inside: int, requests: float) -> Loop:
        clients = self._clients(inside, requests)
        found = closed_loop(self._engine, clients, copies=self._copies, waiting=self._waiting)
        if not self.think_s or not self._waiting.together or not found.burst_s:
            return found
        # Who thinks for longer than prompts of all take is no longer with those whom he began with.
        burst_s = 2 * found.burst_s / found.together
        together = self._waiting.together * burst_s / (burst_s + self.think_s)
        waiting = msgspec.structs.replace(self._waiting, together=together)
        return closed_loop(self._engine, clients, copies=self._copies, waiting=waiting)

    def _clients(self, count: int, requests: float) -> Clients:
        return Clients(
            count=count,
            prompt_tokens=self._prompt_tokens,
            output_tokens=self.output_tokens,
            cached_tokens=self._cached_tokens,
            requests=requests,
            alike=0.0 if requests == inf else 1.0,  # only benchmarks' lengths are all the same
            tokens_per_step=self._tokens_per_step,
        )
