"""How far may the mean of a run be off, whose values resemble their neighbours?

The variance of a mean is the run's spectrum at frequency 0, divided by its length (Heidelberger and Welch
1981). It cannot be seen there, so it is found from the lowest frequencies that can: waves of half a turn over
the run, a whole one, and so on. What a run has of each is an almost independent, almost normal number whose
variance is the spectrum there (Müller and Watson 2008; with nothing more, Lazarus, Lewis, Stock and Watson
2018). Where values resemble each other for long, the spectrum rises towards 0, and how it does tells for how
long. No single answer is taken for true: each of a grid counts by how well it explains the waves.
"""

from __future__ import annotations

from functools import lru_cache
from math import pi, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

WAVES = 32
"""The lowest frequencies that are used. More than 30 narrow an interval by little (Schmeiser 1982)."""
MEANS = 256
"""At least so many means of equal parts stand for a longer run: eight for each half turn of the last wave."""
FEWEST = 32
"""Values below which nothing can be said."""
VALUES_PER_WAVE = 2
"""At least, in a run of less than 64."""

MEMORIES = np.concatenate([[0.0], np.geomspace(0.001, 0.1, 20)])
"""For how long values may resemble each other, as shares of a run: correlation falls to 1/e in that time.

Longer ones look like a trend, of which a single run cannot say where it leads.
"""


class StandardError(NamedTuple):
    """Of the mean of a run."""

    error: float
    """In the unit of the values."""
    degrees: int
    """Of freedom: the waves that it rests on."""
    memory: float
    """For how long values resemble each other, as a share of the run (0..1); the mean over what it may be."""


def standard_error(values: Values) -> StandardError | None:
    """Of a run's values in their order; None if they are fewer than `FEWEST`."""
    if len(values) < FEWEST:
        return None
    size = max(1, len(values) // MEANS)
    count = len(values) // size
    means = values[len(values) - size * count :].reshape(count, size).mean(axis=1)
    waves = min(WAVES, count // VALUES_PER_WAVE)
    # No matrix product: in which order one is summed depends on the machine, and a seed gives the same bytes.
    powers = (_cosines(count, waves) * (means - means.mean())).sum(axis=1) ** 2
    if not powers.any():
        return StandardError(0.0, waves, 0.0)
    flattened, log_heights, shares = _shapes(waves)
    levels = (flattened * powers).sum(axis=1)
    logs = -0.5 * (log_heights + waves * np.log(levels))
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    variance = float((weights * levels * shares).sum()) / count
    return StandardError(sqrt(variance), waves, float((weights * MEMORIES).sum()))


@lru_cache(maxsize=32)
def _cosines(count: int, waves: int) -> Values:
    """Of each wave at each mean; powers are then the variance of a mean, if none resembles another."""
    turns = np.arange(1, waves + 1)[:, None] * (np.arange(count) + 0.5) / count
    found: Values = np.cos(pi * turns) * sqrt(2 / count)
    return found


@lru_cache(maxsize=32)
def _shapes(waves: int) -> tuple[Values, Values, Values]:
    """For each of `MEMORIES`: weights of powers, the sum of the spectrum's logs, and a mean's share of it.

    Correlation that falls off exponentially has the spectrum 1 / (1 + (frequency x memory)^2), relative to
    that at 0; weighted by the reciprocal, powers have the same mean at each frequency. The mean of a run that
    is not much longer than the memory has less of a variance than the spectrum says. Likelihoods are those of
    independent normal waves, over all that their common variance may be (Jeffreys' prior).
    """
    frequencies = pi * np.arange(1, waves + 1)
    rises = 1 + (frequencies * MEMORIES[:, None]) ** 2
    shares = np.ones(len(MEMORIES))
    shares[1:] -= MEMORIES[1:] * (1 - np.exp(-1 / MEMORIES[1:]))
    return rises / waves, -np.log(rises).sum(axis=1), shares
