"""What does an engine that guesses ahead guess with, and how many tokens does a step of it yield?

A step of speculative decoding drafts `k` tokens for each sequence, verifies all of them at once, and yields
those before the first wrong one, plus one that the model itself makes. Where each is right with chance `a` if
all before it were, that is

    1 + a + a^2 + ... + a^k = (1 - a^(k+1)) / (1 - a)

tokens in the mean (source: Leviathan, Kalman, Matias: Fast inference from transformers via speculative
decoding, 2023, arXiv:2211.17192, equation 1). What a step takes is `drafting`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tidegate.catalog.models import Model
from tidegate.core.curve import Chunk, Curve
from tidegate.core.errors import ConfigurationError

DRAFT_TOKENS: Final = 3
"""Of a step, where nobody says how many: what examples of vLLM for EAGLE and draft models show (2026)."""


class Draft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where guesses come from."""

    name: str
    """As people say it: a model's name, `EAGLE head`, `n-gram lookup`."""
    model: Model | None = None
    """What computes them; None: they are looked up in what is there, which takes no accelerator's time."""
    head: bool = False
    """It shares the model's embedding and output layer, which are read for each guess, but stored once."""
    at_once: bool = False
    """All guesses of a step are computed in one pass; else each needs the one before it."""


class Speculation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an engine guesses ahead."""

    draft: Draft
    acceptance_ratio: float
    """Chance that a guess is right if all before it were, 0..1. Not accepted over drafted tokens, which is
    lower: guesses after a wrong one are not looked at."""
    draft_tokens: int = DRAFT_TOKENS
    """Guesses of a step, for each sequence, at least 1."""

    def __post_init__(self) -> None:
        """ConfigurationError for guesses that cannot be."""
        problems = []
        if self.draft_tokens < 1:
            problems.append(f"draft_tokens: {self.draft_tokens} must be 1 or more")
        if not 0 <= self.acceptance_ratio <= 1:
            problems.append(f"acceptance_ratio: {self.acceptance_ratio:g} must be from 0 to 1")
        if problems:
            raise ConfigurationError(problems)

    @property
    def tokens_per_step(self) -> float:
        """Of a sequence, mean."""
        return accepted_tokens(self.acceptance_ratio, self.draft_tokens)

    @property
    def passes(self) -> int:
        """Of the draft model in a step."""
        if self.draft.model is None:
            return 0
        return 1 if self.draft.at_once else self.draft_tokens


class Verifying(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A curve of an engine that guesses ahead: every decoding sequence has its guesses verified in the step.

    Its steps are those that the simulator makes of the same curve (`sim.speculation`).
    """

    curve: Curve
    draft_tokens: int
    acceptance_ratio: float

    def step_s(self, decodes: int, context_tokens: float, chunks: Sequence[Chunk] = ()) -> float:
        """Seconds of a step; as `Curve.step_s`, guesses are not in `context_tokens`."""
        guesses = self.draft_tokens * decodes
        return self.curve.step_s(decodes, context_tokens + guesses, chunks, guesses)

    @property
    def tokens_per_step(self) -> float:
        """Of a sequence, mean."""
        return accepted_tokens(self.acceptance_ratio, self.draft_tokens)


def accepted_tokens(acceptance_ratio: float, draft_tokens: int) -> float:
    """Tokens that a step yields, mean: from 1 to `draft_tokens` + 1."""
    return sum(acceptance_ratio**place for place in range(draft_tokens + 1))


def accepted_variance(acceptance_ratio: float, draft_tokens: int) -> float:
    """Of the same number. With X > i at a chance of a^i, E[X^2] is the sum of (2 i + 1) a^i."""
    square = sum((2 * place + 1) * acceptance_ratio**place for place in range(draft_tokens + 1))
    return max(0.0, square - accepted_tokens(acceptance_ratio, draft_tokens) ** 2)


def left_over(acceptance_ratio: float, draft_tokens: int) -> float:
    """Tokens of the last step that come after the output's end, mean.

    Source: the excess over a boundary in renewal theory, (E[X^2] / E[X] - 1) / 2 for whole numbers, of
    outputs of more than a few steps (Feller, An introduction to probability theory 2 (1971), chapter XI.4).
    """
    mean = accepted_tokens(acceptance_ratio, draft_tokens)
    return (accepted_variance(acceptance_ratio, draft_tokens) / mean + mean - 1) / 2
