"""What do requests meet whose prompts are computed on some replicas, and whose outputs are decoded on others?

The first gap between tokens is the link and the way to the end of the first step that decodes, and TPOT =
(E2E - TTFT) / (output tokens - 1) has it in it. Laws of the parts are taken for independent.
"""

from __future__ import annotations

from math import inf, nan, sqrt
from typing import TYPE_CHECKING

import msgspec

from tidegate.core.records import Budgets
from tidegate.plan.answer import Percentiles
from tidegate.plan.disaggregated.apart import Sides
from tidegate.plan.disaggregated.source import Away, Users
from tidegate.plan.laws.spread import LEVELS, Spread
from tidegate.plan.laws.steady import Steady
from tidegate.plan.station import Latencies

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Law = tuple[Floats, Floats]

COARSE = 16
"""Into so many parts a law is cut that is only a small part of another."""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What E2E is made of, each where nothing else is known of the request."""

    ttft_s: Spread
    prefill_s: Spread
    """Of a prompt that meets no other."""
    link_wait_s: Spread
    sending_s: float
    """Of a transfer that meets no other."""
    decode_wait_s: Spread
    """For a place on a replica that decodes."""
    decoded_s: Spread
    """That wait, and all tokens after the first."""


class Pair:
    """Both sides, with so many replicas for prompts, asked by users or by who comes by himself."""

    def __init__(self, sides: Sides, prefill_replicas: int, *, users: bool = True) -> None:
        """`users`: if sides have any; false: as if the same came by themselves."""
        self._users = sides.users if users else None
        self._gaps = sides.gaps
        self._prefill, self._decode, self._transfer = sides.prefill, sides.decode, sides.transfer
        self._several = sides.several
        self._prefill_replicas = prefill_replicas

    def latencies(self, rate_per_s: float, decode_replicas: int, percentile: float) -> Latencies | None:
        """Of requests of two tokens or more, at that percentile too. None where a queue grows."""
        import numpy as np

        p = percentile
        rest = self._decode.steady(rate_per_s * self._several, decode_replicas)
        sent = self._sent(rate_per_s, decode_replicas)
        first = self._first(rate_per_s, sent, rest)
        if first is None or rest is None or sent.mean == inf:
            return None
        alone_s = self._transfer.alone_s
        gap = self._gap(sent, rest)
        e2e = _sum(_law(Spread.of(_sum(_law(first), _law(rest.e2e_s), alone_s))), _coarse(sent), 0.0)
        steps, share = (np.array(each) for each in zip(*self._decode.batch.lengths.outputs(), strict=True))
        tpot = _tpot(gap, rest.tpot_s, (steps, share))
        return Latencies(
            wait_s=_percentiles(rest.wait_s, p),
            ttft_s=_percentiles(first, p),
            tpot_s=_percentiles(tpot, p),
            e2e_s=_percentiles(Spread.of(e2e).at_least(first), p),  # sums of pieces lose the rarest
            itl_s=_percentiles(_itl(gap, rest.itl_s, float((steps * share).sum())), p),
            sequences=rest.sequences,
        )

    def mean_s(self, rate_per_s: float, decode_replicas: int) -> float:
        """E2E; inf where a queue grows for ever."""
        rest = self._decode.steady(rate_per_s * self._several, decode_replicas)
        sent = self._sent(rate_per_s, decode_replicas)
        first = self._first(rate_per_s, sent, rest)
        if first is None or rest is None:
            return inf
        return first.mean + sent.mean + self._transfer.alone_s + rest.e2e_s.mean

    def held(self, rate_per_s: float, budgets: Budgets, percentile: float, decode_replicas: int) -> bool:
        """Whether so many that decode hold the budgets at that rate."""
        found = self.latencies(rate_per_s, decode_replicas, percentile)
        return found is not None and found.held(budgets)

    def parts(self, rate_per_s: float, decode_replicas: int) -> Parts | None:
        """Of E2E; None where a queue grows."""
        rest = self._decode.steady(rate_per_s * self._several, decode_replicas)
        sent = self._sent(rate_per_s, decode_replicas)
        first = self._first(rate_per_s, sent, rest)
        if first is None or rest is None or sent.mean == inf:
            return None
        return Parts(
            ttft_s=first,
            prefill_s=Spread.of(self._prefill.batch.alone),
            link_wait_s=sent,
            sending_s=self._transfer.alone_s,
            decode_wait_s=rest.wait_s,
            decoded_s=rest.e2e_s,
        )

    def first_gap_s(self, rate_per_s: float, decode_replicas: int, percentile: float) -> float:
        """From the first token to the second, at that percentile; inf where a queue grows for ever."""
        rate = rate_per_s * self._several
        rest = self._decode.steady(rate, decode_replicas)
        sent = self._sent(rate_per_s, decode_replicas)
        if rest is None or sent.mean == inf:
            return inf
        return Spread.of(self._gap(sent, rest)).quantile(percentile)

    def first_tokens(self, rate_per_s: float) -> Spread | None:
        """TTFT, if all is decoded as if it were alone; None where a queue grows."""
        if self._users is None:
            return self._prefill.first_tokens(rate_per_s, self._prefill_replicas)
        alone_s = self._gaps * self._decode.batch.saturated(1).tpot_s
        return self._among(self._users, rate_per_s, alone_s, 0.0)

    def _first(self, rate_per_s: float, sent: Spread, rest: Steady | None) -> Spread | None:
        """TTFT; None as above."""
        if self._users is None:
            return self._prefill.first_tokens(rate_per_s, self._prefill_replicas)
        if rest is None or sent.mean == inf:
            return None
        seconds, shares = _law(rest.e2e_s)
        variance = float(((seconds - rest.e2e_s.mean) ** 2 * shares).sum())
        return self._among(self._users, rate_per_s, sent.mean + rest.e2e_s.mean, variance)

    def _among(self, users: Users, rate_per_s: float, answered_s: float, variance: float) -> Spread:
        """`answered_s`: from the first token to the last, but for the transfer, and how that varies."""
        away = Away(
            others=users.count - 1,
            mean_s=users.think_s + self._several * (self._transfer.alone_s + answered_s),
            deviation_s=sqrt(users.think_s**2 + self._several * variance),
        )
        return self._prefill.first_tokens_among(away, rate_per_s, self._prefill_replicas)

    def _sent(self, rate_per_s: float, decode_replicas: int) -> Spread:
        """The wait for the link. Prompts of one replica that fill its steps come one after the other: where
        one is sent while the next is computed, they wait for those of other replicas only.
        """
        prefill, transfer = self._prefill, self._transfer
        links = transfer.link.count(self._prefill_replicas, decode_replicas)
        senders = self._prefill_replicas / links
        apart = transfer.sending_s <= 1 / prefill.sustained_per_s
        fills = prefill.batch.prompt_tokens > prefill.batch.engine.max_batched_tokens / 2
        met = 1 - 1 / senders if apart and fills and senders >= 1 else 1.0
        return transfer.wait_s(rate_per_s * self._several, links, met)

    def _gap(self, sent: Spread, rest: Steady) -> Law:
        return _sum(_law(sent), _law(rest.ttft_s), self._transfer.alone_s)


def _tpot(gap: Law, tpot_s: Spread, steps: Law) -> Spread:
    """The first gap and the others, over all of them. `steps`: gaps of a request, and how often."""
    import numpy as np

    first = _coarse(Spread.of(gap))
    if tpot_s.mean != tpot_s.mean:  # nan: two output tokens, one gap
        return Spread.of(first)
    rest = _law(tpot_s)
    number, share = steps
    seconds = [np.add.outer(first[0] / each, rest[0] * (each - 1) / each).ravel() for each in number.tolist()]
    weights = [np.outer(first[1], rest[1]).ravel() * each for each in share.tolist()]
    return Spread.of((np.concatenate(seconds), np.concatenate(weights)))


def _itl(gap: Law, itl_s: Spread, steps: float) -> Spread:
    """One gap of so many is the first."""
    import numpy as np

    if itl_s.mean != itl_s.mean:
        return Spread.of(gap)
    first, rest = Spread.of(gap), _law(itl_s)
    whole = _law(first)
    return Spread.of(
        (np.concatenate([whole[0], rest[0]]), np.concatenate([whole[1], rest[1] * max(0.0, steps - 1)]))
    )


def _law(spread: Spread) -> Law:
    """What a spread says, as times and how often they come: between two levels, the time halfway."""
    import numpy as np

    at = np.array(spread.at)
    seconds = np.append((at[:-1] + at[1:]) / 2, at[-1])
    shares = np.diff(np.array([*LEVELS, 1.0]))
    return seconds, shares


def _coarse(spread: Spread) -> Law:
    """The same in few parts, each as likely as the others."""
    import numpy as np

    seconds = np.interp((np.arange(COARSE) + 0.5) / COARSE, np.array(LEVELS), np.array(spread.at))
    return seconds, np.full(COARSE, 1 / COARSE)


def _sum(one: Law, other: Law, more_s: float) -> Law:
    """Of two that do not depend on each other, later by so much."""
    import numpy as np

    return np.add.outer(one[0], other[0]).ravel() + more_s, np.outer(one[1], other[1]).ravel()


def _percentiles(spread: Spread, p: float) -> Percentiles:
    if spread.mean != spread.mean:
        return Percentiles.of(nan)
    return Percentiles(
        mean=spread.mean, p50=spread.p50, p95=spread.p95, p99=spread.p99, at_percentile=spread.quantile(p)
    )
