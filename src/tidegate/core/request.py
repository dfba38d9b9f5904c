"""What must policy know of a request to decide on it?

A `Request` is that and nothing more: who asks, for what, and how much it may cost. It carries no
bytes of the body, so that the simulator can make a million of them.
"""

from __future__ import annotations

import msgspec


class Request(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One logical request, from its arrival to its single outcome, however many attempts that takes."""

    request_id: int
    """Unique for the life of the governor."""
    model: str
    """The pool asked for, aliases already resolved."""
    tenant: str
    key: str
    """Name of the credential, not the credential."""
    priority: str
    """Name of the class; the caller has clamped it to what the tenant may use."""

    prompt_bytes: int
    """UTF-8 bytes of prompt text; divided by the pool's learned bytes per token this estimates tokens."""
    prompt_tokens_known: int = 0
    """Prompt tokens beside the text: token-id prompts (exact), image and audio parts (an estimate)."""
    max_tokens: int | None = None
    """Output bound per choice as the client set it; None when it set none."""
    choices: int = 1
    """Outputs generated per prompt times prompts: `n` or `best_of`, times batch size."""
    generates: bool = True
    """False for embeddings and rerank: no output tokens."""
    streams: bool = True
    """The answer comes as a stream, so that its first token can be seen, and it can be truncated."""
    body_bytes: int = 0
    affinity: int | None = None
    """64-bit hash of session, user or prefix, for consistent hashing; None when there is none."""
    prefix: tuple[int, ...] = ()
    """64-bit hashes of the prompt's full blocks from its first on, each of all text so far, for routing by
    prefix. Empty where no pool routes so."""
    prefix_block_tokens: float = 0.0
    """Tokens that a block of `prefix` stands for, about; 0: unknown."""
    timeout_s: float | None = None
    """End-to-end deadline that the client asked for, from arrival."""


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an engine says it processed: totals, never increments."""

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    """Those of `prompt_tokens` that came from the engine's prefix cache."""
