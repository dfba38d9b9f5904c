"""What do the requests of each class meet, and which class is nearest to a budget of its own?

All classes share the batches of an engine, and what is waited for in it: there, a request's own prompt is all
that tells it from others. So the TTFT of a class is that of all requests, less what their own prompts take,
plus what those of the class do; TPOT is that of all in the mean, and varies less over longer answers, being a
mean of more steps; E2E adds the class's own answers to both. The gateway serves a higher class first where
requests wait for a place, which they hardly do where budgets hold: it is not in these figures, which are too
low for the lowest class where places are waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from tidegate.core.units import format_latency, format_ratio
from tidegate.plan.answer import Percentiles
from tidegate.plan.ask import Terms
from tidegate.plan.laws.spread import LEVELS, Spread
from tidegate.plan.station import ClassLatencies, Latencies

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tidegate.plan.laws.batching import Batch

    Law = tuple[NDArray[np.float64], NDArray[np.float64]]

FEW = 40
"""Times that a law is told by before another is added to it."""
LEAST_SPREAD = 0.1
"""Of the deviation of all TTFTs, that is left of it without their own prompts at least."""


class Nearest(msgspec.Struct, frozen=True, kw_only=True):
    """A budget of a class, and how much of it is used."""

    name: str
    """Of the class."""
    figure: str
    """TTFT, TPOT or E2E."""
    seconds: float
    """At the percentile that was asked for."""
    budget_s: float

    @property
    def used(self) -> float:
        """Of the budget; above 1 it does not hold."""
        return self.seconds / self.budget_s

    def told(self, percentile: float) -> str:
        """In a sentence."""
        return (
            f"Class {self.name} is nearest to a budget of its own: {self.figure} P{100 * percentile:g} is "
            f"{format_latency(self.seconds)}, {format_ratio(self.used)} of {format_latency(self.budget_s)}."
        )


def nearest(found: Latencies, terms: Terms) -> Nearest | None:
    """The budget of which most is used; None where no class has one of its own."""
    return max(_used(found, terms), key=lambda each: each.used, default=None)


def class_latencies(
    batches: dict[str, Batch], batch: Batch, spreads: tuple[Spread, Spread], percentile: float
) -> tuple[ClassLatencies, ...]:
    """Of classes with such prompts and answers, where all requests together meet these TTFTs and TPOTs."""
    ttft, tpot = spreads
    waited = _without(_law(ttft), batch.alone)
    return tuple(
        _latencies(name, own, waited, _steadier(tpot, batch, own), percentile)
        for name, own in batches.items()
    )


def _steadier(tpot: Spread, batch: Batch, own: Batch) -> Spread:
    """TPOT of answers of the class's length, which are longer than others."""
    if own.decode_steps <= batch.decode_steps or not batch.decode_steps:
        return tpot
    part = (batch.decode_steps / own.decode_steps) ** 0.5
    return Spread(mean=tpot.mean, at=tuple(tpot.mean + (each - tpot.mean) * part for each in tpot.at))


def _latencies(name: str, own: Batch, waited: Law, tpot: Spread, percentile: float) -> ClassLatencies:
    import numpy as np

    ttft = _sum(_thinned(waited), _thinned(own.alone))
    steps, shares = (np.array(each) for each in zip(*own.lengths.outputs(), strict=True))
    e2e = ttft
    if own.decode_steps:
        tpots, often = _thinned(_law(tpot))
        decoding = np.multiply.outer(steps - 1, tpots).ravel(), np.multiply.outer(shares, often).ravel()
        e2e = _sum(_thinned(ttft), _thinned(decoding))
    return ClassLatencies(
        name=name,
        ttft_s=percentiles(Spread.of(ttft), percentile),
        tpot_s=percentiles(tpot, percentile),
        e2e_s=percentiles(Spread.of(e2e), percentile),
    )


def percentiles(spread: Spread, percentile: float) -> Percentiles:
    """As answers have them."""
    return Percentiles(
        mean=spread.mean,
        p50=spread.p50,
        p95=spread.p95,
        p99=spread.p99,
        at_percentile=spread.quantile(percentile),
    )


def _used(found: Latencies, terms: Terms) -> Iterator[Nearest]:
    for own in found.classes:
        budgets = terms.budgets_of(own.name)
        for figure, seconds, budget_s in (
            ("TTFT", own.ttft_s.at_percentile, budgets.ttft_s),
            ("TPOT", own.tpot_s.at_percentile, budgets.tpot_s),
            ("E2E", own.e2e_s.at_percentile, budgets.e2e_s),
        ):
            if budget_s is not None and seconds == seconds:  # not nan: of one token there is no TPOT
                yield Nearest(name=own.name, figure=figure, seconds=seconds, budget_s=budget_s)


def _law(spread: Spread) -> Law:
    """Its quantiles, each for what lies below it down to the one before; scaled to its mean."""
    import numpy as np

    seconds = np.array(spread.at)
    edges = np.array([*LEVELS, 1.0])
    shares = np.diff(edges)
    mean = float((seconds * shares).sum())
    return seconds * (spread.mean / mean if mean > 0 else 1.0), shares


def _without(law: Law, own: Law) -> Law:
    """What is left of times of which a part is known, that is independent of the rest."""
    import numpy as np

    seconds, shares = law
    mean_s, own_s = float((seconds * shares).sum()), float((own[0] * own[1]).sum())
    variance = float(((seconds - mean_s) ** 2 * shares).sum())
    own_variance = float(((own[0] - own_s) ** 2 * own[1]).sum())
    left = np.sqrt(max(LEAST_SPREAD**2, 1 - own_variance / variance)) if variance > 0 else 1.0
    return np.maximum(0.0, mean_s - own_s + (seconds - mean_s) * left), shares


def _sum(one: Law, other: Law) -> Law:
    import numpy as np

    return np.add.outer(one[0], other[0]).ravel(), np.multiply.outer(one[1], other[1]).ravel()


def _thinned(law: Law) -> Law:
    """In groups of neighbours, each at its mean; more of them where the tail is."""
    import numpy as np

    seconds, shares = law
    if len(seconds) <= FEW:
        return law
    order = np.argsort(seconds)
    seconds, shares = seconds[order], shares[order]
    upto = (np.cumsum(shares) - shares / 2) / shares.sum()
    edges = np.array(_edges())
    place = np.searchsorted(edges, upto, side="right")
    held = np.bincount(place, shares, len(edges) + 1)
    kept = held > 0
    return np.bincount(place, shares * seconds, len(edges) + 1)[kept] / held[kept], held[kept].astype(float)


def _edges() -> Sequence[float]:
    return (*(each / 30 for each in range(1, 29)), 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995, 0.998)
