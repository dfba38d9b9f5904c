"""The replica decides as a step-by-step scheduler does: exactly what, and to 1e-9 when.

Two replicas run beside the reference. One is looked at after every step, so that each boundary's state is
compared; one only where something happens to it, so that its macro-steps are as long as they get.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Literal

import msgspec
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from tests.sim.reference import FINISHED, FIRST_TOKEN, PROGRESS, Job, Reference
from tidegate.core.curve import Curve, Grid, Line, Linear, Table
from tidegate.sim import happening as macro
from tidegate.sim.profiles import Profile
from tidegate.sim.replica import Replica
from tidegate.sim.sequence import Sequence
from tidegate.sim.settings import ReplicaSettings, Speculation

KINDS = {macro.FIRST_TOKEN: FIRST_TOKEN, macro.PROGRESS: PROGRESS, macro.FINISHED: FINISHED}

DYADIC = Linear(
    a_s=2**-6,
    b_s_per_sequence=2**-12,
    c_s_per_context_token=2**-18,
    d_s_per_prefill_token=2**-14,
    e_s_per_prefill_token_squared=2**-26,
)
"""Sums of its steps are exact in binary, so that an instant can be exactly a boundary for all."""
DYADIC_BY_STEP = msgspec.structs.replace(DYADIC, c_s_per_context_token=0)
"""The same with speculation, whose contexts grow by parts of tokens."""
UNEVEN = Linear(
    a_s=0.0137, b_s_per_sequence=1.3e-4, c_s_per_context_token=1.7e-6, d_s_per_prefill_token=5.3e-5
)
TABLE = Table(
    tokens=Line(points=(1, 7, 20, 90), seconds=(0.011, 0.013, 0.019, 0.043)),
    sequences=Line(points=(1, 4), seconds=(0.0007, 0.0011)),
    decode=Grid(
        rows=(1, 3, 8),
        columns=(5, 17, 41, 80),
        seconds=((1e-4, 3e-4, 4e-4, 9e-4), (2e-4, 7e-4, 1e-3, 2e-3), (4e-4, 1.1e-3, 3e-3, 6e-3)),
    ),
    prefill=Grid(rows=(1, 30), columns=(0, 50), seconds=((1e-4, 2e-4), (8e-4, 3e-3))),
)


JUST = 1e-7
"""Seconds after a boundary, where rounding cannot matter: no step of UNEVEN and TABLE is so short."""


@dataclass(frozen=True)
class Ask:
    """What is submitted."""

    prompt_tokens: int
    output_tokens: int
    unused_tokens: int
    priority: int
    family: int
    shared_blocks: int


@dataclass(frozen=True)
class Deed:
    """What is done, when: so many boundaries on (at that very instant), or so many seconds."""

    what: str
    boundaries: int
    seconds: float
    ask: Ask
    which: int
    factor: float


@dataclass(frozen=True)
class Scenario:
    """An engine and its day."""

    settings: ReplicaSettings
    curve: Curve
    prefix_block_tokens: int
    deeds: tuple[Deed, ...]
    seed: int


@st.composite
def engines(draw: st.DrawFn) -> ReplicaSettings:
    """Small ones: seats, tokens and blocks all run out."""
    seats = draw(st.sampled_from([1, 2, 3, 4, 5, 6]))
    speculation = None
    if draw(st.integers(0, 4)) == 0:
        speculation = Speculation(
            draft_tokens=draw(st.integers(1, 3)), acceptance_ratio=draw(st.sampled_from([0.0, 0.6, 1.0]))
        )
    chunked = draw(st.booleans())
    least = seats * (1 + (speculation.draft_tokens if speculation else 0))
    kv: Literal["paged", "reserved"] = "reserved" if draw(st.integers(0, 3)) == 3 else "paged"
    return ReplicaSettings(
        max_num_seqs=seats,
        max_batched_tokens=draw(st.integers(least, least + 40)) if chunked else draw(st.integers(60, 120)),
        kv_tokens=4 * draw(st.integers(12, 30)),
        context_tokens=draw(st.sampled_from([60, 1000, 1000])),
        block_tokens=4,
        chunked_prefill=chunked,
        long_prefill_tokens=draw(st.sampled_from([0, 0, 0, 7])) if chunked else 0,
        kv=kv,
        whole_prompt_must_fit=draw(st.sampled_from([True, True, False])),
        prefix_cache=kv == "paged" and draw(st.booleans()),
        priority=draw(st.booleans()),
        speculation=speculation,
    )


asks = st.builds(
    Ask,
    prompt_tokens=st.one_of(st.integers(1, 12), st.integers(13, 40)),
    output_tokens=st.one_of(st.integers(0, 3), st.integers(4, 24), st.integers(25, 70)),
    unused_tokens=st.sampled_from([0, 0, 9]),
    priority=st.integers(0, 2),
    family=st.integers(0, 2),
    shared_blocks=st.integers(0, 12),
)
deeds = st.builds(
    Deed,
    what=st.sampled_from(["submit"] * 12 + ["cancel", "cancel", "slow", "wait", "clear"]),
    boundaries=st.sampled_from([0, 0, 0, 0, 1, 1, 2, 5]),
    seconds=st.sampled_from([0, 0, 1, 3, 7, 18, 60]).map(lambda n: n / 512),
    ask=asks,
    which=st.integers(0, 9),
    factor=st.sampled_from([0.5, 1.0, 2.0]),
)


def scenarios(*curves: Curve) -> st.SearchStrategy[Scenario]:
    """Busy days of up to 24 deeds."""
    return st.builds(
        Scenario,
        settings=engines(),
        curve=st.sampled_from(curves),
        prefix_block_tokens=st.sampled_from([4, 8]),
        deeds=st.lists(deeds, min_size=6, max_size=24).map(tuple),
        seed=st.integers(0, 99),
    )


class Comparison:
    """One day of three replicas that must agree."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.exact = scenario.curve is DYADIC
        self.curve = scenario.curve
        if self.exact and scenario.settings.speculation is not None:
            self.curve = DYADIC_BY_STEP
        profile = Profile(curve=self.curve, replica=scenario.settings)
        self.reference = Reference(scenario.settings, self.curve)
        self.watched = Replica(profile, Random(scenario.seed))
        self.left_alone = Replica(profile, Random(scenario.seed))
        self.both = (self.watched, self.left_alone)
        self.sequences: dict[int, tuple[Sequence, Sequence]] = {}
        self.jobs: dict[int, Job] = {}
        self.told: tuple[list[tuple[float, str, int, int]], ...] = ([], [])
        self.now = 0.0
        self.seen: Counter[str] = Counter()

    def run(self) -> Counter[str]:
        """All deeds, then until nothing is left to do. What states were met."""
        for deed in self.scenario.deeds:
            self._let_pass(deed)
            getattr(self, f"_{deed.what}")(deed)
            self._compare_now()
        steps = 0
        while (boundary := self._boundary_after(self.now)) < inf:
            self._move_to(boundary if self.exact else boundary + JUST)
            steps += 1
            assert steps < 20_000, "this never ends"
        self._compare_now()
        self._compare_ends()
        return self.seen

    # ---- time

    def _boundary_after(self, now: float) -> float:
        return self.reference.boundary_after(now)

    def _let_pass(self, deed: Deed) -> None:
        if not deed.boundaries:
            self._move_to(self.now + deed.seconds)
        for _ in range(deed.boundaries):
            boundary = self._boundary_after(self.now)
            if boundary < inf:
                self._move_to(boundary if self.exact else boundary + JUST)

    def _move_to(self, now: float) -> None:
        """Compare the state at each boundary up to and including `now`."""
        known = len(self.reference.boundaries)
        self.reference.advance(now)
        for boundary in self.reference.boundaries[known:]:
            at = boundary.at if self.exact else min(now, boundary.at + JUST)
            self._note(0, at)
            for job_id, produced in boundary.produced.items():
                assert self.watched.tokens_at(self.sequences[job_id][0], at) == produced, (job_id, at)
            if self.exact:
                state = (self.watched.free_blocks, self.watched.running, self.watched.waiting)
                assert state == (boundary.free_blocks, boundary.running, boundary.waiting), at
        self.now = now

    def _note(self, which: int, now: float) -> None:
        self.told[which].extend(
            (news.at, KINDS[news.kind], news.sequence.id, news.output_tokens)
            for news in self.both[which].advance(now)
        )

    # ---- deeds

    def _submit(self, deed: Deed) -> None:
        ask, number = deed.ask, len(self.sequences)
        block = self.scenario.prefix_block_tokens
        whole = (ask.prompt_tokens + ask.output_tokens) // block
        prefix = tuple(ask.family * 100 + place for place in range(min(ask.shared_blocks, whole)))
        pair = tuple(
            Sequence(
                id=number,
                prompt_tokens=ask.prompt_tokens,
                output_tokens=ask.output_tokens,
                max_tokens=ask.output_tokens + ask.unused_tokens,
                priority=ask.priority,
                prefix=prefix,
                prefix_block_tokens=block,
            )
            for _ in self.both
        )
        refusals = [
            replica.submit(self.now, sequence) for replica, sequence in zip(self.both, pair, strict=True)
        ]
        assert refusals[0] == refusals[1]
        if refusals[0] is not None:
            self.seen["refused"] += 1
            return
        job = Job(
            number,
            ask.prompt_tokens,
            ask.output_tokens,
            ask.output_tokens + ask.unused_tokens,
            ask.priority,
            prefix,
            block,
            decode_steps=pair[0].decode_steps,
        )
        self.sequences[number] = pair[0], pair[1]
        self.jobs[number] = job
        self.reference.submit(self.now, job)
        if self.reference.boundaries and self.reference.boundaries[-1].at == self.now:
            self.seen["came at a boundary"] += 1

    def _cancel(self, deed: Deed) -> None:
        live = [*self.reference.running, *self.reference.waiting]
        if not live:
            return
        job = live[deed.which % len(live)]
        self.seen["cancelled while " + ("waiting" if job in self.reference.waiting else "running")] += 1
        if job in self.reference.running and job.catching_up:
            self.seen["cancelled in its prompt"] += 1
        produced = self.reference.cancel(self.now, job)
        for replica, sequence in zip(self.both, self.sequences[job.id], strict=True):
            assert replica.cancel(self.now, sequence) == produced

    def _slow(self, deed: Deed) -> None:
        for replica in self.both:
            replica.slow(self.now, deed.factor)
        self.reference.slow(self.now, deed.factor)

    def _wait(self, deed: Deed) -> None:
        pass

    def _clear(self, deed: Deed) -> None:
        """A crash: whoever was there is lost, and so is the cache."""
        for which in (0, 1):
            self._note(which, self.now)
        lost = [*self.reference.running, *self.reference.waiting]
        for replica in self.both:
            gone = {(one.id, one.produced) for one in replica.clear(self.now)}
            assert gone == {(job.id, job.produced) for job in lost}
        pace, old = self.reference.pace, self.reference
        self.reference = Reference(self.scenario.settings, self.curve)
        self.reference.pace = pace
        for log in ("boundaries", "admissions", "preemptions", "told", "steps"):
            setattr(self.reference, log, getattr(old, log))

    # ---- what must be equal

    def _compare_now(self) -> None:
        for which, replica in enumerate(self.both):
            self._note(which, self.now)
            replica.check()
        live = [*self.reference.running, *self.reference.waiting]
        for job in live:
            for replica, sequence in zip(self.both, self.sequences[job.id], strict=True):
                assert replica.tokens_at(sequence, self.now) == job.produced
        assert self.left_alone.running == len(self.reference.running)
        assert self.left_alone.waiting == len(self.reference.waiting)

    def _compare_ends(self) -> None:
        for which in (0, 1):
            self._note(which, self.now)
            told = self.told[which]
            assert [news[1:] for news in told] == [news[1:] for news in self.reference.told]
            for (at, *_), (expected, *_) in zip(told, self.reference.told, strict=True):
                assert at == pytest.approx(expected, rel=1e-9)
            assert self.both[which].next_at() == inf
        for number, job in self.jobs.items():
            for sequence in self.sequences[number]:
                assert sequence.preemptions == job.preemptions, number
                assert sequence.cached_tokens == max(0, job.cached_tokens), number
        for replica in self.both:
            assert replica.counters.preemptions == len(self.reference.preemptions)
            hits = sum(cached for _, _, cached in self.reference.admissions)
            assert replica.counters.prefix_hit_tokens == hits
        self._meet()

    def _meet(self) -> None:
        """Count the states that this day went through."""
        reference, seen, jobs = self.reference, self.seen, self.jobs
        seen["preempted"] += len(reference.preemptions)
        seen["preempted twice"] += any(job.preemptions > 1 for job in jobs.values())
        admitted: set[int] = set()
        for _, number, cached in reference.admissions:
            seen["resumed with a cache hit"] += number in admitted and cached > 0
            seen["prefix hit"] += number not in admitted and cached > 0
            job = jobs[number]
            shared = len(job.prefix) * job.prefix_block_tokens
            seen["all but the last block hit"] += 0 < cached == (job.prompt_tokens - 1) // 4 * 4 < shared
            admitted.add(number)
        seen["evicted"] += reference.pool.evictions
        for step in reference.steps:
            seen["several prompts in a step"] += len(step.chunks) > 1
            seen["prompts beside decodes"] += bool(step.chunks and step.decoding)
            seen["later chunk"] += any(before and before % 4 for _, before in step.chunks)
        for kind in (FIRST_TOKEN, PROGRESS, FINISHED):
            seen[kind] += sum(news[1] == kind for news in reference.told)
        seen["priority"] += self.scenario.settings.priority and len(reference.preemptions)
        seen["speculation"] += self.scenario.settings.speculation is not None and len(reference.steps)
        seen["reserved"] += self.scenario.settings.kv == "reserved" and len(reference.steps)
        seen["no output"] += any(job.output_tokens == 0 for job in jobs.values())


MET = (
    "refused",
    "came at a boundary",
    "cancelled while waiting",
    "cancelled while running",
    "cancelled in its prompt",
    "preempted",
    "preempted twice",
    "resumed with a cache hit",
    "prefix hit",
    "all but the last block hit",
    "evicted",
    "several prompts in a step",
    "prompts beside decodes",
    "later chunk",
    FIRST_TOKEN,
    PROGRESS,
    FINISHED,
    "priority",
    "speculation",
    "reserved",
    "no output",
)


def test_what_is_decided_is_equal_at_every_boundary() -> None:
    """Admissions, preemptions, cache hits, tokens and free blocks are those of the step-by-step scheduler."""
    seen: Counter[str] = Counter()

    @settings(max_examples=300, deadline=None, derandomize=True)
    @given(scenarios(DYADIC))
    def law(scenario: Scenario) -> None:
        seen.update(Comparison(scenario).run())

    law()

    assert not [state for state in MET if not seen[state]], seen


def _submitted(
    prompt: int, output: int, family: int = 0, shared: int = 0, at: tuple[int, float] = (0, 0.0)
) -> Deed:
    ask = Ask(prompt, output, unused_tokens=0, priority=0, family=family, shared_blocks=shared)
    return Deed("submit", *at, ask, which=0, factor=1.0)


TWO_COPIES = Scenario(
    settings=ReplicaSettings(
        max_num_seqs=6,
        max_batched_tokens=39,
        kv_tokens=80,
        context_tokens=1000,
        block_tokens=4,
        long_prefill_tokens=7,
        prefix_cache=True,
    ),
    curve=TABLE,
    prefix_block_tokens=4,
    deeds=(
        _submitted(1, 35),
        _submitted(1, 0, at=(0, 60 / 512)),
        _submitted(11, 34),
        _submitted(9, 28),
        _submitted(10, 10, at=(0, 1 / 512)),
        _submitted(14, 5, family=2, shared=5),
        _submitted(3, 7, family=2, shared=9, at=(1, 0.0)),
    ),
    seed=0,
)
"""An output fills a block in the step in which a prompt before it in the batch computes the same block."""


@settings(max_examples=100, deadline=None)
@given(scenarios(UNEVEN, TABLE))
@example(TWO_COPIES)
def test_instants_are_equal_to_a_billionth(scenario: Scenario) -> None:
    """The closed form of a run of steps is their sum, on a straight line and on a table."""
    met = Comparison(scenario).run()

    event(f"preempted: {met['preempted'] > 0}")
