"""What of a replica's KV cache does a request take: on average, at its end, or if its place were reserved?

Paged, a request holds whole blocks of what it has so far: half of its output, on average. The gate counts
each at its end, so that nothing is ever preempted. Reserved contiguously it would hold the longest sequence
that the engine takes, whatever it needs.
"""

from __future__ import annotations

from math import ceil

import msgspec

from tidegate.plan.ask import Load, Replica


class Residence(msgspec.Struct, frozen=True, kw_only=True):
    """A KV cache, in requests."""

    kv_tokens: int
    """That it holds."""
    resident_tokens: float
    """Of a request, on average over its stay."""
    end_tokens: int
    """Of the longest kind of request at its end, in whole blocks."""
    reserved_tokens: int
    """Of one whose longest possible sequence is reserved."""
    fit_resident: int
    """So many requests, on average."""
    fit_at_end: int
    """So many of the longest kind, each at its end."""
    fit_reserved: int
    kv_bytes_per_token: float | None = None
    """Of the whole model, however it is sharded; None: not known of a measured replica."""
    kv_precision: str | None = None
    """Of these bytes; bf16 unless another is asked for, as engines that are not told keep the model's own."""
    kv_bytes_per_sequence: float | None = None
    """Of the longest kind at its end."""
    weights_bytes: int | None = None
    """Of one accelerator, as the rest."""
    reserve_bytes: int | None = None
    pool_bytes: int | None = None
    """What is left for KV cache."""
    usable_bytes: int | None = None


def residence_of(replica: Replica, load: Load) -> Residence:
    """Of the load's requests."""
    engine, memory = replica.engine, replica.memory
    resident = load.resident_tokens
    end = _in_blocks(load.longest_tokens, engine.block_tokens)
    reserved = _in_blocks(engine.context_tokens, engine.block_tokens)
    per_token = memory.kv_bytes_per_token if memory is not None else None
    return Residence(
        kv_tokens=engine.kv_tokens,
        resident_tokens=resident,
        end_tokens=end,
        reserved_tokens=reserved,
        fit_resident=int(engine.kv_tokens / resident),
        fit_at_end=engine.kv_tokens // end,
        fit_reserved=engine.kv_tokens // reserved,
        kv_bytes_per_token=per_token,
        kv_precision=replica.deployment.kv if replica.deployment is not None else None,
        kv_bytes_per_sequence=per_token * end if per_token is not None else None,
        weights_bytes=memory.weights_bytes if memory is not None else None,
        reserve_bytes=memory.reserve_bytes if memory is not None else None,
        pool_bytes=memory.pool_bytes if memory is not None else None,
        usable_bytes=memory.usable_bytes if memory is not None else None,
    )


def _in_blocks(tokens: float, block_tokens: int) -> int:
    return ceil(tokens / block_tokens) * block_tokens
