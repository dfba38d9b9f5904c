"""How long are prompts and answers?

Two laws side by side draw them independently. Pairs keep them together: where long prompts get short
answers (as in coding, or summaries), drawing each side by itself makes another load than the one that was
measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from random import Random

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.workload.dice import dice
from tidegate.workload.laws.numbers import Law, whole
from tidegate.workload.traces.rows import TraceRow


class Lengths(msgspec.Struct, frozen=True):
    """Tokens of one request, each at least 1."""

    prompt_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        for name, tokens in (("prompt", self.prompt_tokens), ("output", self.output_tokens)):
            if tokens < 1:
                raise ConfigurationError([f"a request has at least 1 {name} token, not {tokens}"])

    @classmethod
    def asked(cls, prompt_tokens: int, output_tokens: int) -> Lengths:
        """Of recorded or summed tokens: a length of 0 cannot be asked for, and becomes 1."""
        return cls(max(1, prompt_tokens), max(1, output_tokens))


class Independent(msgspec.Struct, frozen=True):
    """Prompt and answer by a law each; what is drawn below 1 is 1."""

    prompt: Law
    output: Law

    def lengths(self, rng: Random) -> Iterator[Lengths]:
        """Endless. Each side has its own dice, so that one law may be changed and the other side stays."""
        seed = rng.getrandbits(64)
        prompts, outputs = (
            whole(law.draws(dice(seed, side)))
            for side, law in (("prompt", self.prompt), ("output", self.output))
        )
        return (Lengths(prompt, output) for prompt, output in zip(prompts, outputs, strict=False))


class Pairs(msgspec.Struct, frozen=True):
    """Measured pairs, drawn with replacement: each as likely as it was frequent."""

    pairs: Sequence[Lengths]

    def __post_init__(self) -> None:
        if not self.pairs:
            raise ConfigurationError(["pairs of lengths: there are none; give at least one"])

    def lengths(self, rng: Random) -> Iterator[Lengths]:
        """Endless; one of the pairs each."""
        while True:
            yield rng.choice(self.pairs)


LengthLaw = Independent | Pairs


def same_lengths(prompt_tokens: int, output_tokens: int) -> Iterator[Lengths]:
    """The same lengths for every request, without end."""
    return repeat(Lengths(prompt_tokens, output_tokens))


def trace_lengths(rows: Iterable[TraceRow]) -> Iterator[Lengths]:
    """The pairs of a trace, row by row, as they can be asked for."""
    return (Lengths.asked(row.prompt_tokens, row.output_tokens) for row in rows)
