"""Who is computed in the next step, and who must give way?

As vLLM 0.19 (`v1/core/sched/scheduler.py`, `v1/core/kv_cache_manager.py`): a step spends its token budget on
the running sequences first, in the order of their admission, then on the waiting ones. A running one that
finds no block preempts the last admitted (with priorities: the last in rank), which loses its cache, goes
back to the queue, and is computed again; in such a step nobody is admitted. A waiting one is admitted only if
all that is known of it fits; who comes later does not overtake it.

Promises, which `check` asserts: every block is free or held, and the batch keeps its bounds. The first in
rank is never preempted, so somebody always gets on. (vLLM keeps one block to itself; `kv_tokens` is without.)
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.core.curve import Chunk
from tidegate.sim.decoding import Decoding
from tidegate.sim.prefixes import Found, PrefixCache
from tidegate.sim.sequence import Sequence
from tidegate.sim.settings import ReplicaSettings
from tidegate.sim.waiting import ByArrival, ByPriority, Waiting


@dataclass(slots=True)
class Counters:
    """Totals since the replica started."""

    prefill_tokens: int = 0
    """Prompt tokens computed, and what was computed again after a preemption."""
    decode_tokens: int = 0
    """Tokens computed for sequences that decode, guesses included."""
    preemptions: int = 0
    steps: int = 0
    prefix_queried_tokens: int = 0
    """Tokens of admitted sequences, each admission anew."""
    prefix_hit_tokens: int = 0
    """Those of them that the prefix cache had."""
    busy_s: float = 0.0


class Step:
    """What one step computes."""

    __slots__ = ("chunks", "context_tokens", "decodes", "ending", "idle", "prefill_tokens")

    def __init__(self) -> None:
        self.decodes: int = 0
        self.context_tokens: float = 0.0  # that the decoding sequences attend to, in sum
        self.chunks: list[Chunk] = []
        self.prefill_tokens: int = 0  # of the chunks, in sum
        self.ending: list[Sequence] = []  # all of whose known tokens are computed when it ends, by a chunk
        self.idle: list[Sequence] = []  # that decode, but not in this step: the budget was spent before


NOTHING = Found()


class Scheduler:
    """The batch, the queue and the blocks of one engine."""

    __slots__ = (
        "_blocked",
        "_cache",
        "_rank",
        "_settings",
        "counters",
        "decoding",
        "free_blocks",
        "prefilling",
        "running",
        "waiting",
    )

    def __init__(self, settings: ReplicaSettings, counters: Counters) -> None:
        self._settings = settings
        self.counters = counters
        self.running: dict[Sequence, None] = {}  # in the order of admission
        self.prefilling: list[Sequence] = []  # those of them whose known tokens are not all computed yet
        self.decoding = Decoding(settings)
        self.waiting: Waiting = ByPriority() if settings.priority else ByArrival()
        self.free_blocks = settings.blocks
        self._cache = PrefixCache(settings, self.decoding) if settings.prefix_cache else None
        self._rank = 0
        self._blocked = False  # the head of the queue does not fit, and no decode step will change that

    # -- who comes and goes -------------------------------------------------------------------------------

    def enqueue(self, sequence: Sequence) -> bool:
        """Queue a newcomer. True if it may have a part in the next step."""
        if self.waiting.append(sequence):
            self._blocked = False
        return not self._blocked and len(self.running) < self._settings.max_num_seqs

    def remove(self, sequence: Sequence) -> bool:
        """It is complete, or not wanted any more. True if that may change the next step."""
        if sequence in self.running:
            self._take_out(sequence, gone=True)
        else:
            was_head = self.waiting.count > 0 and self.waiting.head() is sequence
            self.waiting.remove(sequence)
            if not was_head:
                return False
        self._blocked = False
        return True

    @property
    def busy(self) -> bool:
        """True if there is work."""
        return bool(self.running) or self.waiting.count > 0

    def join(self, sequence: Sequence) -> None:
        """Its known tokens are computed; from now on it decodes."""
        self.decoding.add(sequence)
        if self._cache is not None:
            self._cache.watch(sequence)

    def _take_out(self, sequence: Sequence, *, gone: bool, tokens: int = 0, blocks: int = 0) -> None:
        """Out of the batch. `tokens`, `blocks`: what the step being planned had given it before."""
        decoding = self.decoding
        decodes = sequence.due >= 0
        if decodes:
            blocks += decoding.blocks_of(sequence)
        else:
            blocks += sequence.blocks
            if sequence in self.prefilling:
                self.prefilling.remove(sequence)
        if self._cache is not None:
            if not decodes:
                tokens += sequence.computed
            elif tokens:
                tokens += decoding.computed_of(sequence)
            else:
                tokens = decoding.verified_of(sequence)
            full = tokens // self._settings.block_tokens
            blocks = self._cache.give_back(sequence, blocks, full, gone=gone)
        self.free_blocks += blocks
        if decodes:
            decoding.remove(sequence)
        del self.running[sequence]
        sequence.computed = sequence.blocks = 0
        sequence.rank = -1

    # -- the next step --------------------------------------------------------------------------------------

    def steady_steps(self) -> int:
        """Coming steps that only decode, whoever comes before they begin. 0: the next one must be planned."""
        if self.prefilling or not self.decoding.growth.count:
            return 0
        if self.waiting.count and not self._blocked and len(self.running) < self._settings.max_num_seqs:
            return 0
        return self.decoding.steps_within(self.free_blocks)

    def begin_decoding(self, steps: int) -> None:
        """So many steps are begun in which all sequences decode."""
        self._take(self.decoding.blocks_for(steps))
        self.decoding.begin(steps)
        self.counters.decode_tokens += steps * self.decoding.growth.count * (1 + self.decoding.draft_tokens)

    def plan(self) -> Step:
        """Begin the next step, in which anything may happen."""
        step = Step()
        budget = self._continue_at_once(step)
        if budget is None:
            budget = self._continue_one_by_one(step)
        if budget is not None:
            self._admit(step, budget)
        return step

    def _continue_at_once(self, step: Step) -> int | None:
        """All that runs, if there is enough for everybody: the budget left. None: not so."""
        decoding, count = self.decoding, self.decoding.growth.count
        budget = self._settings.max_batched_tokens - count * (1 + decoding.draft_tokens)
        blocks = decoding.blocks_for(1)
        shares = []
        for sequence in self.prefilling:
            wanted = self._wanted(sequence)
            tokens = min(wanted, budget)
            if tokens < wanted and self._settings.long_prefill_tokens:
                return None  # some that decode may come after it: the order decides
            lacking = self._lacking(sequence, tokens)
            shares.append((sequence, tokens, lacking))
            budget -= tokens
            blocks += lacking
        if blocks > self.free_blocks:
            return None
        step.decodes, step.context_tokens = count, decoding.context_tokens() if count else 0.0
        if count:
            self.begin_decoding(1)
        for sequence, tokens, lacking in shares:
            self._take(lacking)
            sequence.blocks += lacking
            self._compute(step, sequence, tokens)
        return budget

    def _continue_one_by_one(self, step: Step) -> int | None:
        """All that runs, in order, as far as there is for it: the budget left. None: some were preempted."""
        decoding = self.decoding
        budget, preempted = self._settings.max_batched_tokens, False
        shares: dict[Sequence, tuple[int, int]] = {}
        for sequence in list(self.running):
            if sequence.rank < 0:
                continue  # preempted for one before it
            tokens = 1 + decoding.draft_tokens if sequence.due >= 0 else min(self._wanted(sequence), budget)
            if not 0 < tokens <= budget:
                break
            lacking = self._lacking(sequence, tokens)
            while lacking > self.free_blocks and sequence.rank >= 0:
                preempted = True
                budget += self._preempt(self._victim(), shares)
            if sequence.rank < 0:
                break  # it was itself the victim; vLLM looks no further
            shares[sequence] = tokens, lacking
            self._take(lacking)
            budget -= tokens
        self._begin(step, shares)
        return None if preempted else budget

    def _begin(self, step: Step, shares: dict[Sequence, tuple[int, int]]) -> None:
        """Compute what was shared out, for which the blocks are taken."""
        decoding, per_decode = self.decoding, 1 + self.decoding.draft_tokens
        step.idle = [one for one in self.running if one.due >= 0 and one not in shares]
        for sequence in step.idle:
            decoding.suspend(sequence)
        step.decodes = decoding.growth.count
        if step.decodes:
            step.context_tokens = decoding.context_tokens()
        decoding.begin(1)
        self.counters.decode_tokens += step.decodes * per_decode
        for sequence in step.idle:
            decoding.resume(sequence)
        for sequence, (tokens, lacking) in shares.items():
            if sequence.due < 0:
                sequence.blocks += lacking
                self._compute(step, sequence, tokens)

    def _compute(self, step: Step, sequence: Sequence, tokens: int) -> None:
        """A chunk of a running sequence, for which it has the blocks."""
        step.chunks.append((tokens, sequence.computed))
        step.prefill_tokens += tokens
        sequence.computed += tokens
        self.counters.prefill_tokens += tokens
        if self._cache is not None:
            self._cache.keep(sequence, sequence.computed // self._settings.block_tokens)
        if sequence.computed == sequence.known:
            self.prefilling.remove(sequence)
            step.ending.append(sequence)

    def _wanted(self, sequence: Sequence) -> int:
        left, most = sequence.known - sequence.computed, self._settings.long_prefill_tokens
        return min(left, most) if most else left

    def _lacking(self, sequence: Sequence, tokens: int) -> int:
        """Blocks that a running one needs for so many tokens more."""
        if sequence.due >= 0:
            return self.decoding.lacking(sequence)
        return max(0, -(-(sequence.computed + tokens) // self._settings.block_tokens) - sequence.blocks)

    def _take(self, blocks: int) -> None:
        self.free_blocks -= blocks
        if self._cache is not None:
            self._cache.take(blocks)

    def _victim(self) -> Sequence:
        if self._settings.priority:
            return max(self.running, key=lambda one: (one.priority, one.arrived_at, one.id))
        return next(reversed(self.running))

    def _preempt(self, sequence: Sequence, shares: dict[Sequence, tuple[int, int]]) -> int:
        """It gives up its blocks, to be computed again; and the tokens of this step, which are returned."""
        tokens, blocks = shares.pop(sequence, (0, 0))
        computed = tokens
        if sequence.due >= 0:
            sequence.produced = self.decoding.produced_of(sequence, self.decoding.step)
            computed = min(tokens, 1)  # guesses are not known yet
        self._take_out(sequence, gone=False, tokens=computed, blocks=blocks)
        sequence.preemptions += 1
        sequence.delivered_tokens = 0
        self.counters.preemptions += 1
        self.waiting.put_back(sequence)
        self._blocked = False
        return tokens

    def _admit(self, step: Step, budget: int) -> None:
        """Those that wait, as far as budget, seats and blocks go."""
        waiting, running, settings = self.waiting, self.running, self._settings
        while waiting.count and budget > 0 and len(running) < settings.max_num_seqs:
            sequence = waiting.head()
            found = NOTHING
            if self._cache is not None and not sequence.delivered_tokens:
                found = self._cache.find(sequence, sequence.known)
            sequence.computed = sequence.delivered_tokens or found.blocks * settings.block_tokens
            tokens = self._wanted(sequence)
            if tokens > budget:
                tokens = budget if settings.chunked_prefill else 0
            if not tokens or self._needed(sequence, tokens) - found.blocks + found.unused > self.free_blocks:
                sequence.computed = 0
                self._blocked = not (step.chunks or found.growing)
                break
            self._seat(sequence, found, tokens)
            self._compute(step, sequence, tokens)
            budget -= tokens

    def _needed(self, sequence: Sequence, tokens: int) -> int:
        """Blocks that must be there, its own found ones too, for it to be admitted with so many tokens."""
        settings = self._settings
        if settings.kv == "reserved":
            tokens = sequence.prompt_tokens + max(sequence.max_tokens, sequence.output_tokens)
        else:
            tokens = sequence.known if settings.whole_prompt_must_fit else sequence.computed + tokens
        return -(-tokens // settings.block_tokens)

    def _seat(self, sequence: Sequence, found: Found, tokens: int) -> None:
        """Admit it: a seat, what was found, and the blocks for so many tokens."""
        self.waiting.remove(sequence)
        self.running[sequence] = None
        self.prefilling.append(sequence)
        sequence.rank = self._rank
        self._rank += 1
        counters, cached = self.counters, sequence.computed
        if self._cache is not None:
            self._cache.use(sequence, found)
            self.free_blocks -= found.unused
            if not sequence.delivered_tokens:
                counters.prefix_queried_tokens += sequence.known
                counters.prefix_hit_tokens += cached
                if not sequence.preemptions:
                    sequence.cached_tokens = cached
        sequence.blocks = -(-(cached + tokens) // self._settings.block_tokens)
        if self._settings.kv == "reserved":
            sequence.blocks = self._needed(sequence, tokens)
        self._take(sequence.blocks - found.blocks)

    def check(self) -> None:
        """Assert what this module promises."""
        settings, decoding = self._settings, self.decoding
        decodes = [one for one in self.running if one.due >= 0]
        held = sum(decoding.blocks_of(one) if one.due >= 0 else one.blocks for one in self.running)
        assert 0 <= self.free_blocks <= settings.blocks
        assert len(self.running) <= settings.max_num_seqs
        assert len(decodes) == decoding.growth.count
        assert not any(one in self.running for one in self.waiting)
        assert [one for one in self.running if one in self.prefilling] == self.prefilling
        for one in self.running:
            tokens = decoding.computed_of(one) if one.due >= 0 else one.computed
            assert tokens <= one.prompt_tokens + one.output_tokens
        for one in self.waiting:
            assert one.rank < 0
            assert one.computed == one.blocks == len(one.extents) == 0
        if self._cache is None:
            assert held + self.free_blocks == settings.blocks
        else:
            self._cache.check(self.free_blocks)
