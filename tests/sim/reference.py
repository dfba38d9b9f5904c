"""What would vLLM's scheduler decide, step by step, block by block?

A second, independent replica to judge `tidegate.sim.replica` by: one loop turn per step, every KV block
an object of its own, nothing advanced in closed form. Slow and plain on purpose. The rules are those of
vLLM 0.19.0: `vllm/v1/core/sched/scheduler.py` (`schedule`, `update_from_output`), `kv_cache_manager.py`,
`single_type_kv_cache_manager.py` and `block_pool.py`; each method below names the one it follows.

Outside vLLM: contiguous reservation (`kv="reserved"`: nothing is admitted whose prompt and `max_tokens` do
not fit beside what runs); a caller that leaves, whose blocks are free at once; and speculation, of which only
the number of steps is drawn (`decode_steps`, given), over which an output is spread evenly.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

Key = Hashable


class Settings(Protocol):
    """What the reference reads of `tidegate.sim.settings.ReplicaSettings`."""

    @property
    def max_num_seqs(self) -> int: ...
    @property
    def max_batched_tokens(self) -> int: ...
    @property
    def kv_tokens(self) -> int: ...
    @property
    def block_tokens(self) -> int: ...
    @property
    def chunked_prefill(self) -> bool: ...
    @property
    def kv(self) -> str: ...
    @property
    def prefix_cache(self) -> bool: ...
    @property
    def priority(self) -> bool: ...
    @property
    def long_prefill_tokens(self) -> int: ...
    @property
    def whole_prompt_must_fit(self) -> bool: ...
    @property
    def draft_tokens(self) -> int: ...


class Curve(Protocol):
    """What the reference reads of `tidegate.core.curve.Curve`."""

    def step_s(
        self, decodes: int, context_tokens: float, chunks: Sequence[tuple[int, int]], draft_tokens: int
    ) -> float: ...


@dataclass(eq=False, slots=True)
class Block:
    """`KVCacheBlock`."""

    number: int
    references: int = 0
    key: Key | None = None


class BlockPool:
    """`BlockPool`: the free queue in the order of eviction, and which blocks hold which content."""

    def __init__(self, blocks: int) -> None:
        self.free: OrderedDict[int, Block] = OrderedDict((n, Block(n)) for n in range(blocks))
        self.cached: dict[Key, dict[int, Block]] = {}
        self.evictions = 0

    def find(self, key: Key) -> Block | None:
        """`get_cached_block`: of several with the same content, the one that was cached first."""
        return next(iter(self.cached.get(key, {}).values()), None)

    def take(self, count: int) -> list[Block]:
        """`get_new_blocks`: from the head of the queue; what they held is forgotten."""
        taken = [self.free.popitem(last=False)[1] for _ in range(count)]
        for block in taken:
            self.forget(block)
            block.references = 1
        return taken

    def forget(self, block: Block) -> None:
        """`_maybe_evict_cached_block`."""
        if block.key is None:
            return
        same = self.cached[block.key]
        del same[block.number]
        if not same:
            del self.cached[block.key]
        block.key = None
        self.evictions += 1

    def touch(self, blocks: list[Block]) -> None:
        """`touch`: what is used again leaves the free queue."""
        for block in blocks:
            if block.references == 0:
                del self.free[block.number]
            block.references += 1

    def keep(self, block: Block, key: Key) -> None:
        """`cache_full_blocks`, for one of them."""
        block.key = key
        self.cached.setdefault(key, {})[block.number] = block

    def release(self, blocks: list[Block]) -> None:
        """`free`: tail first, so that the tail is evicted first."""
        for block in reversed(blocks):
            block.references -= 1
            if block.references == 0:
                self.free[block.number] = block


@dataclass(eq=False, slots=True)
class Job:
    """A request as the scheduler sees it."""

    id: int
    prompt_tokens: int
    output_tokens: int
    max_tokens: int
    priority: int = 0
    prefix: tuple[int, ...] = ()
    prefix_block_tokens: int = 16
    arrived_at: float = 0.0
    produced: int = 0
    in_flight: int = 0  # output tokens of steps that were planned and have not ended
    computed: int = 0  # tokens whose keys and values are, or by a planned step will be, in the cache
    catching_up: bool = True  # has produced nothing since its (latest) admission
    blocks: list[Block] = field(default_factory=list)
    kept: int = 0  # leading blocks that the prefix cache knows
    cached_tokens: int = -1  # found in the prefix cache at the first admission; -1: not yet admitted
    preemptions: int = 0
    first_token_at: float = inf
    finished_at: float = inf
    mark: int = 32  # output tokens at which progress is told next
    decode_steps: int = 0  # with speculation: that the rest of the output takes
    base: int = 0  # with speculation: output tokens before that rest
    made: int = 0  # with speculation: of those steps

    @property
    def tokens(self) -> int:
        """`num_tokens`."""
        return self.prompt_tokens + self.produced

    def keys(self, block_tokens: int) -> Iterator[Key]:
        """`block_hashes`: shared in the prefix, its own after it."""
        shared = len(self.prefix) * self.prefix_block_tokens // block_tokens
        per_prefix_block = self.prefix_block_tokens // block_tokens
        for number in range(self.tokens // block_tokens):
            if number < shared:
                yield ("shared", self.prefix[number // per_prefix_block], number % per_prefix_block)
            else:
                yield ("own", self.id, number)


@dataclass(eq=False, slots=True)
class Step:
    """What was planned to be computed between two boundaries."""

    start_at: float
    end_at: float
    scheduled: list[Job]
    producing: list[Job]
    decoding: list[Job]
    chunks: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Boundary:
    """The end of a step, and the state that it left."""

    at: float
    produced: dict[int, int]  # of all that were running
    free_blocks: int
    running: int
    waiting: int


FIRST_TOKEN, PROGRESS, FINISHED = "first token", "progress", "finished"


@dataclass(eq=False)
class Reference:
    """One replica. `async_scheduling`: vLLM's default, which plans a step while the one before it runs."""

    settings: Settings
    curve: Curve
    async_scheduling: bool = False
    waiting: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    boundaries: list[Boundary] = field(default_factory=list)
    admissions: list[tuple[float, int, int]] = field(default_factory=list)  # at, id, cached tokens
    preemptions: list[tuple[float, int]] = field(default_factory=list)
    told: list[tuple[float, str, int, int]] = field(default_factory=list)  # at, what, id, output tokens
    steps: list[Step] = field(default_factory=list)
    plan_at: float | None = None  # when the scheduler runs next; a caller at that very instant is in time
    pace: float = 1.0

    def __post_init__(self) -> None:
        self.pool = BlockPool(self.settings.kv_tokens // self.settings.block_tokens)
        self.flight: deque[Step] = deque()

    # ---- what a driver calls

    def submit(self, now: float, job: Job) -> None:
        """`add_request`."""
        self.advance(now)
        job.arrived_at = now
        self.enqueue(job, ahead=False)
        if self.plan_at is None and not self.flight:
            self.plan_at = now

    def cancel(self, now: float, job: Job) -> int:
        """`finish_requests`, effective at once; the step under way keeps its length."""
        self.advance(now)
        for jobs in (self.waiting, self.running):
            if job in jobs:
                jobs.remove(job)
        self.give_back(job)
        for step in self.flight:
            step.scheduled = [other for other in step.scheduled if other is not job]
            step.producing = [other for other in step.producing if other is not job]
        if not (self.flight or self.running or self.waiting):
            self.plan_at = None
        return job.produced

    def boundary_after(self, now: float) -> float:
        """The end of the step under way at `now`, or of the one that starts there. inf: idle."""
        self.advance(now)
        if self.plan_at is not None:
            self.plan(self.plan_at)
            self.plan_at = None
        return self.flight[0].end_at if self.flight else inf

    def slow(self, now: float, factor: float) -> None:
        """Steps that start from now on take `factor` times as long."""
        self.advance(now)
        self.pace = factor

    def advance(self, now: float) -> None:
        """All steps that end by `now`; what could start at `now` still waits for who comes at `now`."""
        while True:
            if self.plan_at is not None:
                if self.plan_at >= now:
                    return
                self.plan(self.plan_at)
                self.plan_at = None
            elif self.flight and self.flight[0].end_at <= now:
                self.end(self.flight.popleft())
            else:
                return

    # ---- the scheduler

    def plan(self, now: float) -> None:
        """`step_with_batch_queue`: at most this many steps are planned ahead."""
        while len(self.flight) < (2 if self.async_scheduling else 1):
            preempted = len(self.preemptions)
            step = self.schedule(now)
            if not step.scheduled:
                if len(self.preemptions) > preempted:
                    continue  # the first in line gave way itself; an engine's loop comes round at once
                return
            self.flight.append(step)
            self.steps.append(step)

    def schedule(self, now: float) -> Step:
        """`schedule`: first what runs, then what waits."""
        budget = self.settings.max_batched_tokens
        shares: dict[int, tuple[Job, int]] = {}
        preempted = False
        index = 0
        while index < len(self.running) and budget > 0:
            job = self.running[index]
            if not job.catching_up and job.produced + job.in_flight >= job.output_tokens:
                index += 1
                continue
            new = min(self.at_most(job.tokens + job.in_flight - job.computed), budget)
            if not job.catching_up:
                new = 1 + self.settings.draft_tokens
                if new > budget:
                    break
            while not self.allocate(job, [], new):
                preempted = True
                victim = self.victim()
                self.running.remove(victim)
                if victim.id in shares:
                    budget += shares.pop(victim.id)[1]
                    index -= 1
                self.preempt(now, victim)
                if victim is job:
                    break
            if job not in self.running:
                break
            shares[job.id] = (job, new)
            budget -= new
            index += 1
        while not preempted and self.waiting and budget > 0:
            if len(self.running) == self.settings.max_num_seqs:
                break
            job = self.waiting[0]
            found = self.found(job)
            cached = len(found) * self.settings.block_tokens
            new = self.at_most(job.tokens - cached)
            if new > budget and not self.settings.chunked_prefill:
                break
            new = min(new, budget)
            if not self.fits(job, found):
                break
            job.computed = cached
            if not self.allocate(job, found, new):
                job.computed = 0
                break
            self.waiting.pop(0)
            self.running.append(job)
            self.admissions.append((now, job.id, cached))
            if job.cached_tokens < 0:
                job.cached_tokens = cached
            job.catching_up = True
            shares[job.id] = (job, new)
            budget -= new
        return self.step(now, list(shares.values()))

    def at_most(self, new: int) -> int:
        """`long_prefill_token_threshold`."""
        threshold = self.settings.long_prefill_tokens
        return min(new, threshold) if threshold > 0 else new

    def victim(self) -> Job:
        """Who is preempted: the last to be admitted, or the lowest in rank."""
        if self.settings.priority:
            return max(self.running, key=lambda job: (job.priority, job.arrived_at, job.id))
        return self.running[-1]

    def preempt(self, now: float, job: Job) -> None:
        """`_preempt_request`."""
        self.give_back(job)
        job.computed = 0
        job.decode_steps -= job.made
        job.base, job.made = job.produced, 0
        job.preemptions += 1
        self.preemptions.append((now, job.id))
        self.enqueue(job, ahead=True)

    def enqueue(self, job: Job, *, ahead: bool) -> None:
        """`FCFSRequestQueue` or `PriorityRequestQueue` (to which ahead and behind are the same)."""
        if self.settings.priority:
            self.waiting.append(job)
            self.waiting.sort(key=lambda job: (job.priority, job.arrived_at, job.id))
        elif ahead:
            self.waiting.insert(0, job)
        else:
            self.waiting.append(job)

    def step(self, now: float, shares: list[tuple[Job, int]]) -> Step:
        """How long it takes, and `_update_after_schedule`."""
        chunks = [(new, job.computed) for job, new in shares if job.catching_up]
        decoding = [job for job, _ in shares if not job.catching_up]
        drafts = self.settings.draft_tokens
        context_tokens = sum(self.in_cache(job) + 1 + drafts for job in decoding)
        producing = []
        for job, new in shares:
            job.computed += new if job.catching_up else 1
            if job.computed == job.tokens + job.in_flight:
                job.in_flight += 1
                job.catching_up = False
                producing.append(job)
        start_at = max(now, self.flight[-1].end_at) if self.flight else now
        seconds = self.curve.step_s(len(decoding), context_tokens, chunks, drafts * len(decoding))
        scheduled = [job for job, _ in shares]
        return Step(start_at, start_at + seconds * self.pace, scheduled, producing, decoding, chunks)

    def in_cache(self, job: Job) -> float:
        """Tokens whose keys and values a decoding one has; speculation's come evenly, parts of them too."""
        if not self.settings.draft_tokens:
            return job.computed
        whole = job.prompt_tokens + job.base - 1
        return whole + (job.output_tokens - job.base) * job.made / job.decode_steps

    def end(self, step: Step) -> None:
        """`update_from_output`."""
        finished = []
        for job in step.producing:
            job.in_flight -= 1
            self.produce(job, decoding=job in step.decoding)
            self.tell(step.end_at, job)
            if job.produced == job.output_tokens:
                job.finished_at = step.end_at
                finished.append(job)
                self.give_back(job)
        produced = {job.id: job.produced for job in self.running}
        for job in finished:  # it may have been preempted while its last token was under way
            (self.running if job in self.running else self.waiting).remove(job)
        self.boundaries.append(
            Boundary(step.end_at, produced, len(self.pool.free), len(self.running), len(self.waiting))
        )
        if self.flight or self.running or self.waiting:
            self.plan_at = step.end_at

    def produce(self, job: Job, *, decoding: bool) -> None:
        """One token more, or with speculation what its share of the steps yields."""
        drafts = self.settings.draft_tokens
        if not job.output_tokens:
            return
        if not drafts or not decoding:
            job.produced += 1
        else:
            job.made += 1
            job.produced = job.base + (job.output_tokens - job.base) * job.made // job.decode_steps
            job.computed = job.tokens - 1
        if drafts and not decoding:
            left = job.output_tokens - job.produced
            job.decode_steps = min(max(job.decode_steps - 1, -(-left // (1 + drafts))), left)
            job.base, job.made = job.produced, 0

    def tell(self, at: float, job: Job) -> None:
        """What whoever sent it wants to know."""
        if job.produced == 1 and job.first_token_at == inf:
            job.first_token_at = at
            self.told.append((at, FIRST_TOKEN, job.id, 1))
        if job.produced == job.output_tokens:
            self.told.append((at, FINISHED, job.id, job.produced))
        elif job.produced >= job.mark:
            self.told.append((at, PROGRESS, job.id, job.produced))
        while job.mark <= job.produced:
            job.mark *= 2

    # ---- the KV cache

    def found(self, job: Job) -> list[Block]:
        """`get_computed_blocks`: the last token is always computed, for its logits."""
        found: list[Block] = []
        if not self.settings.prefix_cache:
            return found
        usable = (job.tokens - 1) // self.settings.block_tokens
        for _, key in zip(range(usable), job.keys(self.settings.block_tokens), strict=False):
            block = self.pool.find(key)
            if block is None:
                break
            found.append(block)
        return found

    def fits(self, job: Job, found: list[Block]) -> bool:
        """`can_fit_full_sequence` (`scheduler_reserve_full_isl`), or the whole reservation."""
        if self.settings.kv == "reserved":
            return self.missing(job, found, job.prompt_tokens + job.max_tokens) <= len(self.pool.free)
        return not self.settings.whole_prompt_must_fit or self.missing(job, found, job.tokens) <= len(
            self.pool.free
        )

    def missing(self, job: Job, found: list[Block], tokens: int) -> int:
        """`get_num_blocks_to_allocate`: found blocks that nobody uses leave the free queue, too."""
        needed = -(-tokens // self.settings.block_tokens)
        unused = sum(block.references == 0 for block in found)
        return max(0, needed - len(job.blocks) - len(found)) + unused

    def allocate(self, job: Job, found: list[Block], new: int) -> bool:
        """`allocate_slots`."""
        tokens = job.computed + new
        if self.settings.kv == "reserved":
            tokens = job.prompt_tokens + job.max_tokens
        if self.missing(job, found, tokens) > len(self.pool.free):
            return False
        self.pool.touch(found)
        job.blocks += found
        job.kept += len(found)
        needed = -(-tokens // self.settings.block_tokens)
        job.blocks += self.pool.take(max(0, needed - len(job.blocks)))
        if self.settings.prefix_cache:
            full = min(job.computed + new, job.tokens) // self.settings.block_tokens
            keys = list(job.keys(self.settings.block_tokens))
            for number in range(job.kept, full):
                self.pool.keep(job.blocks[number], keys[number])
            job.kept = max(job.kept, full)
        return True

    def give_back(self, job: Job) -> None:
        """`free`."""
        self.pool.release(job.blocks)
        job.blocks = []
        job.kept = 0
