"""When does a replica of an engine do what?

Between two events (an arrival, an end, a chunk of a prompt, a cache that runs out) a batch only decodes, and
nothing about it changes but how much it reads. So time passes in *segments*: one step that was planned
sequence by sequence, or a run of decode steps whose boundaries have a closed form,

    boundary k = start + k * first_s + growth_s * k * (k - 1) / 2.

Cost is per event, not per token. Only the starts of segments are sums of what went before, so that rounding
errors do not add up over steps.

Who comes, leaves or slows the replica down at the very instant of a boundary is in time for the step that
starts there. So a step that others could still change is planned only when time has passed its start: until
then `next_at` names the next instant after it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import inf, nextafter
from random import Random

from tidegate.core.errors import CallerError
from tidegate.sim.happening import FINISHED, FIRST_TOKEN, PROGRESS, Happening
from tidegate.sim.profiles import Profile
from tidegate.sim.scheduler import Counters, Scheduler
from tidegate.sim.segment import Segment
from tidegate.sim.sequence import Sequence
from tidegate.sim.speculation import drawn_steps

OnBatch = Callable[[float, float, int, int, int, int, float], None]
"""Of a segment: start, end, steps, sequences that decode, prompt tokens; the queue; KV in use, 0..1."""


class Replica:
    """One engine.

    Tell it what happens in the order of time. Whatever it is asked lets time pass first; news of that is kept
    for the next `advance`.
    """

    __slots__ = (
        "_at",
        "_most_tokens",
        "_now",
        "_pace",
        "_rng",
        "_scheduler",
        "_segment",
        "_told",
        "curve",
        "on_batch",
        "settings",
    )

    def __init__(
        self, profile: Profile, rng: Random | None = None, *, on_batch: OnBatch | None = None
    ) -> None:
        """`rng` draws the steps that speculation saves, and is needed for nothing else."""
        self.curve = profile.curve
        self.settings = profile.replica
        self.on_batch = on_batch
        if rng is None and self.settings.speculation is not None:
            raise CallerError("speculation needs an rng")
        self._rng = rng
        self._most_tokens = self.settings.sequence_tokens
        self._scheduler = Scheduler(self.settings, Counters())
        self._pace = 1 / self.settings.speed
        self._now = -inf
        self._told: list[Happening] = []
        self._segment: Segment | None = None  # under way
        self._at = -inf  # if there is none, and work: when the next one starts

    # -- what a driver says -----------------------------------------------------------------------------

    def submit(self, now: float, sequence: Sequence) -> str | None:
        """Queue it. None, or why it can never be served."""
        if (why := self.refusal(sequence)) is not None:
            return why
        self.let_pass(now)
        sequence.arrived_at = now
        if (speculation := self.settings.speculation) is not None and self._rng is not None:
            left = sequence.output_tokens - sequence.produced - 1  # a prompt yields one
            sequence.decode_steps = 1 + drawn_steps(left, speculation, self._rng)
        if self._scheduler.enqueue(sequence):
            self._cut(now)
        if self._segment is None:
            self._at = now
        return None

    def refusal(self, sequence: Sequence) -> str | None:
        """Why it can never be served; None: it can."""
        prompt, output, most = sequence.prompt_tokens, sequence.output_tokens, self._most_tokens
        if prompt < 1 or output < 0:
            return f"{prompt} + {output} tokens are no sequence"
        if self.settings.kv == "reserved":
            output = max(output, sequence.max_tokens)
        return f"{prompt} + {output} tokens never fit in {most}" if prompt + output > most else None

    def cancel(self, now: float, sequence: Sequence) -> int:
        """Forget it and free its blocks; the step under way takes its time. Its output tokens by now."""
        self.let_pass(now)
        if sequence.rank >= 0:
            self._break(now)
        sequence.produced = self._produced(sequence)
        if self._scheduler.remove(sequence):
            self._cut(now)
        return sequence.produced

    def slow(self, now: float, factor: float) -> None:
        """Steps that start from now on take `factor` times as long as the profile says."""
        self.let_pass(now)
        self._pace = factor / self.settings.speed
        self._cut(now)

    def clear(self, now: float) -> list[Sequence]:
        """All is lost, the cache too, and what was not yet told. Whom that hits, the batch first."""
        self.let_pass(now)
        self._break(now)
        lost = [*self._scheduler.running, *self._scheduler.waiting]
        for sequence in lost:
            sequence.produced = self._produced(sequence)
        for sequence in lost:
            sequence.rank = sequence.due = -1
            sequence.computed = sequence.blocks = sequence.kept = 0
            sequence.extents.clear()
        self._scheduler = Scheduler(self.settings, self.counters)
        self._segment = None
        self._told.clear()
        return lost

    # -- what it tells ------------------------------------------------------------------------------------

    def next_at(self) -> float:
        """The next instant at which `advance` has something to do or to tell; inf: nothing to come."""
        if self._told:
            return self._now
        if (segment := self._segment) is not None:
            return segment.event_at if segment.tells else nextafter(segment.event_at, inf)
        return nextafter(self._at, inf) if self._scheduler.busy else inf

    def advance(self, now: float) -> list[Happening]:
        """What has happened up to and including `now`, in the order of time, then of admission."""
        self.let_pass(now)
        told, self._told = self._told, []
        return told

    def tokens_at(self, sequence: Sequence, now: float) -> int:
        """Its output tokens of whole steps that ended by `now`."""
        self.let_pass(now)
        return self._produced(sequence)

    def decoding_at(self, now: float) -> list[tuple[Sequence, int]]:
        """All that decode, in the order of admission, and what `tokens_at` says of each."""
        self.let_pass(now)
        whole, produced = self._whole(), self._scheduler.decoding.produced_of
        idle = self._segment.idle if self._segment is not None else ()
        return [
            (sequence, produced(sequence, whole + (sequence in idle)))
            for sequence in self._scheduler.running
            if sequence.due >= 0
        ]

    def boundary_before(self, now: float) -> float:
        """When the step under way began; if none is: when the last one ended."""
        self.let_pass(now)
        if (segment := self._segment) is not None:
            return segment.boundary(segment.whole(now)) if segment.run else segment.start
        return self._at

    def boundary_after(self, now: float) -> float:
        """When the step under way ends; if none is and there is work: just after `now`. inf: idle."""
        self.let_pass(now)
        if (segment := self._segment) is not None:
            return segment.boundary(segment.whole(now) + 1 if segment.run else 1)
        return nextafter(self._at, inf) if self._scheduler.busy else inf

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._scheduler.running)

    @property
    def waiting(self) -> int:
        """Sequences in the queue, preempted ones too."""
        return self._scheduler.waiting.count

    @property
    def free_blocks(self) -> int:
        """Blocks of KV cache that nobody holds; they may have contents that can be found again."""
        scheduler, segment = self._scheduler, self._segment
        steps = segment.begun(self._now) if segment is not None and segment.run else 0
        return scheduler.free_blocks - scheduler.decoding.blocks_for(steps)

    @property
    def kv_used_ratio(self) -> float:
        """Share of the KV cache that is held, 0..1."""
        return (self.settings.blocks - self.free_blocks) / self.settings.blocks

    @property
    def counters(self) -> Counters:
        """Totals of the segments that are over."""
        return self._scheduler.counters

    def check(self) -> None:
        """Assert what this module promises."""
        self._scheduler.check()
        if (segment := self._segment) is not None:
            assert segment.start <= self._now <= segment.event_at
        for earlier, later in pairwise(self._told):
            assert earlier.at <= later.at <= self._now

    # -- time ---------------------------------------------------------------------------------------------

    def let_pass(self, now: float) -> None:
        """Time has come to `now`, for who reads the gauges; news is kept for `advance`."""
        if now < self._now:
            raise CallerError(f"time went back from {self._now} to {now}")
        self._now = now
        while True:
            if (segment := self._segment) is not None:
                if segment.event_at > now:
                    return
                if segment.run:
                    self._pass_event(segment)
                else:
                    self._end_step(segment)
            elif steps := self._scheduler.steady_steps():
                self._start_run(steps)
            elif self._at < now and self._scheduler.busy:
                self._start_step()
            else:
                return

    def _aim(self, segment: Segment) -> None:
        """After which step does the segment under way next need attention?"""
        decoding, steps = self._scheduler.decoding, segment.steps
        due = decoding.next_due() - decoding.step
        if segment.run:
            segment.tells = due <= steps
            if due < steps:
                steps = due
        else:
            segment.tells = due == 0 or bool(segment.ending)
        segment.event_steps, segment.event_at = steps, segment.boundary(steps)
        self._segment = segment

    def _produced(self, sequence: Sequence) -> int:
        """Output tokens by the instant up to which time has passed."""
        if sequence.due < 0:
            return sequence.produced
        whole, segment = self._whole(), self._segment
        if segment is not None and sequence in segment.idle:
            whole += 1
        return self._scheduler.decoding.produced_of(sequence, whole)

    def _whole(self) -> int:
        """Decode steps that are over by that instant, as they are numbered."""
        step, segment = self._scheduler.decoding.step, self._segment
        if segment is None:
            return step
        return step + segment.whole(self._now) if segment.run else step - 1

    # -- runs -----------------------------------------------------------------------------------------------

    def _start_run(self, steps: int) -> None:
        decoding, pace = self._scheduler.decoding, self._pace
        growth = decoding.growth
        run = self.curve.decode_run(
            growth.count,
            decoding.context_tokens(),
            growth.tokens_per_step,
            growth.count * decoding.draft_tokens,
        )
        self._aim(
            Segment(
                self._at,
                run.first_s * pace,
                growth.count,
                growth_s=run.growth_s * pace,
                steps=min(run.steps, steps),
                run=True,
            )
        )

    def _pass_event(self, run: Segment) -> None:
        """The run has come to where there is something to tell, or to its end."""
        scheduler, steps = self._scheduler, run.event_steps
        finished = self._tell(run.event_at, scheduler.decoding.take_dues(scheduler.decoding.step + steps))
        if finished or steps == run.steps:
            self._end_run(run, steps)
            for sequence in finished:
                scheduler.remove(sequence)
        else:
            self._aim(run)

    def _end_run(self, run: Segment, steps: int) -> None:
        """Its first so many steps are over, and no further one is begun."""
        if steps:
            self._scheduler.begin_decoding(steps)
        self._over(run, steps)

    def _cut(self, now: float) -> None:
        """Of a run, steps that would begin at `now` or later are planned anew."""
        if (run := self._segment) is not None and run.run:
            run.steps = min(run.steps, run.begun(now))
            if run.steps:
                self._aim(run)
            else:
                self._end_run(run, 0)

    def _break(self, now: float) -> None:
        """Of a run, only the step under way is left, and it is begun."""
        if (run := self._segment) is not None and run.run:
            steps = run.whole(now)
            self._end_run(run, steps)
            if self._at < now:
                self._scheduler.begin_decoding(1)
                seconds = run.boundary(steps + 1) - self._at
                self._aim(Segment(self._at, seconds, run.decodes))

    # -- single steps ---------------------------------------------------------------------------------------

    def _start_step(self) -> None:
        step = self._scheduler.plan()
        while not (step.decodes or step.chunks):  # all that could have run was preempted
            step = self._scheduler.plan()
        drafts = step.decodes * self._scheduler.decoding.draft_tokens
        seconds = self.curve.step_s(step.decodes, step.context_tokens, step.chunks, drafts)
        self._aim(
            Segment(
                self._at,
                seconds * self._pace,
                step.decodes,
                prefill_tokens=step.prefill_tokens,
                ending=step.ending,
                idle=step.idle,
            )
        )

    def _end_step(self, step: Segment) -> None:
        scheduler = self._scheduler
        self._over(step, 1)
        news = scheduler.decoding.take_dues(scheduler.decoding.step)
        news += [one for one in step.ending if one.rank >= 0 and self._produce(one)]  # others have left
        if len(news) > 1:
            news.sort(key=lambda one: one.rank)
        for sequence in self._tell(self._at, news):
            scheduler.remove(sequence)
        for sequence in step.ending:
            if sequence.rank >= 0:
                scheduler.join(sequence)

    def _produce(self, sequence: Sequence) -> bool:
        """All that was known of it is computed: one more token. True if there is something to tell."""
        if sequence.output_tokens:
            sequence.produced += 1
        left, before = sequence.output_tokens - sequence.produced, sequence.decode_steps
        sequence.decode_steps = left
        if drafts := self._scheduler.decoding.draft_tokens:
            least = -(-left // (1 + drafts))
            sequence.decode_steps = min(max(before - 1, least), left)
        if sequence.produced < sequence.mark:
            return sequence.produced == 1 or not left
        sequence.mark *= 2
        return True

    def _over(self, segment: Segment, steps: int) -> None:
        """The segment ends after so many steps."""
        self._segment = None
        self._at = at = segment.event_at if steps == segment.event_steps else segment.boundary(steps)
        counters = self._scheduler.counters
        counters.steps += steps
        counters.busy_s += at - segment.start
        if self.on_batch is not None and steps:
            batch = segment.decodes, segment.prefill_tokens
            self.on_batch(segment.start, at, steps, *batch, self.waiting, self.kv_used_ratio)

    def _tell(self, at: float, news: list[Sequence]) -> list[Sequence]:
        """Note what has come about. Who is complete?"""
        finished, told = [], self._told
        for sequence in news:
            produced = sequence.produced
            if produced == 1:
                told.append(Happening(at, FIRST_TOKEN, sequence, 1))
            if produced >= sequence.output_tokens:
                told.append(Happening(at, FINISHED, sequence, produced))
                finished.append(sequence)
            elif produced > 1:
                told.append(Happening(at, PROGRESS, sequence, produced))
        return finished
