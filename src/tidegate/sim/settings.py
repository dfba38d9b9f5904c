"""What can be set about a simulated engine?

Names and defaults follow vLLM's, so that an engine's own flags can be carried over.
"""

from __future__ import annotations

from math import inf
from typing import Literal

import msgspec

from tidegate.core.errors import ConfigurationError


class Speculation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Speculative decoding: each step verifies `draft_tokens` guesses per sequence."""

    draft_tokens: int
    acceptance_ratio: float
    """Chance, 0..1, that a guess is right if all before it were."""


class Link(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How keys and values travel from one replica to another."""

    bandwidth_bytes_per_s: float
    kv_bytes_per_token: float
    latency_s: float = 0.0
    """Of each transfer, beside its bytes."""
    shared: bool = True
    """All transfers share it; false: each replica has one, and there are as many as of the rarer kind."""

    def __post_init__(self) -> None:
        """ConfigurationError unless a transfer takes a finite time."""
        problems = [
            f"{name} must be 0 or more and finite, not {value}"
            for name in ("kv_bytes_per_token", "latency_s")
            if not 0 <= (value := getattr(self, name)) < inf
        ]
        if not self.bandwidth_bytes_per_s > 0:
            problems.append(f"bandwidth_bytes_per_s must be above 0, not {self.bandwidth_bytes_per_s}")
        if problems:
            raise ConfigurationError(problems)


class Disaggregation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some replicas compute prompts, others decode; together they are taken for one."""

    link: Link
    prefill_replicas: int = 1
    decode_replicas: int = 1
    prefill_profile: str = ""
    """Of the replicas that compute prompts; empty: the same."""

    def __post_init__(self) -> None:
        """ConfigurationError unless there is one of each kind."""
        if min(self.prefill_replicas, self.decode_replicas) < 1:
            raise ConfigurationError(["prefill_replicas and decode_replicas must be at least 1"])


class ReplicaSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bounds of one engine and how it schedules."""

    max_num_seqs: int
    """Sequences in a batch."""
    max_batched_tokens: int
    """Token budget of a step."""
    kv_tokens: int
    """KV cache; whole blocks of it are used."""
    context_tokens: int
    """Prompt and output of one sequence together."""
    block_tokens: int = 16
    chunked_prefill: bool = True
    """False: a prompt is computed whole in one step, or waits until one has room for it."""
    long_prefill_tokens: int = 0
    """A step computes no more of one prompt than this; 0: no such bound."""
    kv: Literal["paged", "reserved"] = "paged"
    """Blocks as a sequence grows, or all that `max_tokens` may need from the start."""
    whole_prompt_must_fit: bool = True
    """Admit a prompt only when all of it fits, not just its first chunk (`scheduler_reserve_full_isl`)."""
    prefix_cache: bool = False
    priority: bool = False
    """The smallest `priority` first, and the largest preempted first; else first come, first served."""
    speculation: Speculation | None = None
    speed: float = 1.0
    """Every duration is divided by it."""

    @property
    def blocks(self) -> int:
        """Blocks of KV cache."""
        return self.kv_tokens // self.block_tokens

    @property
    def draft_tokens(self) -> int:
        """Tokens guessed per sequence and step."""
        return self.speculation.draft_tokens if self.speculation is not None else 0

    @property
    def sequence_tokens(self) -> int:
        """The longest sequence, prompt and output, that can ever be served."""
        fits = min(self.context_tokens, self.blocks * self.block_tokens - self.draft_tokens)
        return fits if self.chunked_prefill else min(fits, self.max_batched_tokens)

    def __post_init__(self) -> None:
        """ConfigurationError for what cannot be; the message names the remedy."""
        problems = [*self._bounds(), *self._combinations()]
        if problems:
            raise ConfigurationError(problems)

    def _bounds(self) -> list[str]:
        problems = [
            f"{name} must be at least 1, not {value}"
            for name, value in (
                ("max_num_seqs", self.max_num_seqs),
                ("max_batched_tokens", self.max_batched_tokens),
                ("context_tokens", self.context_tokens),
                ("block_tokens", self.block_tokens),
            )
            if value < 1
        ]
        if self.long_prefill_tokens < 0:
            problems.append(f"long_prefill_tokens must be 0 or more, not {self.long_prefill_tokens}")
        if not 0 < self.speed < inf:
            problems.append(f"speed must be above 0 and finite, not {self.speed}")
        if (guess := self.speculation) is not None:
            if guess.draft_tokens < 1:
                problems.append(f"speculation.draft_tokens must be at least 1, not {guess.draft_tokens}")
            if not 0 <= guess.acceptance_ratio <= 1:
                problems.append(
                    f"speculation.acceptance_ratio must be from 0 to 1, not {guess.acceptance_ratio}"
                )
        return problems

    def _combinations(self) -> list[str]:
        problems = []
        decoding = self.max_num_seqs * (1 + self.draft_tokens)
        if self.max_batched_tokens < decoding:
            problems.append(
                f"max_batched_tokens must hold one decode step of max_num_seqs sequences: raise it from "
                f"{self.max_batched_tokens} to {decoding}, or lower max_num_seqs"
            )
        if self.block_tokens >= 1 and self.kv_tokens - self.draft_tokens < self.block_tokens:
            problems.append(f"kv_tokens must hold a block of {self.block_tokens}, not {self.kv_tokens}")
        if self.kv == "reserved" and self.prefix_cache:
            problems.append("prefix_cache needs kv: paged, for a contiguous reservation cannot be shared")
        if self.long_prefill_tokens and not self.chunked_prefill:
            problems.append("long_prefill_tokens needs chunked_prefill")
        return problems
