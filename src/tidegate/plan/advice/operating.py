"""What does a replica do at its gate: how fast is prefill there, and how long do prompts and steps take?

The gate is full: as many sequences decode as it lets in, each half way through its output, while prompts are
computed beside them. That is the worst that a request meets which keeps to the rules, and what guarantees
are given from.
"""

from __future__ import annotations

from math import ceil

import msgspec

from tidegate.core.curve import Chunk
from tidegate.plan.answer import Answer
from tidegate.plan.ask import Ask, HandFigures, Kind, Load
from tidegate.plan.laws.engine import Engine


class Operating(msgspec.Struct, frozen=True, kw_only=True):
    """A replica whose gate is full. Tokens of prompts are as a gateway counts them, cached ones too."""

    sequences: int
    """That decode."""
    step_s: float
    """Of a step that only decodes."""
    full_step_s: float
    """Of a step that computes as many prompt tokens as it may."""
    chunk_tokens: float | None
    """Prompt tokens that a step computes at most; None: nothing is known of prompts."""
    prefill_tokens_per_s: float | None
    """Prompt tokens computed per second while prompts wait, of the kind that is slowest; None: not known."""
    sustained_per_s: float
    """Requests per second at this gate, with no end."""
    request_tokens: float
    """Mean prompt and output."""
    tokens_per_step: float = 1.0
    """That a step yields of a sequence, mean: more than 1 where the engine guesses ahead."""
    mean_prefill_s: float = 0.0
    """Of a prompt of mean length by itself, beside the full batch."""
    tail_prefill_s: float = 0.0
    """The same of the length that the asked percentile of prompts is within."""
    longest_prefill_s: float = 0.0
    """The same of the longest."""

    @property
    def token_s(self) -> float:
        """Of a step that only decodes, for each token that it yields of a sequence."""
        return self.step_s / self.tokens_per_step

    @property
    def tokens_per_s(self) -> float:
        """Prompt and output tokens of the requests that it sustains."""
        return self.sustained_per_s * self.request_tokens


def operating_point(ask: Ask, answer: Answer) -> Operating:
    """The replica of `ask` at the gate of `answer`."""
    load = ask.load
    request_tokens = load.prompt_tokens + load.output_tokens
    if isinstance(ask.replica, HandFigures):
        tpot_s = ask.replica.tpot_s
        return Operating(
            sequences=answer.concurrency_per_replica,
            step_s=tpot_s,
            full_step_s=tpot_s,
            chunk_tokens=None,
            prefill_tokens_per_s=None,
            sustained_per_s=answer.requests_per_s_per_replica,
            request_tokens=request_tokens,
        )
    engine = ask.replica.engine
    batch = Batch(engine, load, answer.concurrency_per_replica)
    fresh = 1.0 - load.prefix_hit_ratio
    return Operating(
        sequences=batch.sequences,
        step_s=batch.step_s(),
        tokens_per_step=engine.tokens_per_step,
        full_step_s=max(batch.full_step_s(kind) for kind in load.kinds),
        chunk_tokens=batch.chunk_tokens / fresh,
        prefill_tokens_per_s=min(batch.prefill_per_s(kind) for kind in load.kinds) / fresh,
        sustained_per_s=answer.requests_per_s_per_replica,
        request_tokens=request_tokens,
        mean_prefill_s=batch.prefill_s(load.prompt_tokens),
        tail_prefill_s=batch.prefill_s(prompt_at(load, ask.terms.percentile)),
        longest_prefill_s=batch.prefill_s(max(kind.prompt_tokens for kind in load.kinds)),
    )


def prompt_at(load: Load, share: float) -> float:
    """The length that so many of the prompts, 0..1, are no longer than."""
    left = share * sum(kind.share for kind in load.kinds) * (1 - 1e-9)
    ordered = sorted(load.kinds, key=lambda kind: kind.prompt_tokens)
    for kind in ordered:
        left -= kind.share
        if left <= 0:
            return kind.prompt_tokens
    return ordered[-1].prompt_tokens


class Batch:
    """The steps of an engine whose gate is full."""

    def __init__(self, engine: Engine, load: Load, sequences: int) -> None:
        self._engine, self._hit_ratio = engine, load.prefix_hit_ratio
        self.sequences = sequences
        self.tokens_per_step = engine.tokens_per_step
        self.output_tokens = load.output_tokens
        self.context_tokens = sequences * (load.prompt_tokens + load.output_tokens / 2)
        self.chunk_tokens = max(1, engine.max_batched_tokens - sequences * (1 + engine.draft_tokens))

    def step_s(
        self, chunks: tuple[Chunk, ...] = (), *, sequences: int | None = None, more: float = 0
    ) -> float:
        """Seconds of a step beside these chunks; with `more` tokens of context."""
        decodes = self.sequences if sequences is None else sequences
        return self._engine.curve.step_s(decodes, self.context_tokens + more, chunks)

    def prefill_s(self, prompt_tokens: float) -> float:
        """Seconds of the steps that compute one prompt, less what the cache holds of it."""
        before = round(prompt_tokens * self._hit_ratio)
        left, seconds = ceil(prompt_tokens) - before, 0.0
        while left > 0:
            new = min(left, self.chunk_tokens)
            seconds += self.step_s(((new, before),))
            before, left = before + new, left - new
        return seconds

    def full_step_s(self, kind: Kind) -> float:
        """A step with as many prompts of that kind as its budget takes, at the prompt's end."""
        fresh, before = self._fresh(kind)
        if fresh >= self.chunk_tokens:
            return self.step_s(((self.chunk_tokens, before + fresh - self.chunk_tokens),))
        return self.step_s(((fresh, before),) * (self.chunk_tokens // fresh))

    def prefill_per_s(self, kind: Kind) -> float:
        """Fresh prompt tokens per second while such prompts wait."""
        fresh, _ = self._fresh(kind)
        if fresh >= self.chunk_tokens:
            return fresh / self.prefill_s(kind.prompt_tokens)
        return fresh * (self.chunk_tokens // fresh) / self.full_step_s(kind)

    def _fresh(self, kind: Kind) -> Chunk:
        """Tokens of a prompt that must be computed, at least one, and tokens that the cache holds."""
        before = round(kind.prompt_tokens * self._hit_ratio)
        return max(1, ceil(kind.prompt_tokens) - before), before
