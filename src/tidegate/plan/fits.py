"""How many requests fit into a replica at once, and what binds: its KV cache or its compute?

For who knows a replica by what it was seen to do: a pool of so many tokens, and how busy it was with so many
requests.
"""

from __future__ import annotations

from math import ceil, inf

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.core.units import format_ratio
from tidegate.plan.answer import Binding


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A replica, and what its requests are like."""

    kv_tokens: int
    request_tokens: int
    """Prompt and output of one, at its end."""
    reserved_tokens: int | None = None
    """The longest that it may become, for which a contiguous cache keeps room; None: nobody asks."""
    block_tokens: int = 16
    busy_ratio: float | None = None
    """Of its compute, 0..1, with `busy_at` requests; None: not known."""
    busy_at: int = 1


class Fits(msgspec.Struct, frozen=True, kw_only=True):
    """So many at once."""

    concurrency: int
    """Paged: the least of what the cache holds and what compute serves."""
    binding: Binding
    because: str
    paged: int
    paged_tokens: int
    """Of one, in whole blocks."""
    reserved: int | None = None
    compute: int | None = None
    """If compute grows in proportion to requests."""


def fits(seen: Seen) -> Fits:
    """ConfigurationError where not even one does."""
    if seen.busy_ratio is not None and not 0 < seen.busy_ratio <= 1:
        raise ConfigurationError([f"--busy: a share above 0 and at most 1, not {seen.busy_ratio:g}"])
    tokens = ceil(seen.request_tokens / seen.block_tokens) * seen.block_tokens
    paged = seen.kv_tokens // tokens
    reserved = seen.kv_tokens // seen.reserved_tokens if seen.reserved_tokens is not None else None
    compute = int(seen.busy_at / seen.busy_ratio + 1e-9) if seen.busy_ratio is not None else None
    if not paged:
        problem = f"one request of {tokens:,} tokens does not fit into {seen.kv_tokens:,} tokens of KV cache"
        raise ConfigurationError([f"{problem}; shorter requests or a larger cache would"])
    bound_by_compute = (compute if compute is not None else inf) < paged
    holds = f"{seen.kv_tokens:,} tokens of KV cache hold {paged:,} requests of {tokens:,} tokens, paged"
    if reserved is not None:
        holds += f", and {reserved:,} if {seen.reserved_tokens:,} are reserved for each"
    if compute is None:
        told = f"KV memory binds: {holds}."
    elif bound_by_compute:
        busy = format_ratio(seen.busy_ratio or 0.0)
        told = f"Compute binds at {compute:,}: it is at {busy} with {seen.busy_at}. {holds}."
    else:
        told = f"KV memory binds: {holds}. Compute would serve {compute:,}."
    return Fits(
        concurrency=compute if bound_by_compute and compute is not None else paged,
        binding="compute" if bound_by_compute else "kv_memory",
        because=told,
        paged=paged,
        paged_tokens=tokens,
        reserved=reserved,
        compute=compute,
    )
