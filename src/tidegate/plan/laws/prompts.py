"""How long are the steps of a batch into which prompts fall, and how long does a prompt take in them?

What is not yet computed of the prompts, seen at the start of each step, is a Markov chain. A step computes as
much of it as its token budget allows, which makes it longer; whoever comes meanwhile is there when the next
one starts. It is a queue with gated bulk service and, as decoding goes on without prompts too, with vacations
(Takagi, Queueing Analysis 1 (1991), chapter 2). Prompts are cut into equal quanta of tokens, and the chain is
solved as it stands: no constant of it is fitted.

Who arrives falls into a step with a chance proportional to its length, waits for its end, and then for the
steps up to the one that computes the last token of its prompt, whose other prompts it waits for too.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from tidegate.plan.laws.batching import Batch
from tidegate.plan.laws.burstiness import excess

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Complex = NDArray[np.complex128]
    Law = tuple[Floats, Floats]
    """Times in seconds, ascending, and how often each comes."""

QUANTA = 48
"""States of the chain."""
INSTANTS = 5
"""Into so many equal parts a step is cut for who arrives in it."""
BINS = 128
"""Of a law of times."""
SHORT = 64
"""Decode steps up to which it is looked at step by step what a sequence finds behind its prompt; a longer
one sees the end of it."""
RARE = 1e-5
"""What is rarer is left out."""


class Prompts(NamedTuple):
    """What a batch of a given number of decoding sequences does with prompts."""

    steps: Law
    """How long a step takes; the first of them is without prompts."""
    waits: Law
    """From arrival to the end of the step that finishes the prompt."""
    at_boundaries: Law
    """The same for who comes just when a step ends; in any order."""
    mean_wait_s: float
    mean_step_s: float
    steps_waited: float
    """Steps that a prompt waits and is computed in, the one that was under way as a half, mean."""
    behind_s: float
    """By which prompts stall a sequence more than if it came to decode at a random instant: those that came
    while its own was computed are still to be computed. Without those that come meanwhile."""
    behind_var: float
    """Variance of that."""

    @property
    def boundary_waits(self) -> Law:
        """`at_boundaries` as the other laws; few ask for it."""
        return _binned(*self.at_boundaries)


def prompts(batch: Batch, rate_per_s: float, decodes: float, cv2: float = 1.0) -> Prompts:
    """At `rate_per_s` of prompts, with gaps of that squared coefficient of variation."""
    return Chain(batch, rate_per_s, decodes, cv2).prompts()


class Chain:
    """All amounts are in quanta."""

    instants = INSTANTS

    def __init__(self, batch: Batch, rate_per_s: float, decodes: float, cv2: float) -> None:
        import numpy as np  # here, for it is a third of what this package takes to import

        self._np = np
        self._decode_steps = round(max(1.0, batch.decode_steps))
        prefill_s = batch.prefill_s(decodes)
        step_s = batch.decode_s(decodes) + prefill_s
        mates = 2 * excess(rate_per_s, cv2, step_s)  # that come up to a step before it or after it
        quantum, self._budget = _quantum(batch, rate_per_s * max(1.0, 1 + mates / 2), decodes)
        self._seconds = _seconds(batch, decodes, quantum, self._budget)
        mean = batch.prompt_tokens / quantum
        self._flow = rate_per_s * mean  # a second
        self._grain = mean * (batch.prompt_cv2 + max(0.0, 1 + mates))  # variance of what flows, over its mean
        self._quantum_s = prefill_s / mean

        amounts, shares = batch.prompts
        whole = np.minimum(amounts / quantum, QUANTA - 1.0)
        low = whole.astype(np.intp)
        length = np.bincount(low, shares * (low + 1 - whole), 2 * QUANTA)
        length += np.bincount(low + 1, shares * (whole - low), 2 * QUANTA)
        # The transform of a compound law is a function of the transform of what is compounded.
        self._arrival = np.fft.rfft(length * _powers())
        self._one = self._arrival[0]
        self._come, self._mates = _clumped(rate_per_s * self._seconds, mates, rate_per_s * step_s, self._one)

    def prompts(self) -> Prompts:
        """Solve it, and look at it as an arrival does."""
        np, seconds, budget = self._np, self._seconds, self._budget
        states = self._states()
        spent_s = states * self._steps_s()
        mean_step_s = float(spent_s.sum())
        left, level, new, own, shares = self._met(spent_s / mean_step_s)

        # A row for each instant, for arrays are quick along long rows.
        passed = _passed(self.instants)
        full_s, flow = float(seconds[-1]), self._flow
        ahead = (left + own) + (new - own) * passed
        before = np.maximum(np.ceil(ahead / budget - 1e-9) - 1, 0)  # full steps, before the one it ends in
        there = np.maximum((left + new) - before * (budget - flow * full_s), 0.0)
        last = np.minimum(there, budget)
        last_s = np.interp(last, _numbers()[: budget + 1], seconds)
        boundary_s = before * full_s + last_s
        waits_s = boundary_s + seconds[level] * (1 - passed)
        behind = there - last + flow * last_s
        shares = shares / self.instants
        weights = np.concatenate([shares] * self.instants)

        def mean(values: Floats) -> float:
            return float((values * shares).sum())  # a product by BLAS wakes its threads for it

        # The prompts that are there when its last step starts will stall others only.
        numbers = _numbers()
        after, mean_behind = float(states @ numbers), mean(behind)
        spread = mean(behind * behind) + self._grain * flow * mean(last_s) - mean_behind**2
        spread += float(states @ (numbers * numbers)) - after**2
        return Prompts(
            steps=(seconds, np.append(states[:budget], states[budget:].sum())),
            waits=_binned(waits_s.ravel(), weights),
            at_boundaries=(boundary_s.ravel(), weights),
            mean_wait_s=mean(waits_s),
            mean_step_s=mean_step_s,
            steps_waited=1.5 + mean(before),
            behind_s=self._behind_s(behind.ravel(), weights, mean_step_s)
            if self._decode_steps <= SHORT
            else (mean_behind - after) * self._quantum_s,
            behind_var=spread * self._quantum_s**2,
        )

    def _steps_s(self) -> Floats:
        """Of a step at whose start there are 0, 1, ... quanta; it computes no more than its budget."""
        seconds, beyond = self._seconds, QUANTA - 1 - self._budget
        return self._np.concatenate([seconds, seconds[-1:].repeat(beyond)]) if beyond else seconds

    def _states(self) -> Floats:
        """How often a step starts with so many quanta to compute."""
        np, budget = self._np, self._budget
        come = np.fft.irfft(self._come)[:, :QUANTA]
        chain = np.empty((QUANTA, QUANTA))
        chain[:budget] = come[:budget]
        # A full step leaves what is beyond its budget, beside what comes meanwhile.
        full = np.concatenate([_numbers() * 0.0, come[budget]])
        chain[budget:] = full[_shifted()[: QUANTA - budget]]
        self._chain = chain  # without what comes beyond its last state, of which one equation is left out
        equations = chain.T - _same()
        equations[-1] = 1.0
        states = np.maximum(np.linalg.solve(equations, _same()[-1]), 0.0)
        shares: Floats = states / states.sum()
        return shares

    def _behind_s(self, behind: Floats, weights: Floats, mean_step_s: float) -> float:
        """What a sequence of few steps sees of it."""
        np, steps_s = self._np, self._steps_s()
        more_s = np.zeros(QUANTA)
        self._chain[:, -1] += 1 - self._chain.sum(axis=1)
        for _ in range(self._decode_steps):
            more_s = steps_s - mean_step_s + self._chain @ more_s
        found_s = float((np.interp(behind, _numbers(), more_s) * weights).sum())
        return found_s * float(steps_s[0]) / mean_step_s

    def _met(self, met: Floats) -> tuple[Floats, NDArray[np.intp], Floats, Floats, Floats]:
        """What arrivals find, case by case: left over, computed meanwhile, come meanwhile, their own; how
        often.

        Its own is the mean, given all that comes in the same step.
        """
        np, budget = self._np, self._budget
        seen = (met > RARE).nonzero()[0]
        level = np.minimum(seen, budget)
        # An arrival, with who came in the same step: how much, and of it how much is the arrival's.
        both = self._arrival[:, None] * self._mates[level]
        joined, owned = np.maximum(np.fft.irfft(both)[:, :, :QUANTA], 0.0)
        shares = (met[seen] / joined.sum(axis=1))[:, None] * joined
        case = (shares > RARE).nonzero()
        row, new = case
        kept = shares[case]
        own = np.minimum(owned[case] / joined[case], new)
        return (seen - level)[row].astype(float), level[row], new.astype(float), own, kept / kept.sum()


@cache
def _numbers() -> Floats:
    """Quanta of each state."""
    import numpy as np

    return np.arange(float(QUANTA))


@cache
def _same() -> Floats:
    """The chance to go to a state for who stays in the one it is in."""
    import numpy as np

    return np.eye(QUANTA)


@cache
def _passed(instants: int) -> Floats:
    """How much of a step has passed at each instant, 0..1; a row each."""
    import numpy as np

    return (np.arange(instants)[:, None] + 0.5) / instants


@cache
def _powers() -> Floats:
    """Of which a law's sums are its shares, and its amounts times their shares."""
    import numpy as np

    amounts = np.arange(2.0 * QUANTA)
    return np.array((np.ones(2 * QUANTA), amounts))


@cache
def _shifted() -> NDArray[np.intp]:
    """Where to find, behind so many zeros, a row that is moved to the right by 0, 1, ... places."""
    import numpy as np

    return QUANTA + np.arange(QUANTA) - np.arange(QUANTA)[:, None]


def _clumped(expected: Floats, mates: float, usual: float, one: Complex) -> tuple[Complex, Complex]:
    """For each number that is expected in a step, the transform of what comes, and of an arrival's mates.

    Positive mates: batches of geometric size, mean 1 + mates/2, that come as a Poisson process. Negative
    ones: a part of what comes is as even as it can be, m or m + 1; of it an arrival has fewer mates, by that
    part of the `usual` number if that is below 1.
    """
    import numpy as np

    if mates >= 0:
        size = 1 + mates / 2
        rest = size - (size - 1) * one
        come = np.exp((expected / size)[:, None] * (one / rest - 1))
        return come, come / (rest * rest) if mates else come
    part = min(1.0, (-mates / usual) ** 0.5)
    even = (part * expected)[:, None]
    random = np.exp(((1 - part) * expected)[:, None] * (one - 1))
    if even.max() < 1:  # one or none, which has no such mates
        single = even * (one - 1) * random
        return random + single, random + (1 - part) * single
    sure = np.floor(even)
    power, more = one[None, :] ** np.maximum(sure - 1, 0), even - sure
    power_of_sure = np.where(sure > 0, power * one, 1)
    come = random * power_of_sure * (1 + more * (one - 1))
    fewer = (sure * (1 - more) * power + (sure + 1) * more * power_of_sure) / even
    return come, (1 - part) * come + part * random * fewer


def _quantum(batch: Batch, rate_per_s: float, decodes: float) -> tuple[float, int]:
    """Tokens of a quantum, so that all that usually waits is in the chain; and quanta of a step's budget."""
    budget = max(1.0, batch.engine.max_batched_tokens - decodes)
    typical = batch.prompt_tokens * (1 + batch.prompt_cv2)
    prefill_s = batch.prefill_s(decodes)
    flow = rate_per_s * batch.prompt_tokens * batch.decode_s(decodes) / max(0.02, 1 - rate_per_s * prefill_s)
    used = min(0.98, rate_per_s * batch.prompt_tokens * batch.step_s(decodes, budget) / budget)
    # The arrival itself and one more, what comes in a step, and what is left of those before.
    reach = (
        batch.longest_tokens + typical + flow + 4 * (flow * typical) ** 0.5 + 4 * used * typical / (1 - used)
    )
    if reach <= budget:
        quantum = reach / (QUANTA - 1)
        return batch.prompt_tokens / max(1.0, batch.prompt_tokens // quantum), QUANTA - 1
    quanta = max(1, int(budget / reach * (QUANTA - 1)))
    return budget / quanta, quanta


def _seconds(batch: Batch, decodes: float, quantum: float, budget: int) -> Floats:
    """Of a step that computes 0, 1, ... quanta."""
    import numpy as np

    asked = _asked(budget)
    seconds: Floats = np.interp(_numbers()[: budget + 1], asked, batch.steps_s(decodes, asked * quantum))
    return seconds


@cache
def _asked(budget: int) -> Floats:
    """Quanta of which the time is asked, closer together where they are few."""
    import numpy as np

    return np.array(sorted({round(budget * (each / 12) ** 2) for each in range(13)} | {1}), float)


def _binned(times_s: Floats, shares: Floats) -> Law:
    """The law of times, gathered into equal bins, each with its mean; the latest are all in the last."""
    import numpy as np

    least, weighed = float(times_s.min()), times_s * shares
    mean = float(weighed.sum())
    deviation = float((weighed * times_s).sum()) - mean * mean
    most = min(float(times_s.max()), mean + 10 * max(deviation, 0.0) ** 0.5)
    width = (most - least) / BINS or 1.0
    places = np.minimum((times_s - least) / width, BINS - 1).astype(np.intp)
    held, sums = (np.bincount(places, each, BINS).astype(float, copy=False) for each in (shares, weighed))
    kept = (held > 0).nonzero()
    held = held[kept]
    return sums[kept] / held, held
