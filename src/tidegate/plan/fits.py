"""How many requests fit into a replica at once, and what binds: its KV cache, its batch or its compute?

For who knows a replica by what it was seen to do, a pool of so many tokens and how busy it was with so many
requests, or by its model and accelerators. Sessions that wait for their users may be offloaded to its host.
"""

from __future__ import annotations

from math import ceil

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.core.units import format_ratio
from tidegate.plan.answer import Binding
from tidegate.plan.ask import Replica
from tidegate.plan.keeping import Fleet, fleet_for
from tidegate.plan.offload import Host, Offload, Sessions, offload, sessions_of


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
    batch_limit: int | None = None
    """Sequences that its engine takes; None: not known."""
    replica: Replica | None = None
    """What it is; None: not known."""
    token_bytes: float | None = None
    """Of KV cache, where the replica does not say it."""
    prompt_tokens_per_s: float | None = None
    """That it computes when it does nothing else, where the replica does not say it."""
    step_s: float | None = None
    """Of a decode step with all that fit, where the replica does not say it."""


class Fits(msgspec.Struct, frozen=True, kw_only=True):
    """So many at once."""

    concurrency: int
    """Paged: the least of what the cache holds, the batch takes and compute serves."""
    binding: Binding
    because: str
    paged: int
    paged_tokens: int
    """Of one, in whole blocks."""
    reserved: int | None = None
    compute: int | None = None
    """If compute grows in proportion to requests."""
    batch: int | None = None
    session_bytes: float | None = None
    """Of KV cache of one, at its end; None: not known."""
    offload: Offload | None = None
    """What host memory buys; None: none was said."""
    fleet: Fleet | None = None
    """Replicas for so many sessions; None: none were said."""


def seen_of(replica: Replica, request_tokens: int, reserved_tokens: int | None = None) -> Seen:
    """A replica by its model and accelerators."""
    engine = replica.engine
    return Seen(
        kv_tokens=engine.kv_tokens,
        request_tokens=request_tokens,
        reserved_tokens=reserved_tokens,
        block_tokens=engine.block_tokens,
        batch_limit=engine.max_num_seqs,
        replica=replica,
    )


def fits(seen: Seen, host: Host | None = None, sessions: int | None = None) -> Fits:
    """ConfigurationError where not even one does, or where it is not known how large one is."""
    if seen.busy_ratio is not None and not 0 < seen.busy_ratio <= 1:
        raise ConfigurationError([f"--busy: a share above 0 and at most 1, not {seen.busy_ratio:g}"])
    tokens = ceil(seen.request_tokens / seen.block_tokens) * seen.block_tokens
    paged = seen.kv_tokens // tokens
    if not paged:
        problem = f"one request of {tokens:,} tokens does not fit into {seen.kv_tokens:,} tokens of KV cache"
        raise ConfigurationError([f"{problem}; shorter requests or a larger cache would"])
    if seen.reserved_tokens is not None and seen.reserved_tokens < seen.request_tokens:
        problem = f"a request of {seen.request_tokens:,} tokens outgrows {seen.reserved_tokens:,} reserved"
        raise ConfigurationError([f"{problem}; reserve what the longest may become"])
    found = _bound(seen, tokens, paged)
    each = _sessions(seen, found)
    kept = offload(each, host) if host is not None else None
    fleet = None
    if sessions is not None:
        deployment = seen.replica.deployment if seen.replica is not None else None
        fleet = fleet_for(sessions, each, kept, deployment)
    return msgspec.structs.replace(found, session_bytes=each.kv_bytes, offload=kept, fleet=fleet)


def _bound(seen: Seen, tokens: int, paged: int) -> Fits:
    """Of what holds, takes and serves requests, the least."""
    reserved = seen.kv_tokens // seen.reserved_tokens if seen.reserved_tokens is not None else None
    compute = int(seen.busy_at / seen.busy_ratio + 1e-9) if seen.busy_ratio is not None else None
    gates: list[tuple[int, Binding]] = [(paged, "kv_memory")]
    if seen.batch_limit is not None:
        gates.append((seen.batch_limit, "batch"))
    if compute is not None:
        gates.append((compute, "compute"))
    least, binding = min(gates, key=lambda gate: gate[0])
    return Fits(
        concurrency=least,
        binding=binding,
        because=_told(seen, binding, paged, tokens),
        paged=paged,
        paged_tokens=tokens,
        reserved=reserved,
        compute=compute,
        batch=seen.batch_limit,
    )


def _told(seen: Seen, binding: Binding, paged: int, tokens: int) -> str:
    holds = f"{seen.kv_tokens:,} tokens of KV cache hold {paged:,} requests of {tokens:,} tokens, paged"
    if seen.reserved_tokens is not None:
        reserved = seen.kv_tokens // seen.reserved_tokens
        holds += f", and {reserved:,} if {seen.reserved_tokens:,} are reserved for each"
    if binding == "batch":
        return f"The batch binds: the engine takes {seen.batch_limit:,} sequences at once. {holds}."
    if seen.busy_ratio is None:
        return f"KV memory binds: {holds}."
    compute = int(seen.busy_at / seen.busy_ratio + 1e-9)
    if binding == "compute":
        busy = format_ratio(seen.busy_ratio)
        return f"Compute binds at {compute:,}: it is at {busy} with {seen.busy_at}. {holds}."
    return f"KV memory binds: {holds}. Compute would serve {compute:,}."


def _sessions(seen: Seen, found: Fits) -> Sessions:
    """Those that the replica holds, each at its end."""
    tokens, at_once = found.paged_tokens, found.concurrency
    replica = seen.replica
    if replica is None:
        speed = seen.prompt_tokens_per_s
        return Sessions(
            kv_bytes=None if seen.token_bytes is None else seen.token_bytes * tokens,
            resident=found.paged,
            at_once=at_once,
            recompute_s=None if speed is None else tokens / speed,
            step_s=seen.step_s,
        )
    return sessions_of(replica, tokens, resident=found.paged, at_once=at_once)
