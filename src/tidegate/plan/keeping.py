"""How many replicas do so many sessions take, if all decode at once, and if most wait for their users?"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import msgspec

from tidegate.perf.deployment import Deployment
from tidegate.plan.offload import Offload, Sessions, memory_told, sessions_told


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """How many replicas so many sessions take."""

    sessions: int
    replicas: int
    """Where all may decode at once."""
    replicas_offloaded: int | None
    """Where all are kept, and those that may decode at once do; None: nothing is offloaded."""
    decode_at_once: int | None
    """On those."""
    accelerators: int | None = None
    """Of `replicas`; None: what a replica has is not known."""
    nodes: int | None = None
    host_memory_bytes: float | None = None
    """With which one replica would keep them all; None: it is not known how large one is."""
    because: str = ""


def fleet_for(
    sessions: int,
    each: Sessions,
    offloaded: Offload | None = None,
    deployment: Deployment | None = None,
) -> Fleet:
    """Replicas for so many of them in all, of which `each` tells what one replica has."""
    replicas = ceil(sessions / each.at_once)
    kept = None if offloaded is None else ceil(sessions / offloaded.kept)
    found = Fleet(
        sessions=sessions,
        replicas=replicas,
        replicas_offloaded=kept,
        decode_at_once=None if kept is None else min(sessions, kept * each.at_once),
        accelerators=None if deployment is None else replicas * deployment.devices,
        nodes=None if deployment is None else _nodes(replicas, deployment),
        host_memory_bytes=None if each.kv_bytes is None else max(0, sessions - each.resident) * each.kv_bytes,
    )
    return msgspec.structs.replace(found, because=" ".join(_fleet_told(found, each.at_once)))


def _nodes(replicas: int, deployment: Deployment) -> int:
    """No replica is spread over more of them than it must be."""
    devices, per_node = deployment.devices, deployment.accelerator.per_node
    if devices > per_node:
        return replicas * ceil(devices / per_node)
    return ceil(replicas / (per_node // devices))


def _fleet_told(found: Fleet, at_once: int) -> Iterator[str]:
    had = ""
    if found.accelerators is not None and found.nodes is not None:
        had = f" ({found.accelerators:,} accelerators, {found.nodes:,} node{'s' * (found.nodes != 1)})"
    all_ = f"{sessions_told(found.sessions)} that all decode at once"
    yield f"{all_} take {_replicas(found.replicas)}{had}, with {at_once:,} each."
    if found.replicas_offloaded is not None and found.decode_at_once is not None:
        keep = "keeps" if found.replicas_offloaded == 1 else "keep"
        yield (
            f"If at most {found.decode_at_once:,} of them decode at once and the others are offloaded, "
            f"{_replicas(found.replicas_offloaded)} {keep} them."
        )
    if found.host_memory_bytes:
        yield f"One replica keeps them all with {memory_told(found.host_memory_bytes)} of host memory."


def _replicas(count: int) -> str:
    return f"{count:,} replica{'s' * (count != 1)}"
