"""What does memory of the host buy, when KV caches of sessions between turns are kept in it?

A session that waits for its user needs no accelerator, only its KV cache: kept in host memory, its next turn
begins by copying that back instead of computing it again. A session that decodes is another thing: each of
its tokens reads all of its KV cache, so that it must be resident, and no host makes more of those.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.core.units import format_latency, format_number
from tidegate.perf.deployment import GIB, Deployment
from tidegate.plan.ask import Replica
from tidegate.plan.laws.engine import Engine


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """Of one replica."""

    memory_bytes: float
    """For KV caches, of all of its accelerators."""
    link_bytes_per_s: float
    """At which one session comes back, over all links to the accelerators that it is spread over."""
    links: int = 1
    """So many of them: one for each accelerator."""
    copies: int = 1
    """Of attention, each of which has sessions and links of its own."""
    link_source: str = ""


class Sessions(msgspec.Struct, frozen=True, kw_only=True):
    """Those of one replica, which are alike."""

    kv_bytes: float | None
    """Of one, on all accelerators; what they repeat is copied as often. None: not known."""
    resident: int
    """That the KV cache of the accelerators holds, whether they decode or wait."""
    at_once: int
    """That may decode at once: these, or fewer where something else binds."""
    recompute_s: float | None = None
    """To compute what one has in its KV cache again; None: not known."""
    step_s: float | None = None
    """Of a decode step of those; None: not known."""


class Offload(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept, and how it comes back."""

    host_memory_bytes: float
    link_bytes_per_s: float
    links: int
    link_source: str
    session_bytes: float
    at_once: int
    """Sessions that may decode at once: as many as without."""
    resident: int
    parked: int
    """Sessions between turns that host memory holds beside them."""
    kept: int
    """Both: so many sessions of a replica find their KV cache again."""
    restore_s: float
    """To copy one back, with nothing else on the link."""
    restores_per_s: float
    """That all links carry: so many turns may begin."""
    recompute_s: float | None
    quicker: Literal["restore", "recompute"] | None
    """To begin a turn; None: it is not known how long it takes to compute it again."""
    times_as_quick: float | None
    """The slower of both over the quicker."""
    step_s: float | None
    steps_per_restore: float | None
    """Decode steps that pass while one comes back: each token of a session that is not resident would wait
    for as long."""
    because: str


def offload(sessions: Sessions, host: Host) -> Offload:
    """What it buys. ConfigurationError where host memory does not hold one, or their size is not known.

    What is resident is not counted in host memory too: an engine that writes through needs that much more.
    """
    size = sessions.kv_bytes
    if size is None:
        problem = "--offload: how large is the KV cache of a token"
        raise ConfigurationError([f"{problem}; write --token-bytes BYTES, or --model and --gpu"])
    parked = int(host.memory_bytes / size)
    if not parked:
        problem = f"--offload: {memory_told(host.memory_bytes)} hold no session of {memory_told(size)}"
        raise ConfigurationError([f"{problem}; more host memory, or shorter sessions, would do"])
    restore_s = size / host.link_bytes_per_s
    again_s, step_s = sessions.recompute_s, sessions.step_s
    restored = again_s is not None and restore_s <= again_s
    found = Offload(
        host_memory_bytes=host.memory_bytes,
        link_bytes_per_s=host.link_bytes_per_s,
        links=host.links,
        link_source=host.link_source,
        session_bytes=size,
        at_once=sessions.at_once,
        resident=sessions.resident,
        parked=parked,
        kept=sessions.resident + parked,
        restore_s=restore_s,
        restores_per_s=host.copies / restore_s,
        recompute_s=again_s,
        quicker=None if again_s is None else "restore" if restored else "recompute",
        times_as_quick=None if again_s is None else max(restore_s / again_s, again_s / restore_s),
        step_s=step_s,
        steps_per_restore=None if step_s is None else restore_s / step_s,
        because="",
    )
    return msgspec.structs.replace(found, because=" ".join(_told(found)))


def host_of(deployment: Deployment, memory_bytes: float, link_bytes_per_s: float | None) -> Host:
    """The host of a replica; without a link, that of the catalogue, each accelerator having one of its own.

    ConfigurationError where the catalogue knows none.
    """
    accelerator = deployment.accelerator
    if link_bytes_per_s is not None:
        return Host(memory_bytes=memory_bytes, link_bytes_per_s=link_bytes_per_s, link_source="as asked")
    each = accelerator.host_link_bytes_per_s
    if each is None:
        problem = f"--offload-link: the catalogue knows no link to the host of {accelerator.title}"
        raise ConfigurationError([f"{problem}; write what it carries, as 50GB/s"])
    links = deployment.tp * deployment.pp
    return Host(
        memory_bytes=memory_bytes,
        link_bytes_per_s=each * links,
        links=links,
        copies=deployment.attention_dp,
        link_source=accelerator.sources.get("host_link_bytes_per_s", accelerator.source),
    )


def sessions_of(replica: Replica, tokens: int, *, resident: int, at_once: int) -> Sessions:
    """Of so many tokens each, on a replica that is described, or that was measured."""
    engine, deployment, memory = replica.engine, replica.deployment, replica.memory
    size = None
    if deployment is not None and memory is not None:
        size = memory.sequence_bytes(tokens) * deployment.devices / memory.copies
    return Sessions(
        kv_bytes=size,
        resident=resident,
        at_once=at_once,
        recompute_s=recompute_s(engine, tokens),
        step_s=engine.curve.step_s(at_once, at_once * tokens),
    )


def recompute_s(engine: Engine, tokens: int) -> float:
    """To compute a prompt of so many tokens, alone, in steps as large as the engine makes them."""
    starts = range(0, tokens, engine.max_batched_tokens)
    chunks = [(min(engine.max_batched_tokens, tokens - start), start) for start in starts]
    return sum(engine.curve.step_s(0, 0, [chunk]) for chunk in chunks)


def _told(found: Offload) -> Iterator[str]:
    restore, host = format_latency(found.restore_s), memory_told(found.host_memory_bytes)
    parked = f"{sessions_told(found.parked)} of {memory_told(found.session_bytes)}"
    yield f"{host} of host memory keep {parked} more between turns, {found.kept:,} in all."
    link = _gb_per_s(found.link_bytes_per_s)
    if found.links > 1:
        link += f" ({found.links} x {_gb_per_s(found.link_bytes_per_s / found.links)})"
    back = f"One comes back in {restore} over {link}"
    if found.recompute_s is None or found.times_as_quick is None:
        yield f"{back}."
    else:
        times, again = format_number(found.times_as_quick), format_latency(found.recompute_s)
        restored = "restoring" if found.quicker == "restore" else "computing it again"
        yield f"{back}, and is computed again in {again}: {restored} is {times} times as quick."
    yield f"At most {format_number(found.restores_per_s)} a second come back."
    beside = ""
    if found.step_s is not None:
        beside = f", beside a step of {format_latency(found.step_s)} for all {found.at_once:,}"
    yield (
        f"No more decode at once than before, {found.at_once:,}: a token reads all of a session's KV cache, "
        f"so one that is not resident would have it copied first, {restore} for each token{beside}."
    )


def sessions_told(count: int) -> str:
    """As `1 session`, `256 sessions`."""
    return f"{count:,} session{'s' * (count != 1)}"


def _gb_per_s(rate: float) -> str:
    return f"{format_number(rate / 1e9)} GB/s"


def memory_told(count: float) -> str:
    """As `10 GiB`, or `76 MiB` where it is less than one."""
    return f"{format_number(count / GIB)} GiB" if count >= GIB else f"{format_number(1024 * count / GIB)} MiB"
