"""What is told of an engine that guesses ahead?"""

from __future__ import annotations

import msgspec


class Speculated(msgspec.Struct, frozen=True, kw_only=True):
    """Speculative decoding, beside the same replica without it."""

    draft: str
    """What guesses: a model's name, `EAGLE head`, `n-gram lookup`."""
    draft_tokens: int
    """Guesses of a step, for each sequence."""
    acceptance_ratio: float
    """Chance that a guess is right if all before it were, 0..1."""
    accepted_tokens_per_step: float
    """Of a sequence, mean: those guesses that are right, and the model's own token."""
    draft_tp: int | None
    """Accelerators that share the draft's layers; None: nothing is computed for guesses."""
    draft_weights_bytes: float
    """Of one accelerator."""
    token_alone_s: float
    """Of one request: a step that only decodes, over the tokens that it yields."""
    plain_token_alone_s: float
    """The same without guesses."""
    token_at_gate_s: float
    """Of as many requests as the gate lets in."""
    plain_token_at_gate_s: float
    """Of as many, without guesses."""
    break_even_concurrency: int | None
    """From so many at once on, guesses make tokens later; None: never, up to the batch limit."""
    because: str
    """All of it in a sentence or two."""
