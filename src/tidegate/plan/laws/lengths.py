"""How long are the requests: prompts and outputs, and how much of a prompt is still to be computed?

Moments are exact. Where a whole law is needed it is cut into pieces, each represented by its mean.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from math import erf, inf, log, sqrt

import msgspec

from tidegate.core.errors import CallerError

PIECES = 32
"""Of a law, equally wide in its logarithm."""
FARTHEST = 3.2
"""Standard deviations of the logarithm up to which a law is cut; what lies beyond is in the last pieces."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """Requests whose lengths follow one law each, independent of one another: log-normal, or fixed (cv 0).

    Log-normal bodies are what production traces show (Xiang and others, ServeGen (2025); the Azure traces).
    """

    prompt_tokens: float
    """Mean."""
    output_tokens: float
    """Mean."""
    prompt_cv: float = 0.0
    """Coefficient of variation."""
    output_cv: float = 0.0
    """Of the tokens after the first: there is always a first."""
    share: float = 1.0
    """Of all requests, beside the shares of other kinds: shares need not sum to 1."""

    def __post_init__(self) -> None:
        """CallerError for lengths that nobody can ask for."""
        if not (0 < self.prompt_tokens < inf and 1 <= self.output_tokens < inf):
            raise CallerError(f"a request has prompt tokens, and 1 output token or more: {self}")
        if not (0 <= self.prompt_cv < inf and 0 <= self.output_cv < inf and 0 < self.share < inf):
            raise CallerError(f"a kind has a share above 0, and no cv is below 0: {self}")


class Lengths(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for."""

    kinds: tuple[Kind, ...]
    hit_ratio: float = 0.0
    """Prompt tokens that come from the prefix cache, 0..1: they are attended to, but not computed."""

    @classmethod
    def of(cls, prompt: float, output: float, prompt_cv: float = 0.0, output_cv: float = 0.0) -> Lengths:
        """Requests of one kind."""
        kind = Kind(prompt_tokens=prompt, output_tokens=output, prompt_cv=prompt_cv, output_cv=output_cv)
        return cls(kinds=(kind,))

    def __post_init__(self) -> None:
        """CallerError without any kind, or where nothing of a prompt would be left to compute."""
        if not self.kinds:
            raise CallerError("lengths need a kind of request")
        if not 0 <= self.hit_ratio < 1:
            raise CallerError(f"hit_ratio is 0 or more and below 1, not {self.hit_ratio}")

    def mean(self, measure: Callable[[Kind], float]) -> float:
        """Over requests, of what a kind has in the mean."""
        shares = sum(kind.share for kind in self.kinds)
        return sum(kind.share * measure(kind) for kind in self.kinds) / shares

    def fresh(self) -> list[tuple[float, float]]:
        """Prompt tokens to be computed, and the share of requests."""
        left, shares = 1 - self.hit_ratio, sum(kind.share for kind in self.kinds)
        return [
            (kind.prompt_tokens * left * ratio, kind.share * share / shares)
            for kind in self.kinds
            for ratio, share in pieces(kind.prompt_cv)
        ]

    def outputs(self) -> list[tuple[float, float]]:
        """Output tokens, and the share of requests."""
        shares = sum(kind.share for kind in self.kinds)
        return [
            (1 + (kind.output_tokens - 1) * ratio, kind.share * share / shares)
            for kind in self.kinds
            for ratio, share in pieces(kind.output_cv)
        ]


@cache
def pieces(cv: float) -> tuple[tuple[float, float], ...]:
    """A log-normal law of mean 1, cut into pieces: the mean of each, and its share. One piece for cv 0."""
    if not cv:
        return ((1.0, 1.0),)
    sigma = sqrt(log(1 + cv * cv))
    edges = (-inf, *(FARTHEST * (2 * edge / PIECES - 1) for edge in range(1, PIECES)), inf)
    # E[X; low < Z < high] of X = exp(sigma Z - sigma²/2) is the same with Z shifted by sigma.
    upto = [(_normal(edge), _normal(edge - sigma)) for edge in edges]
    return tuple(
        ((total - before) / (high - low), high - low) for (low, before), (high, total) in pairwise(upto)
    )


def _normal(z: float) -> float:
    """The standard normal distribution function."""
    return (1 + erf(z / sqrt(2))) / 2
