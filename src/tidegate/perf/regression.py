"""Which constants of a line fit measured steps, how sure are they, and which can the points not tell apart?

An observation is a time and what was computed in it, in sum over its steps, so that a single step, a run of
decode steps and a whole prompt are of one kind. Fitted are relative errors: a step of 5 ms counts as much as
one of 500 ms. Constants are never negative, and points that are far off (a stall, a neighbour on the machine)
lose their weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import msgspec
import numpy as np
from numpy.typing import NDArray

from tidegate.core.curve import Linear
from tidegate.core.errors import ConfigurationError

Floats = NDArray[np.float64]

OVERHEAD = "first_token_overhead_s"
CONSTANTS = (*Linear.__struct_fields__, OVERHEAD)
"""What is fitted: the constants of the curve, and what a first token takes beyond its steps."""

HUBER = 1.345
"""Residuals of more than so many standard deviations lose weight; 95 % as efficient as least squares where
errors are normal. Source: Huber, Robust Statistics (1981)."""
ROUNDS = 30
LEAST_SCALE = 1e-4
"""Of relative residuals: exact points must not make a rounding error an outlier."""
COLLINEAR = 30.0
"""Condition index from which constants cannot be told apart. Source: Belsley, Kuh and Welsch, Regression
Diagnostics (1980), chapter 3, as is that two of them must share more than half of their variance there."""
LEAST_A_S = 1e-7
"""A step takes some time, whatever the points say."""
SPARE = 2
"""Points that there must be beyond one for each constant."""


class Observation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A measured time, and what was computed in it: sums over its steps, or means if `steps` is 1."""

    seconds: float
    steps: float
    sequences: float
    """Decoding ones, and those with a chunk of their prompt."""
    context_tokens: float = 0.0
    """That decoding sequences attended to."""
    prefill_tokens: float = 0.0
    prefill_tokens_squared: float = 0.0
    """Prefix after² - prefix before², over the chunks."""
    first_tokens: float = 0.0
    """How many first tokens the time ends with, as their client saw them."""

    @property
    def work(self) -> tuple[float, ...]:
        """In the order of CONSTANTS."""
        return (
            self.steps,
            self.sequences,
            self.context_tokens,
            self.prefill_tokens,
            self.prefill_tokens_squared,
            self.first_tokens,
        )


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """A line, and how sure it is."""

    curve: Linear
    first_token_overhead_s: float
    standard_errors: dict[str, float]
    """By constant; of those that are above 0. Points of one run are not independent: the least they are."""
    unseen: tuple[str, ...]
    """Constants of which no point says anything; they are 0."""
    confounded: tuple[tuple[str, ...], ...]
    """Constants, in groups, that only their sum is known of."""

    def seconds(self, observation: Observation) -> float:
        """What the line makes of it."""
        constants: tuple[float, ...] = (*msgspec.structs.astuple(self.curve), self.first_token_overhead_s)
        return sum(each * amount for each, amount in zip(constants, observation.work, strict=True))

    def error(self, observation: Observation) -> float:
        """Of the line, relative to what was measured: 0.1 is 10 % too long."""
        return self.seconds(observation) / observation.seconds - 1


def fit(observations: Sequence[Observation]) -> Fit:
    """The line with the smallest relative errors. ConfigurationError for fewer points than it takes."""
    design = np.array([each.work for each in observations], dtype=float).reshape(-1, len(CONSTANTS))
    seen = np.flatnonzero(design.any(axis=0))
    least = len(seen) + SPARE
    if len(observations) < max(least, 1 + SPARE):
        raise ConfigurationError(
            [f"{len(observations)} points are too few for {len(seen)} constants: it takes {least}"]
        )
    seconds = np.array([each.seconds for each in observations])
    if not (np.isfinite(design).all() and (seconds > 0).all() and np.isfinite(seconds).all()):
        raise ConfigurationError(["a point takes no time, or is no number"])
    relative = design[:, seen] / seconds[:, None]
    norms = np.linalg.norm(relative, axis=0)
    scaled = relative / norms
    solution, weights = _robust(scaled)
    errors = _standard_errors(scaled, weights, solution)
    names = [CONSTANTS[index] for index in seen]
    found = dict(zip(names, (solution / norms).tolist(), strict=True))
    overhead_s = found.pop(OVERHEAD, 0.0)
    return Fit(
        curve=Linear(**(found | {"a_s": max(found.get("a_s", 0.0), LEAST_A_S)})),
        first_token_overhead_s=overhead_s,
        standard_errors={
            name: error for name, error in zip(names, (errors / norms).tolist(), strict=True) if error > 0
        },
        unseen=tuple(name for name in CONSTANTS if name not in names),
        confounded=_confounded(scaled, names),
    )


def nonnegative(design: Floats, target: Floats) -> Floats:
    """The least squares solution without negative values.

    Exact: it is the ordinary solution of some of the columns, and of a few columns all subsets can be tried.
    """
    columns = design.shape[1]
    largest = np.abs(design).max(axis=0)
    units = np.where(largest > 0, largest, 1.0)  # a column in small units is no less a column
    orthogonal, triangle = np.linalg.qr(design / units)
    image = orthogonal.T @ target
    best, least = np.zeros(columns), float(image @ image)
    for count in range(1, columns + 1):
        for some in combinations(range(columns), count):
            chosen = list(some)
            found = np.linalg.lstsq(triangle[:, chosen], image, rcond=None)[0]
            rest = image - triangle[:, chosen] @ found
            if (found >= 0).all() and (square := float(rest @ rest)) < least:
                best, least = np.zeros(columns), square
                best[chosen] = found
    scaled: Floats = best / units
    return scaled


def _robust(design: Floats) -> tuple[Floats, Floats]:
    """The solution for a target of ones, and the weights that points have in it, by Huber's function."""
    weights = np.ones(len(design))
    solution = nonnegative(design, weights)
    for _ in range(ROUNDS):
        residuals = np.abs(design @ solution - 1)
        scale = max(1.4826 * float(np.median(residuals)), LEAST_SCALE)
        weights = np.minimum(1.0, HUBER * scale / np.maximum(residuals, LEAST_SCALE * HUBER))
        root = np.sqrt(weights)
        before, solution = solution, nonnegative(design * root[:, None], root)
        if np.allclose(before, solution, rtol=1e-6, atol=0):
            break
    return solution, weights


def _standard_errors(design: Floats, weights: Floats, solution: Floats) -> Floats:
    """Of the columns in use; 0 for those that are not."""
    errors = np.zeros(len(solution))
    used = np.flatnonzero(solution > 0)
    residuals = design @ solution - 1
    freedom = max(len(design) - len(used), 1)
    variance = float((weights * residuals**2).sum()) / freedom
    information = design[:, used].T @ (design[:, used] * weights[:, None])
    errors[used] = np.sqrt(np.maximum(np.diag(np.linalg.pinv(information)), 0) * variance)
    return errors


def _confounded(design: Floats, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Groups of columns that are nearly a sum of one another."""
    _, strengths, directions = np.linalg.svd(design, full_matrices=False)
    strengths = np.maximum(strengths, strengths[0] * 1e-12)
    shares = (directions / strengths[:, None]) ** 2
    shares /= shares.sum(axis=0)
    groups = (
        tuple(name for name, share in zip(names, row, strict=True) if share > 0.5)
        for row, strength in zip(shares, strengths, strict=True)
        if strengths[0] / strength > COLLINEAR
    )
    return tuple(group for group in groups if len(group) > 1)
