"""How many requests are in the batch and before its gate, at a random instant?

Sequences that decode are served at once, each at the pace of the steps: an egalitarian processor-sharing
queue whose speed depends on its state n, the number inside. Prompts take the share `stalled` of all time, so
that a sequence is inside for

    D(n) = prompt_s + (decode steps x T(n) + behind_s) / (1 - stalled)

(`Stay` has these times), and n of them leave at mu(n) = n / D(n). With Poisson arrivals the number is a
birth-death process whatever the law of lengths is, as processor sharing is insensitive to it (Kelly,
Reversibility and Stochastic Networks (1979), section 3.3; Bonald and Proutiere, Insensitivity in processor-
sharing networks, Performance Evaluation 49 (2002)).

But no sequence advances while prompts stall the batch, and others arrive. Measured in time that is not
stalled, arrivals come in clumps: one, those that came during its prompt, during theirs, and so on, as the
customers of a busy period come of its first. A clump's mean square over its mean, its index of dispersion, is

    clumps = (ca² + cv² stalled²) / (1 - stalled)²

of gaps with ca² and prompts with cv² (a branching process with `stalled` children each; Harris, The Theory of
Branching Processes (1963)). Clumps make the number vary more than Poisson's, by their *peakedness*

    z = 1 + (clumps - 1) E[min of two outputs] / E[output]

(Eckberg, Generalized peakedness of teletraffic processes, ITC 10 (1983): the last factor is the integral of
the squared survival function of a stay over its mean, 1 for fixed outputs and 1/2 for exponential ones).
Clumps of geometric size with mean z at a rate r/z have this peakedness, and level crossings give neighbouring
states as

    p(n) / p(n - 1) = r / (z mu(n)) + (1 - 1/z) mu(n - 1) / mu(n)

which for mu(n) = n is Pascal's law, of teletraffic's BPP method.

A gate lets only so many inside. The others wait, first come, first served, and are served at the rate of a
full batch, so that the tail is geometric. The chance to wait is Erlang's p(gate) / (1 - utilisation), times
(clumps + 1) / 2; the wait of those that do is exponential with Allen and Cunneen's (ca² + cs²) / 2.
"""

from __future__ import annotations

from math import inf, log
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tidegate.plan.laws.batching import Batch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

DISORDER = 0.7
"""Of how many arrivals it takes until a replica gets one again, the variance over that of a choice by lot; 0
would be turns. The median of what routing by tokens held shows: 0.3 to 1.4, more where lengths vary, at high
load, and of many replicas. Counted by `python -m accuracy.closed_form --turns`."""
NEGLIGIBLE = 1e-7
"""States rarer than this, relative to the likeliest, are left out."""
MANY, ASKED, FAR = 2048, 256, 2.0
"""States of which each is looked at; of more so many at first, to find those that are not this times as far
from the likeliest, in logarithms, as what is negligible."""
CLOSE = 0.005
"""Relative, to what is usual."""
SMOOTHEST = 0.02
"""Least peakedness: no number that comes and goes is more even."""


class Arrivals(msgspec.Struct, frozen=True, kw_only=True):
    """What comes to a gate, and to how many replicas behind it."""

    rate_per_s: float
    """To all of them."""
    cv2: float = 1.0
    """Squared coefficient of variation of the gaps; 1: Poisson."""
    replicas: int = 1
    """That share one queue, each request going to the least loaded: their batches are nearly equal."""

    @property
    def each_per_s(self) -> float:
        """To each of them."""
        return self.rate_per_s / self.replicas

    @property
    def each_cv2(self) -> float:
        """Of the gaps at each, in the long run: numbers are kept equal, so that each gets its part."""
        return self.cv2 / self.replicas

    @property
    def next_cv2(self) -> float:
        """Of single gaps at each: sums of as many as it takes until it is the least loaded again."""
        return self.each_cv2 + DISORDER * (1 - 1 / self.replicas)


class Stay(msgspec.Struct, frozen=True, kw_only=True):
    """What a request goes through inside the gate."""

    decodes: float
    """Sequences that decode beside it, usually."""
    prompt_s: float
    """Arrival to first token, mean."""
    behind_s: float
    """By which prompts that wait behind its own stall it, beside those that come once it decodes."""
    stalled: float
    """Share of the time of a sequence that decodes, 0..1, that prompts of others take."""


class Population(NamedTuple):
    """The chance of each number of requests inside the gate."""

    first: int
    shares: Floats
    """Of `first`, `first + 1`, ..., up to the gate at most, of all replicas together; they sum to 1."""
    wait_probability: float
    """Of an arrival: that the gate is closed. Part of the last share."""
    relief_per_s: float
    """Rate at which the tail of that wait decays."""


def usual_decodes(batch: Batch, rate_per_s: float, gate: int) -> float:
    """Sequences that decode where a replica just keeps up with its arrivals: about the likeliest number."""

    def gain(decodes: float) -> float:
        """Steps that arrivals bring beyond those that are made meanwhile, in the seconds of a step."""
        free = 1 - rate_per_s * batch.prefill_s(decodes)
        return rate_per_s * batch.decode_steps * batch.decode_s(decodes) - decodes * free

    low, high = 0.0, gate * batch.decode_steps / (batch.decode_steps + batch.prompt_steps)
    found, gained, lost = high, rate_per_s * batch.decode_steps * batch.decode_s(0.0), gain(high)
    # It is nearly straight. Halving the side that stays is Illinois' way to keep both sides moving.
    while lost < 0:
        before, found = found, low + (high - low) * gained / (gained - lost)
        if abs(found - before) <= CLOSE * found + 1e-3:
            break
        if (at := gain(found)) > 0:
            low, gained, lost = found, at, lost / 2
        else:
            high, gained, lost = found, gained / 2, at
    return found


def population(batch: Batch, arrivals: Arrivals, gate: int, stay: Stay) -> Population:
    """At a rate that is sustained. `gate` is of each replica, the numbers are of all of them."""
    import numpy as np

    free, most = 1 - stay.stalled, gate * arrivals.replicas
    clumps = (arrivals.cv2 + batch.prompt_cv2 * stay.stalled**2) / free**2
    ratios = _Ratios(batch, arrivals, stay, clumps)
    low, high = _likely(ratios, most)
    # In logarithms, for products of thousands leave the range of numbers.
    likely = np.concatenate([[0.0], np.log(ratios.between(low, high)).cumsum()])
    shares = np.exp(likely - likely.max())

    full, waiting = arrivals.each_per_s / batch.saturated(gate).requests_per_s, 0.0
    if high == most:
        shares[-1] = waiting = float(shares[-1]) / (1 - full) * (clumps + 1) / 2
    kept = np.flatnonzero(shares > NEGLIGIBLE)
    # Where hardly anybody comes, who does is negligible, and yet what is asked about.
    first, last, total = int(kept[0]), max(int(kept[-1]), 1 - low), float(shares.sum())
    variation = max(1e-6, (arrivals.cv2 + batch.output_cv2) / 2)
    return Population(
        first=low + first,
        shares=shares[first : last + 1] / total,
        wait_probability=waiting / total,
        relief_per_s=arrivals.rate_per_s * (1 / full - 1) / variation,
    )


def _likely(ratios: _Ratios, most: int) -> tuple[int, int]:
    """Two numbers up to `most`, between which are all that are not negligible.

    Of many a few are asked, for a sum of logarithms is nearly an integral, and then of what is left again.
    """
    import numpy as np

    low, high, before = 0, most, inf
    while high - low > MANY and high - low < before / 2:
        before = high - low
        asked = np.linspace(low + 1, high, ASKED).astype(np.intp)
        logs = np.log(ratios.at(asked))
        likely = np.concatenate([[0.0], ((logs[1:] + logs[:-1]) / 2 * (asked[1:] - asked[:-1])).cumsum()])
        near = np.flatnonzero(likely > likely.max() + FAR * log(NEGLIGIBLE))
        low = int(asked[near[0] - 1]) if near[0] else low
        high = int(asked[min(near[-1] + 1, ASKED - 1)])
    return low, high


class _Ratios:
    """p(n) / p(n - 1), of all gates together."""

    def __init__(self, batch: Batch, arrivals: Arrivals, stay: Stay, clumps: float) -> None:
        self._batch, self._arrivals, free = batch, arrivals, 1 - stay.stalled
        self._fixed_s = stay.prompt_s + stay.behind_s / free
        self._steps = batch.decode_steps / free
        usual_s = self._steps * batch.decode_s(stay.decodes)
        self._decoding = usual_s / (usual_s + self._fixed_s)  # of those inside
        # A number that is mostly 0 or 1 varies as a coin does, however even its arrivals are.
        coin = 1 - min(1.0, arrivals.rate_per_s * (self._fixed_s + self._steps * batch.decode_s(1)))
        self._peakedness = max(1 + (clumps - 1) * batch.evenness, coin, SMOOTHEST)

    def between(self, low: int, high: int) -> Floats:
        """Of `low + 1`, ..., `high`."""
        import numpy as np

        plain = self._plain(np.arange(max(low, 1), high + 1))
        after = self._clumped(plain[1:], plain[:-1])
        return after if low else np.concatenate([plain[:1] / self._peakedness, after])

    def at(self, numbers: NDArray[np.intp]) -> Floats:
        """Of some ascending ones, about."""
        import numpy as np

        return self._clumped(self._plain(numbers), self._plain(np.maximum(numbers - 1, 1)))

    def _clumped(self, plain: Floats, before: Floats) -> Floats:
        import numpy as np

        ratios = plain / self._peakedness + (1 - 1 / self._peakedness) * plain / before
        return np.maximum(ratios, 1e-300)

    def _plain(self, numbers: NDArray[np.intp]) -> Floats:
        """r / mu(n)."""
        import numpy as np

        inside = numbers / self._arrivals.replicas
        # Beside a sequence that decodes, of the others some do.
        decodes = np.maximum(1.0, 1 + (inside - 1) * self._decoding)
        stays_s = self._fixed_s + self._steps * self._batch.decode_many_s(decodes)
        plain: Floats = self._arrivals.each_per_s * stays_s / inside
        return plain
