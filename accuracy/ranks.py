"""How do data-parallel ranks behave that must step together?

Each rank schedules for itself (vLLM, first come, first served, chunked prefill, KV memory never short), but
in every mixture-of-experts layer all ranks exchange tokens, so that a step ends for all of them at once and
lasts as long as the busiest needs. A rank with nothing to do computes one dummy token.

vLLM 0.19: `v1/engine/core_client.py` (`DPLBAsyncMPClient`: a request goes to the rank with the smallest
4 x waiting + running, both as told every 100 ms and counted on between), `v1/engine/core.py`
(`step_with_batch_queue`: a step is planned while the one before it runs).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import floor

from accuracy.runs import Request
from tidegate.core.curve import Chunk
from tidegate.sim.settings import ReplicaSettings

TOLD_EVERY_S = 0.1
AHEAD = 2
"""Steps that are planned or under way at once."""

Batch = tuple[int, int, tuple[Chunk, ...]]
"""Decoding sequences, tokens that they attend to, chunks of prompts: of one rank, in one step."""
DUMMY: Batch = (1, 1, ())


@dataclass(slots=True, eq=False)
class _Rank:
    """One scheduler. Steps are numbered; a request's first token comes with one, its last with another."""

    settings: ReplicaSettings
    waiting: deque[Request] = field(default_factory=deque)
    running: int = 0
    partial: tuple[Request, int] | None = None
    """A prompt that did not fit into a step whole, and how much of it was computed."""
    decodes: int = 0
    context_tokens: int = 0
    step: int = -1
    """What the two above are of."""
    starting: dict[int, list[Request]] = field(default_factory=lambda: defaultdict(list))
    ending: dict[int, list[Request]] = field(default_factory=lambda: defaultdict(list))
    cached: set[int] = field(default_factory=set)

    def plan(self, step: int) -> Batch | None:
        """What the step computes; None: nothing."""
        if step > self.step:
            self._move_on(step)
        budget = self.settings.max_batched_tokens - self.decodes
        chunks: list[Chunk] = []
        while budget > 0 and (prompt := self._prompt()) is not None:
            request, computed = prompt
            new = min(request.prompt_tokens - computed, budget)
            chunks.append((new, computed))
            budget -= new
            if computed + new < request.prompt_tokens:
                self.partial = (request, computed + new)
            else:
                self.starting[step].append(request)
                self.ending[step + request.output_tokens - 1].append(request)
        return (self.decodes, self.context_tokens, tuple(chunks)) if self.decodes or chunks else None

    def _move_on(self, step: int) -> None:
        """From the decoding sequences of the step before to those of this one."""
        self.step = step
        self.context_tokens += self.decodes
        for request in self.starting[step - 1]:
            self.decodes += 1
            self.context_tokens += request.prompt_tokens + 1
        for request in self.ending[step - 1]:
            self.decodes -= 1
            self.context_tokens -= request.prompt_tokens + request.output_tokens

    def _prompt(self) -> tuple[Request, int] | None:
        """Whose prompt is computed next: the one that was begun, or the first that waits."""
        if self.partial is not None:
            prompt, self.partial = self.partial, None
            return prompt
        if not self.waiting or self.running == self.settings.max_num_seqs:
            return None
        request = self.waiting.popleft()
        self.running += 1
        found = self._found(request)
        self.cached.update(request.blocks)
        return request, found

    def _found(self, request: Request) -> int:
        """Tokens in the prefix cache, which forgets nothing; the last of a prompt is always computed."""
        usable = min((request.prompt_tokens - 1) // self.settings.block_tokens, len(request.blocks))
        found = 0
        while found < usable and request.blocks[found] in self.cached:
            found += 1
        return found * self.settings.block_tokens

    def end(self, step: int) -> tuple[list[Request], list[Request]]:
        """Whose first token, and whose last, came with this step."""
        self.running -= len(self.ending[step])
        return self.starting[step], self.ending[step]


@dataclass(slots=True, eq=False)
class Ranks:
    """`count` ranks. `step_s`: seconds of a step in which they compute these batches."""

    settings: ReplicaSettings
    count: int
    step_s: Callable[[Sequence[Batch]], float]

    def replay(self, requests: Sequence[Request]) -> dict[int, tuple[float, float]]:
        """When each request's first and last token came, if they come when they came."""
        ranks = [_Rank(self.settings) for _ in range(self.count)]
        desk = _Desk(ranks, deque(sorted(requests, key=lambda request: request.arrival_s)))
        queued = deque(sorted(requests, key=lambda request: request.queued_s))
        first_s: dict[int, float] = {}
        last_s: dict[int, float] = {}
        flight: deque[tuple[int, float]] = deque()
        now, step = 0.0, 0
        while queued or flight or any(rank.waiting for rank in ranks):
            if not flight and not any(rank.waiting for rank in ranks):
                now = max(now, queued[0].queued_s)
            desk.open(now)
            while queued and queued[0].queued_s <= now:
                request = queued.popleft()
                ranks[desk.rank_of[request.id]].waiting.append(request)
            while len(flight) < AHEAD:
                batches = [rank.plan(step) for rank in ranks]
                if not any(batches):
                    break
                start_at = flight[-1][1] if flight else now
                flight.append((step, start_at + self.step_s([batch or DUMMY for batch in batches])))
                step += 1
            ended, now = flight.popleft()
            for rank in ranks:
                started, finished = rank.end(ended)
                first_s.update((request.id, now) for request in started)
                last_s.update((request.id, now) for request in finished)
        return {request.id: (first_s[request.id], last_s[request.id]) for request in requests}


@dataclass(slots=True, eq=False)
class _Desk:
    """Which rank does a request go to?"""

    ranks: list[_Rank]
    arriving: deque[Request]
    rank_of: dict[int, int] = field(default_factory=dict)
    told: list[int] = field(default_factory=list)
    tick: int = -1

    def open(self, now: float) -> None:
        """Give a rank to all that arrived by now. The ranks are as their last step left them."""
        while self.arriving and self.arriving[0].arrival_s <= now:
            request = self.arriving.popleft()
            tick = floor(request.arrival_s / TOLD_EVERY_S)
            if tick > self.tick:
                self.tick = tick
                self.told = [4 * len(rank.waiting) + rank.running for rank in self.ranks]
            rank = self.told.index(min(self.told))
            self.told[rank] += 4
            self.rank_of[request.id] = rank
