"""Why is there no deployment, and what would make one possible?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from tidegate.catalog.accelerators import Accelerator
from tidegate.core.units import format_number
from tidegate.perf.deployment import GIB, Deployment
from tidegate.perf.memory import device_weights_bytes
from tidegate.perf.precisions import BITS
from tidegate.plan.answer import Impossible
from tidegate.plan.deployed import name_of
from tidegate.plan.search.candidate import Whole
from tidegate.plan.search.candidates import Space, bits_of, fits
from tidegate.plan.sizing import size_of

BROUGHT_TO = ("fp8", "int4", "fp4")
"""Precisions that are proposed where a model does not fit: those that checkpoints are published in."""


def no_room(space: Space) -> Impossible:
    """Where no accelerator of the space holds the model, however it is sharded."""
    largest = max(space.accelerators, key=lambda each: _widest(space, each) * each.usable_bytes)
    weights, kv = space.fewest_bits(largest)
    widest = _widest(space, largest)
    deployment = space.deployment(largest, weights=weights, kv=kv, tp=widest)
    if deployment is None:
        return Impossible(
            problem=f"{space.model.name} cannot be shared by {widest} devices",
            remedy="its attention heads must be a multiple of --tp; give another",
            binding="kv_memory",
        )
    devices = deployment.devices
    needed = (device_weights_bytes(deployment) + deployment.reserve_bytes) * devices
    available = deployment.memory_ratio * largest.usable_bytes * devices
    more = "" if len(space.accelerators) == 1 else ", and no others asked about have more"
    return Impossible(
        problem=(
            f"{space.model.name} in {deployment.precision} does not fit: it takes "
            f"{format_number(needed / GIB)} GiB with its reserves, and {name_of(deployment)} have "
            f"{format_number(available / GIB)} GiB for it{more}"
        ),
        remedy=_remedy(space, deployment),
        binding="kv_memory",
        needed=needed,
        available=available,
        unit="bytes",
    )


def not_within(tried: Sequence[Whole], why: Callable[[Whole], Impossible] | None = None) -> Impossible:
    """Where some hold the model, and none the terms: the reason of the one that came nearest.

    `why` one of them does not; by default as replicas that do both.
    """
    by_name: dict[str, list[Whole]] = {}
    for each in tried:
        by_name.setdefault(each.deployment.accelerator.name, []).append(each)
    found = []
    for some in by_name.values():
        # Of each accelerator the most of them, in the fewest bits: nothing of it is faster.
        able = max(some, key=lambda each: (each.deployment.devices, *(-b for b in bits_of(each.deployment))))
        found.append((able, (why or _reason)(able)))
    nearest, reason = min(found, key=lambda each: _missing(each[1]))
    if len(tried) == 1:
        return reason
    deployment = nearest.deployment
    name = f"{nearest.replica.name}, weights {deployment.precision}, KV cache {deployment.kv}"
    return msgspec.structs.replace(
        reason, problem=f"nothing holds the budgets; the nearest is {name}: {reason.problem}"
    )


def _reason(candidate: Whole) -> Impossible:
    found = size_of(candidate.ask)
    if isinstance(found, Impossible):
        return found
    needed = found.replicas - found.spare_replicas
    return Impossible(
        problem=f"{found.replicas:,} replicas do not hold the budgets",
        remedy=f"{needed:,} would, none of them spare",
        binding="queueing",
        needed=float(needed),
        available=float(found.replicas),
        unit="replicas",
    )


def _missing(reason: Impossible) -> float:
    if not reason.needed or not reason.available:
        return float("inf")
    return reason.needed / reason.available


def _widest(space: Space, accelerator: Accelerator) -> int:
    return max(shape["tp"] for shape in space.shapes(accelerator))


def _remedy(space: Space, tried: Deployment) -> str:
    """More devices, or fewer bits."""
    ways = []
    least = space.least(tried.accelerator, tried.precision, tried.kv)
    if least is not None:
        ways.append(f"{name_of(least)} hold it (--tp {least.tp})")
    for weights in BROUGHT_TO:
        if BITS[weights] < BITS[tried.precision]:
            fewer = space.deployment(tried.accelerator, weights=weights, kv=tried.kv, tp=tried.tp)
            if fewer is not None and fits(fewer):
                ways.append(f"{name_of(fewer)} in {weights} do (--quant {weights})")
                break
    return ", or ".join(ways) if ways else "accelerators with more memory would do"
