"""When do replicas do what that share the work: some compute prompts, some decode?

A prompt goes to the prefill replica with the fewest prompt tokens to compute. When it is computed its first
token is told, as DistServe and Splitwise do, and its keys and values go over a link, that all share or that
each replica has: transfers queue on it, each takes `latency_s` and its bytes' time, of which only the latter
keeps others waiting. Then it joins the decode replica with the fewest sequences. There it needs the blocks of
all its tokens, and computes only what follows. A decode replica that preempts it computes it again itself.

A simplification: a prefill replica's blocks are free as soon as the transfer is queued, as if it were staged.

Sources: Zhong et al., "DistServe", OSDI 2024; Patel et al., "Splitwise", ISCA 2024.
"""

from __future__ import annotations

from dataclasses import fields
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import TypeAlias

import msgspec

from tidegate.core.errors import CallerError
from tidegate.sim.happening import FINISHED, Happening
from tidegate.sim.profiles import Profile, named
from tidegate.sim.replica import OnBatch, Replica
from tidegate.sim.scheduler import Counters
from tidegate.sim.sequence import Sequence

Engine: TypeAlias = "Replica | Disaggregated"


def engine_of(profile: Profile, rng: Random | None = None, *, on_batch: OnBatch | None = None) -> Engine:
    """The replica or the replicas of a profile."""
    kind = Replica if profile.disaggregation is None else Disaggregated
    return kind(profile, rng, on_batch=on_batch)


class Work(msgspec.Struct, gc=False):
    """Where a sequence is, and what stands for it there."""

    number: int
    whole: Sequence
    part: Sequence
    replica: Replica | None
    """None: on the link."""


class Disaggregated:
    """Several replicas that are driven as one, by the methods of `Replica`."""

    __slots__ = (
        "_decode",
        "_free_at",
        "_link",
        "_link_of",
        "_now",
        "_numbers",
        "_parts",
        "_prefill",
        "_replicas",
        "_to_prefill",
        "_told",
        "_transfers",
        "_works",
        "settings",
    )

    def __init__(
        self, profile: Profile, rng: Random | None = None, *, on_batch: OnBatch | None = None
    ) -> None:
        """`rng` and `on_batch` as for `Replica`; what is shown are the batches of all."""
        parts = profile.disaggregation
        if parts is None:
            raise CallerError("a profile without disaggregation is one replica's")
        prefill = named(parts.prefill_profile) if parts.prefill_profile else profile
        prefill = profile.prefill or prefill
        self._prefill = [Replica(prefill, rng, on_batch=on_batch) for _ in range(parts.prefill_replicas)]
        self._decode = [Replica(profile, rng, on_batch=on_batch) for _ in range(parts.decode_replicas)]
        self._replicas = (*self._prefill, *self._decode)
        one = profile.replica
        self.settings = msgspec.structs.replace(
            one,
            max_num_seqs=one.max_num_seqs * parts.decode_replicas,
            max_batched_tokens=one.max_batched_tokens * parts.decode_replicas,
            kv_tokens=one.kv_tokens * parts.decode_replicas,
        )
        self._link = parts.link
        links = 1 if parts.link.shared else min(parts.prefill_replicas, parts.decode_replicas)
        self._free_at = [-inf] * links
        self._link_of = {replica: number % links for number, replica in enumerate(self._prefill)}
        self._now = -inf
        self._told: list[Happening] = []
        self._numbers = 0
        self._works: dict[Sequence, Work] = {}
        self._parts: dict[Sequence, Work] = {}  # the same, by what stands for a sequence
        self._to_prefill = dict.fromkeys(self._prefill, 0)  # prompt tokens of whom is there
        self._transfers: list[tuple[float, int, Work]] = []  # by when they are through

    # -- what a driver says -----------------------------------------------------------------------------

    def submit(self, now: float, sequence: Sequence) -> str | None:
        """Queue it. None, or why it can never be served."""
        if (why := self._decode[0].refusal(sequence)) is not None:
            return why
        self.let_pass(now)
        replica = min(self._prefill, key=self._to_prefill.__getitem__)
        part = _part(sequence, output_tokens=min(1, sequence.output_tokens))
        if (why := replica.submit(now, part)) is not None:
            return why
        sequence.arrived_at = now
        self._numbers += 1
        self._to_prefill[replica] += sequence.prompt_tokens
        work = Work(self._numbers, sequence, part, replica)
        self._works[sequence] = self._parts[part] = work
        return None

    def cancel(self, now: float, sequence: Sequence) -> int:
        """Forget it, wherever it is. Its output tokens by now."""
        self.let_pass(now)
        work = self._works.get(sequence)
        if work is None:
            return sequence.produced
        if work.replica is not None:
            sequence.produced = work.replica.cancel(now, work.part)
        self._leave(work)
        del self._works[sequence]
        return sequence.produced

    def slow(self, now: float, factor: float) -> None:
        """Steps that start from now on take `factor` times as long as the profiles say."""
        self.let_pass(now)
        for replica in self._replicas:
            replica.slow(now, factor)

    def clear(self, now: float) -> list[Sequence]:
        """All is lost, on the link too. Whom that hits, in the order in which they came."""
        self.let_pass(now)
        lost = list(self._works)
        for sequence in lost:
            self.cancel(now, sequence)
        for replica in self._replicas:
            replica.clear(now)
        self._transfers.clear()
        self._told.clear()
        self._free_at = [now] * len(self._free_at)
        return lost

    # -- what it tells ------------------------------------------------------------------------------------

    def next_at(self) -> float:
        """The next instant at which `advance` has something to do or to tell; inf: nothing to come."""
        return self._now if self._told else self._next_at()

    def advance(self, now: float) -> list[Happening]:
        """What has happened up to and including `now`, in the order of time, then of arrival."""
        self.let_pass(now)
        told, self._told = self._told, []
        return told

    def tokens_at(self, sequence: Sequence, now: float) -> int:
        """Its output tokens of whole steps that ended by `now`."""
        self.let_pass(now)
        work = self._works.get(sequence)
        if work is None or work.replica is None:
            return sequence.produced
        return work.replica.tokens_at(work.part, now)

    @property
    def running(self) -> int:
        """Sequences in batches."""
        return sum(replica.running for replica in self._replicas)

    @property
    def waiting(self) -> int:
        """Sequences in queues and on the link."""
        return len(self._works) - self.running

    @property
    def free_blocks(self) -> int:
        """Blocks of the decode replicas that nobody holds."""
        return sum(replica.free_blocks for replica in self._decode)

    @property
    def kv_used_ratio(self) -> float:
        """Share of the decode replicas' KV cache that is held, 0..1."""
        return sum(replica.kv_used_ratio for replica in self._decode) / len(self._decode)

    @property
    def counters(self) -> Counters:
        """Totals of all replicas."""
        total = Counters()
        for replica in self._replicas:
            for field in fields(Counters):
                added = getattr(total, field.name) + getattr(replica.counters, field.name)
                setattr(total, field.name, added)
        return total

    def check(self) -> None:
        """Assert what this module promises."""
        for replica in self._replicas:
            replica.check()
        on_link = {id(work.whole) for _, _, work in self._transfers}
        for work in self._works.values():
            assert (work.replica is None) == (id(work.whole) in on_link)
            assert work.replica is None or self._parts[work.part] is work
        for replica, tokens in self._to_prefill.items():
            there = [work for work in self._works.values() if work.replica is replica]
            assert tokens == sum(work.whole.prompt_tokens for work in there)

    # -- time ---------------------------------------------------------------------------------------------

    def _next_at(self) -> float:
        at = self._transfers[0][0] if self._transfers else inf
        for replica in self._replicas:
            at = min(at, replica.next_at())
        return at

    def let_pass(self, now: float) -> None:
        """Time has come to `now`, for who reads the gauges; news is kept for `advance`."""
        self._now = now
        while (at := self._next_at()) <= now:
            news = []
            for replica in self._replicas:
                if replica.next_at() <= at:
                    news += replica.advance(at)
            news.sort(key=lambda one: self._parts[one.sequence].number)
            for happening in news:
                self._on_news(happening, self._parts[happening.sequence])
            while self._transfers and self._transfers[0][0] <= at:
                self._deliver(*heappop(self._transfers))
        for replica in self._replicas:
            replica.let_pass(now)

    def _on_news(self, happening: Happening, work: Work) -> None:
        whole, at = work.whole, happening.at
        whole.produced = happening.output_tokens
        if happening.kind == FINISHED and whole.produced < whole.output_tokens:
            assert work.replica is not None
            number = self._link_of[work.replica]
            self._leave(work)
            self._transfer(at, work, number)
        else:
            self._told.append(Happening(at, happening.kind, whole, whole.produced))
            if happening.kind == FINISHED:
                self._leave(work)
                del self._works[whole]

    def _leave(self, work: Work) -> None:
        """It is not any more where it was."""
        if work.replica is None:
            return
        if work.replica in self._to_prefill:
            self._to_prefill[work.replica] -= work.whole.prompt_tokens
            work.whole.cached_tokens = work.part.cached_tokens
        work.whole.preemptions += work.part.preemptions
        del self._parts[work.part]
        work.replica = None

    def _transfer(self, at: float, work: Work, number: int) -> None:
        """Its keys and values queue on that link."""
        link = self._link
        starts_at = max(at, self._free_at[number])
        bytes_ = link.kv_bytes_per_token * work.whole.prompt_tokens
        self._free_at[number] = starts_at + bytes_ / link.bandwidth_bytes_per_s
        heappush(self._transfers, (self._free_at[number] + link.latency_s, work.number, work))

    def _deliver(self, at: float, number: int, work: Work) -> None:
        """They are through: it goes on where the fewest are."""
        whole = work.whole
        if self._works.get(whole) is not work:
            return  # cancelled on its way
        work.part = _part(whole, output_tokens=whole.output_tokens)
        work.part.delivered_tokens, work.part.produced = whole.prompt_tokens, 1
        work.replica = min(self._decode, key=lambda replica: replica.running + replica.waiting)
        self._parts[work.part] = work
        work.replica.submit(at, work.part)


def _part(sequence: Sequence, output_tokens: int) -> Sequence:
    """What stands for it on one replica."""
    return Sequence(
        sequence.id,
        sequence.prompt_tokens,
        output_tokens,
        max_tokens=sequence.max_tokens,
        priority=sequence.priority,
        mark=sequence.mark,
        prefix=sequence.prefix,
        prefix_block_tokens=sequence.prefix_block_tokens,
    )
