"""When does a replica of an engine do what?

Between two events (an arrival, an end, a chunk of a prompt, a cache that runs out) a batch only decodes, and
nothing about it changes but how much it reads. So time passes in *segments*: one step that was planned sequence
by sequence, or a run of decode steps whose boundaries have a closed form,

    boundary k = start + k * first_s + growth_s * k * (k - 1) / 2.

Cost is per event, not per token. Only the starts of segments are sums of what went before, so rounding errors
do not add up over steps.

Who comes, leaves or slows the replica down at the very instant of a boundary is in time for the step that
starts there. So a step that others could still change is planned only when time has passed its start: until
then `next_at` names the next instant after it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import inf, nextafter, sqrt
from random import Random

from tidegate.core.errors import CallerError
from tidegate.sim.profiles import Profile
from tidegate.sim.scheduler import Counters, Scheduler
from tidegate.sim.sequence import FINISHED, FIRST_TOKEN, PROGRESS, Happening, Sequence
from tidegate.sim.speculation import drawn_steps

__all__ = ["FINISHED", "FIRST_TOKEN", "PROGRESS", "Counters", "Happening", "OnBatch", "Replica", "Sequence"]

OnBatch = Callable[[float, float, int, int, int, int, float], None]
"""Start and end of a segment, its steps, sequences that decode, prompt tokens, the queue, and KV in use, 0..1."""


class Replica:
    """One engine.

    Tell it what happens in the order of time. Whatever it is asked lets time pass first; news of that is kept
    for the next `advance`.
    """

    __slots__ = (
        "_at",
        "_decodes",
        "_ending",
        "_first_s",
        "_growth_s",
        "_idle",
        "_now",
        "_pace",
        "_prefill_tokens",
        "_rng",
        "_run",
        "_scheduler",
        "_start",
        "_steps",
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
        self._scheduler = Scheduler(self.settings)
        self._pace = 1 / self.settings.speed
        self._told: list[Happening] = []
        self._now = -inf
        self._at = -inf  # when the next step starts, while no segment is under way and there is work
        self._steps = 0  # of the segment under way, at most; 0: there is none
        self._run = False  # it is a run: its steps are begun when it is over
        self._start = self._first_s = self._growth_s = 0.0
        self._decodes = self._prefill_tokens = 0
        self._ending: list[
            Sequence
        ] = []  # whose known tokens are all computed when the step ends, by a chunk
        self._idle: list[Sequence] = []  # that decode, but not in this step

    # -- what a driver says -----------------------------------------------------------------------------

    def submit(self, now: float, sequence: Sequence) -> str | None:
        """Queue it. None, or why it can never be served."""
        if (why := self._refusal(sequence)) is not None:
            return why
        self._let_pass(now)
        sequence.arrived_at = now
        if (speculation := self.settings.speculation) is not None and self._rng is not None:
            sequence.decode_steps = 1 + drawn_steps(sequence.output_tokens - 1, speculation, self._rng)
        if self._scheduler.enqueue(sequence):
            self._cut(now)
        if not self._steps:
            self._at = now
        return None

    def _refusal(self, sequence: Sequence) -> str | None:
        prompt, output, most = sequence.prompt_tokens, sequence.output_tokens, self.settings.sequence_tokens
        if prompt < 1 or output < 0:
            return f"{prompt} + {output} tokens are no sequence"
        if self.settings.kv == "reserved":
            output = max(output, sequence.max_tokens)
        return f"{prompt} + {output} tokens never fit in {most}" if prompt + output > most else None

    def cancel(self, now: float, sequence: Sequence) -> int:
        """Forget it; its output tokens by now. Its blocks are free at once, the step under way takes its time."""
        self._let_pass(now)
        if self._run and sequence.rank >= 0:
            self._break(now)
        sequence.produced = self._produced(sequence)
        self._scheduler.remove(sequence)
        self._cut(now)
        return sequence.produced

    def slow(self, now: float, factor: float) -> None:
        """Steps that start from now on take `factor` times as long as the profile says."""
        self._let_pass(now)
        self._pace = factor / self.settings.speed
        self._cut(now)

    def clear(self, now: float) -> list[Sequence]:
        """All is lost, the cache too, and what was not yet told. Whom that hits, the batch first."""
        self._let_pass(now)
        if self._run:
            self._break(now)
        scheduler = self._scheduler
        lost = [*scheduler.running, *scheduler.waiting]
        for sequence in lost:
            sequence.produced = self._produced(sequence)
        scheduler.reset()
        for sequence in lost:
            sequence.rank = sequence.due = -1
            sequence.extents.clear()
        self._steps = 0
        self._told.clear()
        return lost

    # -- what it tells ------------------------------------------------------------------------------------

    def next_at(self) -> float:
        """The next instant at which `advance` has something to do or to tell; inf: nothing to come."""
        if self._told:
            return self._told[0].at
        scheduler = self._scheduler
        if not self._steps:
            return nextafter(self._at, inf) if scheduler.running or scheduler.waiting else inf
        due = scheduler.decoding.due()
        if not self._run:
            tells = self._ending or (due is not None and due[0] == scheduler.decoding.step)
            return self._boundary(1) if tells else nextafter(self._boundary(1), inf)
        if due is not None and due[0] - scheduler.decoding.step <= self._steps:
            return self._boundary(due[0] - scheduler.decoding.step)
        return nextafter(self._boundary(self._steps), inf)

    def advance(self, now: float) -> list[Happening]:
        """What has happened up to and including `now`, in the order of time, then of admission."""
        self._let_pass(now)
        told, self._told = self._told, []
        return told

    def tokens_at(self, sequence: Sequence, now: float) -> int:
        """Its output tokens of whole steps that ended by `now`."""
        self._let_pass(now)
        return self._produced(sequence)

    def boundary_after(self, now: float) -> float:
        """When the step under way ends; if none is and there is work: just after `now`. inf: idle."""
        self._let_pass(now)
        if self._run:
            return self._boundary(self._whole(now) + 1)
        if self._steps:
            return self._boundary(1)
        return self.next_at() if not self._told else nextafter(now, inf)

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._scheduler.running)

    @property
    def waiting(self) -> int:
        """Sequences in the queue, preempted ones too."""
        return len(self._scheduler.waiting)

    @property
    def free_blocks(self) -> int:
        """Blocks of KV cache that nobody holds; they may have contents that can be found again."""
        scheduler, steps = self._scheduler, 0
        if self._run:
            steps = self._whole(self._now)
            steps += self._boundary(steps) < self._now
        return scheduler.free_blocks - scheduler.decoding.blocks_for(steps)

    @property
    def kv_used_ratio(self) -> float:
        """Share of the KV cache that is held, 0..1."""
        return 1 - self.free_blocks / self.settings.blocks

    @property
    def counters(self) -> Counters:
        """Totals of the segments that are over."""
        return self._scheduler.counters

    def check(self) -> None:
        """Assert what this module promises."""
        self._scheduler.check()
        assert self._steps or not self._run
        assert not self._steps or self._start <= self._now
        for earlier, later in pairwise(self._told):
            assert earlier.at <= later.at <= self._now

    # -- time ---------------------------------------------------------------------------------------------

    def _let_pass(self, now: float) -> None:
        self._now = now
        scheduler = self._scheduler
        while True:
            if self._run:
                if not self._pass_run(now):
                    return
            elif self._steps:
                end = self._boundary(1)
                if end > now:
                    return
                self._end_step(end)
            elif scheduler.steady():
                self._open_run()
            elif self._at < now and (scheduler.running or scheduler.waiting):
                self._plan()
            else:
                return

    def _boundary(self, step: int) -> float:
        return self._start + (step * self._first_s + self._growth_s * (step * (step - 1) / 2))

    def _whole(self, now: float) -> int:
        """Steps of the run that ended by `now`."""
        passed, growth, steps = now - self._start, self._growth_s, 0
        if growth > 0:
            slope = self._first_s - growth / 2
            steps = int(2 * passed / (slope + sqrt(slope * slope + 2 * growth * passed)))
        else:
            steps = int(passed / self._first_s)
        while steps and self._boundary(steps) > now:
            steps -= 1
        while self._boundary(steps + 1) <= now:
            steps += 1
        return steps

    def _produced(self, sequence: Sequence) -> int:
        """Output tokens by the instant up to which time has passed."""
        if sequence.due < 0:
            return sequence.produced
        decoding = self._scheduler.decoding
        whole = decoding.step
        if self._run:
            whole += self._whole(self._now)
        elif self._steps and sequence not in self._idle:
            whole -= 1
        return decoding.produced_of(sequence, whole)

    # -- runs -----------------------------------------------------------------------------------------------

    def _open_run(self) -> None:
        scheduler = self._scheduler
        decoding = scheduler.decoding
        growth = decoding.growth
        run = self.curve.decode_run(
            growth.count,
            decoding.context_tokens(),
            growth.tokens_per_step,
            growth.count * decoding.draft_tokens,
        )
        self._start = self._at
        self._first_s, self._growth_s = run.first_s * self._pace, run.growth_s * self._pace
        self._steps, self._decodes = min(run.steps, scheduler.steady_steps()), growth.count
        self._run = True

    def _pass_run(self, now: float) -> bool:
        """Up to the next event of the run. False if that is after `now`."""
        decoding = self._scheduler.decoding
        due, steps = decoding.due(), self._steps
        if due is not None and due[0] - decoding.step < steps:
            steps = due[0] - decoding.step
        at = self._boundary(steps)
        if at > now:
            return False
        finished = []
        while due is not None and due[0] - decoding.step == steps:
            sequence = due[1]
            decoding.take_due()
            if self._tell(sequence, at, decoding.produced_of(sequence, due[0])):
                finished.append(sequence)
            else:
                decoding.expect(sequence)
            due = decoding.due()
        if finished or steps == self._steps:
            self._close_run(steps)
            for sequence in finished:
                self._scheduler.remove(sequence)
        return True

    def _close_run(self, steps: int) -> None:
        """Its first so many steps are over, and no further one is begun."""
        at = self._boundary(steps)
        self._run = False
        if steps:
            self._scheduler.begin_decoding(steps)
            self._over(at, steps)
        self._steps = 0
        self._at = at

    def _cut(self, now: float) -> None:
        """Of a run, steps that would begin at `now` or later are planned anew."""
        if self._run:
            steps = self._whole(now)
            if self._boundary(steps) < now:
                steps += 1
            self._steps = min(self._steps, steps)
            if not self._steps:
                self._close_run(0)

    def _break(self, now: float) -> None:
        """Of a run, only the step under way is left, and it is begun."""
        steps = self._whole(now)
        at, end = self._boundary(steps), self._boundary(steps + 1)
        self._close_run(steps)
        if at < now:
            self._scheduler.begin_decoding(1)
            self._begin(at, end - at, self._decodes)

    # -- single steps ---------------------------------------------------------------------------------------

    def _plan(self) -> None:
        step = self._scheduler.plan()
        while not (step.decodes or step.chunks):  # all that could have run was preempted
            step = self._scheduler.plan()
        drafts = step.decodes * self.settings.draft_tokens
        seconds = self.curve.step_s(step.decodes, step.context_tokens, step.chunks, drafts)
        self._begin(self._at, seconds * self._pace, step.decodes)
        self._ending, self._idle = step.ending, step.idle
        self._prefill_tokens = sum(tokens for tokens, _ in step.chunks)

    def _begin(self, at: float, seconds: float, decodes: int) -> None:
        """A single step."""
        self._start, self._first_s, self._growth_s = at, seconds, 0.0
        self._steps, self._decodes = 1, decodes

    def _end_step(self, at: float) -> None:
        scheduler, decoding = self._scheduler, self._scheduler.decoding
        self._over(at, 1)
        self._steps, self._at = 0, at
        ended = [one for one in self._ending if one.rank >= 0]  # the others have left
        self._ending, self._idle, self._prefill_tokens = [], [], 0
        for sequence in ended:
            self._produce(sequence)
        while (due := decoding.due()) is not None and due[0] == decoding.step:
            decoding.take_due()
            due[1].produced = decoding.produced_of(due[1], due[0])
            ended.append(due[1])
        for sequence in sorted(ended, key=_rank):
            if self._tell(sequence, at, sequence.produced):
                scheduler.remove(sequence)
            elif sequence.due >= 0:
                decoding.expect(sequence)
            else:
                scheduler.join(sequence)

    def _produce(self, sequence: Sequence) -> None:
        """All that was known is computed: one more token, and how many decode steps are left?"""
        if sequence.output_tokens:
            sequence.produced += 1
        left = sequence.output_tokens - sequence.produced
        least = -(-left // (1 + self.settings.draft_tokens))
        sequence.decode_steps = min(max(sequence.decode_steps - 1, least), left)

    def _over(self, at: float, steps: int) -> None:
        counters = self._scheduler.counters
        counters.steps += steps
        counters.busy_s += at - self._start
        if self.on_batch is not None:
            scheduler = self._scheduler
            used = 1 - scheduler.free_blocks / self.settings.blocks
            self.on_batch(self._start, at, steps, self._decodes, self._prefill_tokens, self.waiting, used)

    def _tell(self, sequence: Sequence, at: float, output_tokens: int) -> bool:
        """Note what has come about. True if it is complete."""
        sequence.produced = output_tokens
        if output_tokens == 1:
            self._told.append(Happening(at, FIRST_TOKEN, sequence, 1))
        if output_tokens >= sequence.output_tokens:
            self._told.append(Happening(at, FINISHED, sequence, output_tokens))
            return True
        if output_tokens >= sequence.mark:
            self._told.append(Happening(at, PROGRESS, sequence, output_tokens))
            while sequence.mark <= output_tokens:
                sequence.mark *= 2
        return False


def _rank(sequence: Sequence) -> int:
    return sequence.rank
