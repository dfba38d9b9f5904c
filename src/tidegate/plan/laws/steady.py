"""Which latencies do requests meet at a replica, or several, at a constant rate?

    batch = Batch(engine, Lengths.of(prompt=512, output=200))
    steady(batch, Arrivals(rate_per_s=8.0), gate=64).ttft_s.p95

`population` says how many decode, `prompts` how long the steps are beside so many; the number changes so much
more slowly than steps follow each other that each is solved with the other held still. Then

TTFT  is the wait before the gate, and that for the prompt; an idle replica begins at once. ITL   of a gap is
the step that fills it: a number of sequences counts as often as it has gaps. TPOT  is, in the mean, what
Little's law makes of the mean number that decodes. A request meets the average over
      its own stay: its variance is that of the batch, as far as the batch does not forget itself meanwhile,
      and that of the prompts that happen to come.
E2E   is TTFT and a TPOT for each output token after the first.
"""

from __future__ import annotations

from functools import cache, cached_property
from math import inf
from typing import TYPE_CHECKING

import msgspec

from tidegate.core.errors import CallerError
from tidegate.plan.laws.batching import Batch
from tidegate.plan.laws.burstiness import excess
from tidegate.plan.laws.population import Arrivals, Stay, population, usual_decodes
from tidegate.plan.laws.prompts import RARE, prompts
from tidegate.plan.laws.queues import erlang_c
from tidegate.plan.laws.spread import Spread

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Law = tuple[Floats, Floats]
    """Seconds, and how often they come."""

STRATA = 6
"""Into so many the numbers of sequences are gathered, each with its mean."""
WAITS = 45
"""Into so many equally long parts the waits before a closed gate are cut, up to nine times their mean."""
GROUPS = 24
"""Into so many the waits for a prompt are gathered, where they come after such a wait."""
DEVIATIONS, MOST = 800, 200
"""Into so many parts laws are cut, all together and one at most, between -3 and 3 standard deviations."""
TOGETHER = 0.61
"""Correlation of the batch and of the prompts that a request meets over its stay. Arrivals make both: with
fixed stays of D, one at a time u before or after has a part of 1 - |u|/D in the first, for u < 0 too, and of
1 in the second. Variances are 2/3 and 1, the covariance is 1/2 (each times the arrivals of a stay)."""


class Steady(msgspec.Struct, frozen=True, kw_only=True):
    """How a load is served for ever."""

    utilisation: float
    """The rate over the highest that is sustained at this gate; from 1 on every latency is infinite."""
    sequences: float
    """Inside the gate of a replica, mean."""
    wait_probability: float
    """Of finding the gate closed."""
    wait_s: Spread
    """Before the gate."""
    ttft_s: Spread
    """Over requests, from arrival to the end of the step that finishes the prompt."""
    itl_s: Spread
    """Over gaps between tokens; nan without any, as the next."""
    tpot_s: Spread
    """Over requests of two output tokens or more."""
    e2e_s: Spread
    """Over requests."""


def steady(batch: Batch, arrivals: Arrivals, gate: int | None = None) -> Steady:
    """At this rate; `gate` is of each replica, by default the least of what its cache and its batch hold."""
    gate = batch.gate() if gate is None else gate
    if not 0 < arrivals.rate_per_s < inf or arrivals.replicas < 1:
        raise CallerError("latencies need a rate above 0, finite, and a replica")
    utilisation = arrivals.each_per_s / batch.saturated(gate).requests_per_s
    if utilisation < 1:
        return Solved(batch, arrivals, gate).steady()
    never = Spread.never()
    return Steady(
        utilisation=utilisation,
        sequences=float(gate),
        wait_probability=1.0,
        wait_s=never,
        ttft_s=never,
        itl_s=never if batch.decode_steps else Spread.undefined(),
        tpot_s=never if batch.decode_steps else Spread.undefined(),
        e2e_s=never,
    )


class Solved:
    """How many are inside, and how long steps are, at a rate that is sustained; each law when it is asked."""

    def __init__(self, batch: Batch, arrivals: Arrivals, gate: int) -> None:
        import numpy as np  # as in `prompts`

        self._np = np
        self._batch, self._arrivals = batch, arrivals
        rate, usual = arrivals.each_per_s, usual_decodes(batch, arrivals.each_per_s, gate)
        found = self._found = prompts(batch, rate, usual, arrivals.next_cv2)
        alone_s = batch.decode_s(usual)
        full = batch.saturated(gate)
        self._utilisation = rate / full.requests_per_s
        self._queues_inside = full.binding == "prefill"
        others = _others(usual / full.decodes if full.decodes else 1.0, gate * arrivals.replicas)
        others *= _crowded(rate * (found.mean_wait_s + batch.decode_steps * alone_s), arrivals.replicas)
        stay = self._stay = Stay(
            decodes=usual,
            prompt_s=found.mean_wait_s,
            behind_s=others * found.behind_s,
            stalled=others * (1 - alone_s / found.mean_step_s),
        )
        held = self._held = population(batch, arrivals, gate, stay)
        inside = held.shares
        numbers = np.arange(held.first, held.first + len(inside)) / arrivals.replicas
        self._idle = float(inside[numbers < 1].sum())  # fewer than replicas: one of them has none
        self._sequences = float((numbers * inside).sum())
        stay_s = self._sequences / rate  # Little's law
        # Who comes in a burst finds those before it still there.
        self._idle /= 1 + max(0.0, excess(rate, arrivals.next_cv2, stay_s))
        if self._idle > RARE:
            # A replica that computes prompts is not idle, however clumped the numbers are.
            prompts_s = float((batch.alone[0] * batch.alone[1]).sum())
            self._idle = min(self._idle, 1 - min(1.0, rate * prompts_s) ** arrivals.replicas)
        least_s = batch.decode_steps * min(alone_s / (1 - stay.stalled), full.tpot_s)
        # Every step gives each that decodes a token, and takes no more than one full of prompts.
        longest_s = float(found.steps[0][-1])
        # Little's is the difference of two times; where a stay is mostly prompt, the usual steps tell more.
        decoding_s = batch.decode_steps * batch.decode_s(max(1.0, usual))
        usual_s = (decoding_s + stay.behind_s) / (1 - stay.stalled)
        prompting = min(1.0, stay.prompt_s / stay_s)
        decode_s = prompting * usual_s + (1 - prompting) * (stay_s - stay.prompt_s)
        self._decode_s = min(max(decode_s, least_s), batch.decode_steps * longest_s)
        decodes = np.where(numbers > 0, np.maximum(1.0, 1 + (numbers - 1) * self._decode_s / stay_s), 0.0)
        self._decodes, self._shares = _grouped(decodes, inside, STRATA)
        self._decoding_s = batch.decode_many_s(self._decodes)
        self._slower_s = self._decoding_s - alone_s
        self._longest_s = longest_s + float(self._slower_s[-1])

    @cached_property
    def ttft_s(self) -> Spread:
        """What a budget is missed by first, so that the others need not be known."""
        return Spread.of(self._ttft)

    def steady(self) -> Steady:
        """All of it."""
        held, decode_steps, ttft_s = self._held, self._batch.decode_steps, self.ttft_s
        tpot, e2e = self._tpot_and_e2e(self._ttft, ttft_s)
        return Steady(
            utilisation=self._utilisation,
            sequences=self._sequences,
            wait_probability=held.wait_probability,
            wait_s=Spread.of_tail(held.wait_probability, held.relief_per_s).at_most(ttft_s),
            ttft_s=ttft_s,
            itl_s=Spread.of(self._itl()) if decode_steps else Spread.undefined(),
            tpot_s=Spread.of(tpot) if tpot else Spread.undefined(),
            e2e_s=Spread.of(e2e).at_least(ttft_s),  # a law of two moments forgets how long a tail is
        )

    @cached_property
    def _ttft(self) -> Law:
        """Of who finds the gate open, the replica idle, and the gate closed: then a step has just ended."""
        np, found, held = self._np, self._found, self._held
        # Where prompts bind, all queue for the same, before the gate or behind it: `prompts` has it all.
        closed = 0.0 if self._queues_inside else held.wait_probability
        idle = self._idle if self._idle > RARE else 0.0
        waits_s, shares = found.waits
        laws = [
            (
                np.maximum((self._slower_s * found.steps_waited)[:, None] + waits_s, self._batch.decode_s(0)),
                (max(0.0, 1 - closed - idle) * self._shares)[:, None] * shares,
            )
        ]
        if idle:
            alone_s, shares = self._batch.alone
            laws.append((alone_s, idle * shares))
        if closed > RARE:
            ends = np.arange(WAITS + 1) * (9 / WAITS)
            before_s = (ends[:-1] + ends[1:]) / (2 * held.relief_per_s)
            after_s, shares = _grouped(*found.boundary_waits, GROUPS)
            after_s = after_s + self._slower_s[-1]
            come = -closed * np.diff(np.exp(-ends))
            laws.append((before_s[:, None] + after_s, come[:, None] * shares))
        return _joined(laws)

    def _itl(self) -> Law:
        """Each step is a gap of each sequence that decodes in it.

        There are more sequences than usual just when prompts come, so that gaps with prompts are met more
        often than steps with prompts happen: as much more as the mean gap, which is known, says.
        """
        np = self._np
        steps_s, steps_share = self._found.steps
        gaps_s = np.maximum(self._slower_s[:, None] + steps_s, self._decoding_s[0])
        shares = (self._decodes * self._shares / self._decoding_s)[:, None] * steps_share
        shares /= shares.sum()
        stalled = shares / (1 - shares[:, 0].sum())
        stalled[:, 0] = 0
        mean_s, stalled_s = float((gaps_s * shares).sum()), float((gaps_s * stalled).sum())
        lacking_s = self._decode_s / self._batch.decode_steps - mean_s
        more = min(0.9, max(0.0, lacking_s / (stalled_s - mean_s))) if stalled_s > mean_s else 0.0
        return gaps_s.ravel(), ((1 - more) * shares + more * stalled).ravel()

    def _tpot_and_e2e(self, ttft: Law, ttft_s: Spread) -> tuple[Law | None, Law]:
        """For each output length a gamma law above the least that is possible."""
        np, batch = self._np, self._batch
        outputs, shares = batch.outputs
        steps, several, ends = outputs - 1, outputs > 1, []
        if not several.all():
            ends.append((ttft[0], ttft[1] * float(shares[~several].sum())))
            steps, shares = steps[several], shares[several]
        if not len(steps):
            return None, _joined(ends)
        stays_s, variances = self._stays(steps)
        least_s = np.minimum(steps * self._decoding_s[0] * (1 - self._held.wait_probability), stays_s)
        ttft_var = float(((ttft[0] - ttft_s.mean) ** 2 * ttft[1]).sum() / ttft[1].sum())
        ends.append(_gamma(stays_s + ttft_s.mean, least_s + ttft_s.at[0], variances + ttft_var, shares))
        decoding = _gamma(stays_s, least_s, variances, shares)
        tpot_s = decoding[0] / np.repeat(steps, len(decoding[0]) // len(steps))
        return (np.minimum(tpot_s, self._longest_s), decoding[1]), _joined(ends)

    def _stays(self, steps: Floats) -> tuple[Floats, Floats]:
        """For each number of decode steps, seconds that they take: mean and variance."""
        np, batch, free = self._np, self._batch, 1 - self._stay.stalled
        behind_s = min(self._stay.behind_s / free, 0.5 * self._decode_s)
        mean_s = (self._decode_s - behind_s) / batch.decode_steps
        stays_s = steps * mean_s + behind_s
        gaps = self._decodes * self._shares
        gaps /= gaps.sum()
        usual = float((self._slower_s * gaps).sum())
        batch_var = float(((self._slower_s - usual) ** 2 * gaps).sum()) / free**2
        memory = self._forgetting_s() / stays_s
        batch_var = steps**2 * batch_var * (2 * memory * (1 - memory * (1 - np.exp(-1 / memory))))
        # Where the gate is closed, prompts come as regularly as others end.
        open_share = 1 - self._held.wait_probability
        grain = batch.prompt_cv2 + self._arrivals.each_cv2
        prompt_s = batch.prefill_s(float((self._decodes * self._shares).sum())) / free
        prompts_var = open_share**2 * grain * self._arrivals.each_per_s * prompt_s**2 * steps * mean_s
        both = batch_var + prompts_var + 2 * TOGETHER * open_share * np.sqrt(batch_var * prompts_var)
        both = both + open_share * self._found.behind_var / free**2
        # What lies between two bounds varies no more than if it were always one of them.
        least_s, most_s = steps * self._decoding_s[0], steps * self._longest_s
        return stays_s, np.minimum(both, np.maximum((stays_s - least_s) * (most_s - stays_s), 0.0))

    def _forgetting_s(self) -> float:
        """In how long a deviation of the batch shrinks to 1/e: 1 / mu'(n).

        A batch whose step time does not grow forgets within the stay of a sequence; one whose does, later.
        """
        batch, usual = self._batch, float((self._decodes * self._shares).sum())
        alone_s = batch.decode_s(usual)
        growth = (batch.decode_s(usual + 1) - alone_s) / alone_s * usual
        return self._decode_s / max(0.02, 1 - growth)


def _crowded(inside: float, replicas: int) -> float:
    """The chance, 0..1, that a request finds no replica empty, of which each has so many on average.

    It goes to an empty one, so that only then it stalls a sequence: Erlang's C, as if each had one place.
    """
    return erlang_c(replicas, min(inside, 1 - 1e-9) * replicas) if replicas > 1 else 1.0


def _others(filled: float, gate: int) -> float:
    """Of the prompts that come, those that may stall a sequence inside; it is not one of the gate's others.

    `filled`, 0..1, is how far the likeliest number is from a full gate. A gate of 1 has no others; one that
    is full has one less than it holds.
    """
    return 1 - min(1.0, filled) ** (gate - 1) / gate


def _grouped(values: Floats, shares: Floats, groups: int) -> Law:
    """Ascending values gathered into groups of neighbours of about equal shares, each with its mean."""
    import numpy as np

    upto = shares.cumsum()
    place = np.minimum((upto - shares / 2) / upto[-1] * groups, groups - 1).astype(np.intp)
    held = np.bincount(place, shares, groups)
    kept = held > 0
    return np.bincount(place, shares * values, groups)[kept] / held[kept], held[kept] / upto[-1]


def _gamma(means: Floats, least: Floats, variances: Floats, shares: Floats) -> Law:
    """Gamma laws above `least`, each with its share; by the cube of Wilson and Hilferty, PNAS 17 (1931)."""
    import numpy as np

    z, weights = _deviations(min(MOST, DEVIATIONS // min(32, len(means))))
    above = np.maximum(means - least, 1e-9 * means)
    ninths = np.minimum(variances / above**2, 4.0) / 9
    roots = np.maximum((1 - ninths)[:, None] + np.sqrt(ninths)[:, None] * z, 0.0)
    seconds = least[:, None] + above[:, None] * roots * roots * roots
    return seconds.ravel(), (shares[:, None] * weights).ravel()


@cache
def _deviations(count: int) -> Law:
    """Of a standard normal law, and how often they come."""
    import numpy as np

    z = np.linspace(-3, 3, count)
    weights = np.exp(-z * z / 2)
    return z, weights / weights.sum()


def _joined(laws: list[Law]) -> Law:
    import numpy as np

    if len(laws) == 1:
        return laws[0][0].ravel(), laws[0][1].ravel()
    return np.concatenate([law[0].ravel() for law in laws]), np.concatenate([law[1].ravel() for law in laws])
