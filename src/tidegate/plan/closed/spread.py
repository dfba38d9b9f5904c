"""How do the first tokens of a closed loop spread around their mean?

A mean has four parts, each with a law of its own, and independent of the others: what every request takes
alike; the queue before its prompt, exponential where there is one, as an open queue's tail is; the burst,
even between nobody and all of the others before it, for those that begin together; and the wait for a seat,
as long as so many completions take. These are taken to come at random, so that their sum is Erlang's; those
of requests that are all alike come more evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import log, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

from tidegate.plan.closed.loop import Loop

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Law = tuple[NDArray[np.float64], NDArray[np.float64]]

EDGES = (0.0, *(each / 20 for each in range(1, 20)), 0.97, 0.98, 0.99, 0.995, 1.0)
"""Of the parts that a law is cut into, each taken at its middle: finer where a tail is."""
MIDDLES = tuple((low + high) / 2 for low, high in pairwise(EDGES))
WIDTHS = tuple(high - low for low, high in pairwise(EDGES))


def first_tokens(loop: Loop) -> Law:
    """TTFTs and how often each comes, of those who have a seat."""
    import numpy as np

    alike_s = loop.ttft_s - loop.waiting_s - loop.queue_s - loop.burst_s
    seconds, shares = np.array([alike_s]), np.ones(1)
    for values, weights in (_queue(loop), _burst(loop)):
        seconds = np.add.outer(seconds, np.array(values)).ravel()
        shares = np.multiply.outer(shares, np.array(weights)).ravel()
    return seconds, shares


def seat_waits(waiting_clients: float, mean_s: float) -> Law:
    """Likewise the wait for a seat that so many wait for."""
    import numpy as np

    values, weights = _seat(waiting_clients, mean_s)
    return np.array(values), np.array(weights)


def summed(one: Law, other: Law) -> Law:
    """Of two times that know nothing of each other."""
    import numpy as np

    return np.add.outer(one[0], other[0]).ravel(), np.multiply.outer(one[1], other[1]).ravel()


def mixed(laws: Sequence[tuple[float, Law]]) -> Law:
    """Of times that are of one law or another, as often as their weights say."""
    import numpy as np

    seconds = np.concatenate([law[0] for _, law in laws])
    return seconds, np.concatenate([weight * law[1] for weight, law in laws])


def thinned(law: Law, groups: int) -> Law:
    """In groups of neighbours of about equal shares, each at its mean."""
    import numpy as np

    if len(law[0]) <= groups:
        return law
    order = np.argsort(law[0])
    seconds, shares = law[0][order], law[1][order]
    upto = np.cumsum(shares)
    place = np.minimum((upto - shares / 2) / upto[-1] * groups, groups - 1).astype(np.intp)
    held = np.bincount(place, shares, groups)
    kept = held > 0
    return np.bincount(place, shares * seconds, groups)[kept] / held[kept], held[kept].astype(float)


Points = tuple[list[float], list[float]]
NOTHING: Points = ([0.0], [1.0])


def _queue(loop: Loop) -> Points:
    if loop.queue_s <= 0:
        return NOTHING
    shape = [-log(1 - each) for each in MIDDLES]
    return _sometimes(loop.queued, _with_mean(loop.queue_s / loop.queued, shape))


def _burst(loop: Loop) -> Points:
    if loop.burst_s <= 0:
        return NOTHING
    return _sometimes(loop.together, _with_mean(loop.burst_s / loop.together, MIDDLES))


def _seat(stages: float, mean_s: float) -> Points:
    """Erlang, by the cube root that is nearly normal (Wilson and Hilferty, PNAS 17 (1931))."""
    if stages <= 0:
        return NOTHING
    width, normal = 1 / (9 * stages), NormalDist()
    roots = [max(0.0, 1 - width + sqrt(width) * normal.inv_cdf(each)) for each in MIDDLES]
    return _with_mean(mean_s, [root**3 for root in roots]), list(WIDTHS)


def _with_mean(mean_s: float, shape: Sequence[float]) -> list[float]:
    """So stretched that the middles of the parts have that mean."""
    mean = sum(weight * value for weight, value in zip(WIDTHS, shape, strict=True))
    return [mean_s / mean * value for value in shape]


def _sometimes(share: float, values: list[float]) -> Points:
    """With that probability one of them, else nothing."""
    return [0.0, *values], [1 - share, *(share * width for width in WIDTHS)]
