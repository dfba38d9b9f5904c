"""When does a replica of an engine do what?"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, nextafter

from tidegate.core.curve import Chunk
from tidegate.core.messages import FIRST_PROGRESS_TOKENS
from tidegate.sim.profiles import Profile
from tidegate.sim.sequence import FINISHED, FIRST_TOKEN, PROGRESS, Happening, Sequence

__all__ = ["FINISHED", "FIRST_TOKEN", "PROGRESS", "Counters", "Happening", "OnBatch", "Replica", "Sequence"]

OnBatch = Callable[[float, float, int, int, int, int, float], None]
"""start_at, end_at, steps, decodes, prefill tokens, waiting, KV in use 0..1."""


@dataclass(slots=True)
class Counters:
    """Totals since the start."""

    prefill_tokens: int = 0
    """Prompt tokens computed, those computed again after a preemption included."""
    decode_tokens: int = 0
    """Tokens computed by decode steps."""
    preemptions: int = 0
    steps: int = 0
    prefix_queried_tokens: int = 0
    prefix_hit_tokens: int = 0
    busy_s: float = 0.0


class Replica:
    """One engine (plain steps; macro-steps replace this)."""

    def __init__(
        self, profile: Profile, rng: random.Random | None = None, *, on_batch: OnBatch | None = None
    ) -> None:
        self.settings = settings = profile.replica
        self.curve = profile.curve
        self.counters = Counters()
        self.on_batch = on_batch
        self.free_blocks = settings.blocks
        self._running: list[Sequence] = []
        self._waiting: deque[Sequence] = deque()
        self._at: float | None = None
        self._end = inf
        self._start = 0.0
        self._ends: list[Sequence] = []
        self._chunks: list[Chunk] = []
        self._decodes = 0
        self._pace = 1.0
        self._told: list[Happening] = []

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def kv_used_ratio(self) -> float:
        return 1 - self.free_blocks / self.settings.blocks

    def submit(self, now: float, sequence: Sequence) -> str | None:
        tokens = sequence.prompt_tokens + sequence.output_tokens
        if tokens > self.settings.sequence_tokens:
            most = self.settings.sequence_tokens
            return f"{sequence.prompt_tokens} + {sequence.output_tokens} tokens never fit in {most}"
        self._run(now)
        sequence.arrived_at = now
        self._waiting.append(sequence)
        if self._at is None and self._end == inf:
            self._at = now
        return None

    def cancel(self, now: float, sequence: Sequence) -> int:
        self._run(now)
        if sequence in self._running:
            self._running.remove(sequence)
            self.free_blocks += sequence.blocks
        elif sequence in self._waiting:
            self._waiting.remove(sequence)
        if sequence in self._ends:
            self._ends.remove(sequence)
        return sequence.produced

    def next_at(self) -> float:
        if self._told:
            return self._told[0].at
        if self._at is not None:
            return nextafter(self._at, inf) if self._running or self._waiting else inf
        return self._end

    def advance(self, now: float) -> list[Happening]:
        self._run(now)
        told, self._told = self._told, []
        return told

    def tokens_at(self, sequence: Sequence, now: float) -> int:
        self._run(now)
        return sequence.produced

    def boundary_after(self, now: float) -> float:
        self._run(now)
        return self.next_at()

    def slow(self, now: float, factor: float) -> None:
        self._run(now)
        self._pace = factor

    def clear(self, now: float) -> list[Sequence]:
        self._run(now)
        lost = [*self._running, *self._waiting]
        self._running.clear()
        self._waiting.clear()
        self._ends.clear()
        self._at, self._end, self.free_blocks = None, inf, self.settings.blocks
        return lost

    def check(self) -> None:
        assert self.free_blocks + sum(s.blocks for s in self._running) == self.settings.blocks

    def _run(self, now: float) -> None:
        while True:
            if self._at is not None and self._at < now:
                self._plan(self._at)
            elif self._at is None and self._end <= now:
                self._close()
            else:
                return

    def _room(self, sequence: Sequence, tokens: int) -> bool:
        lacking = -(-(sequence.computed + tokens) // self.settings.block_tokens) - sequence.blocks
        while lacking > self.free_blocks:
            victim = self._running.pop()
            self.free_blocks += victim.blocks
            victim.blocks = victim.computed = 0
            victim.preemptions += 1
            self.counters.preemptions += 1
            self._preempted = True
            self._waiting.appendleft(victim)
            if victim is sequence:
                return False
        self.free_blocks -= lacking
        sequence.blocks += lacking
        return True

    def _plan(self, now: float) -> None:
        budget = self.settings.max_batched_tokens
        entries: list[tuple[Sequence, int]] = []
        self._preempted = False
        i = 0
        while i < len(self._running) and budget:
            sequence = self._running[i]
            tokens = min(budget, sequence.prompt_tokens + sequence.produced - sequence.computed)
            if not self._room(sequence, tokens):
                break
            entries.append((sequence, tokens))
            budget -= tokens
            i += 1
        while self._waiting and budget and not self._preempted and self.running < self.settings.max_num_seqs:
            sequence = self._waiting[0]
            known = sequence.prompt_tokens + sequence.produced
            if -(-known // self.settings.block_tokens) > self.free_blocks:
                break
            tokens = min(budget, known)
            self._waiting.popleft()
            self._running.append(sequence)
            self._room(sequence, tokens)
            entries.append((sequence, tokens))
            budget -= tokens
        self._at = None
        if not entries:
            return
        context = decodes = 0
        chunks = []
        self._ends = []
        for sequence, tokens in entries:
            if tokens == 1 and sequence.produced and sequence.computed:
                decodes += 1
                context += sequence.computed + 1
                self.counters.decode_tokens += 1
            else:
                chunks.append((tokens, sequence.computed))
                self.counters.prefill_tokens += tokens
            sequence.computed += tokens
            if sequence.computed == sequence.prompt_tokens + sequence.produced:
                self._ends.append(sequence)
        self._start = now
        self._decodes, self._chunks = decodes, chunks
        self._end = now + self.curve.step_s(decodes, context, chunks) * self._pace / self.settings.speed

    def _close(self) -> None:
        at = self._end
        self.counters.steps += 1
        self.counters.busy_s += at - self._start
        if self.on_batch is not None:
            self.on_batch(
                self._start,
                at,
                1,
                self._decodes,
                sum(n for n, _ in self._chunks),
                self.waiting,
                self.kv_used_ratio,
            )
        for sequence in self._ends:
            sequence.produced += 1 if sequence.output_tokens else 0
            if sequence.produced == 1:
                self._told.append(Happening(at, FIRST_TOKEN, sequence, 1))
            if sequence.produced >= sequence.output_tokens:
                self._running.remove(sequence)
                self.free_blocks += sequence.blocks
                sequence.blocks = 0
                self._told.append(Happening(at, FINISHED, sequence, sequence.produced))
            elif (
                sequence.produced >= FIRST_PROGRESS_TOKENS
                and sequence.produced & (sequence.produced - 1) == 0
            ):
                self._told.append(Happening(at, PROGRESS, sequence, sequence.produced))
        self._ends = []
        self._end = inf
        self._at = at if self._running or self._waiting else None
