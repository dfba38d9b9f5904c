"""What do an accelerator's operators reach of its figures, beside those that the efficiencies were fitted on?

`data/operators.toml` has what matrix products, attention, experts and all-reduces reach, each measured alone.
The efficiencies come from whole deployments, and these were measured on few accelerators, which are met worse
with such tables than without (docs/decisions/0012). Where no deployment was measured but operators were, each
efficiency is multiplied by how much better or worse these are than on those few (`FITTED`).
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import Final

import msgspec

from tidegate.perf.activations import STORED
from tidegate.perf.deployment import Deployment
from tidegate.perf.efficiencies import Efficiencies, efficiencies_of
from tidegate.perf.work import COMPUTED

FITTED: Final = ("h100-sxm", "h200-sxm", "b200-sxm")
"""Accelerators of which there are tables and deployments."""


class Shares(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of one accelerator, as `Efficiencies` has them; by precision, and of links by devices."""

    software: str
    read: dict[str, float]
    compute: dict[str, float]
    product_s: dict[str, float]
    product_moves: dict[str, float]
    cache: dict[str, float]
    prefill_attention: dict[str, float]
    attended_tokens: dict[str, float]
    expert_read: dict[str, float]
    expert_compute: dict[str, float]
    """Of the peak."""
    expert_layer_s: dict[str, float]
    link: dict[str, float]
    reduce_s: dict[str, float]


def measured() -> dict[str, Shares]:
    """What ships, by the accelerator's name."""
    return _measured()


@cache
def _measured() -> dict[str, Shares]:
    text = files("tidegate.data").joinpath("operators.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, Shares])


def has_table(accelerator: str) -> bool:
    """Whether its steps are computed with what its operators reach."""
    return accelerator in measured() and accelerator not in FITTED


def reached_on(deployment: Deployment) -> Efficiencies:
    """Of its software, on its accelerator."""
    name = deployment.accelerator.name
    if not has_table(name):
        return efficiencies_of(deployment.software)
    return adjusted(deployment.software, name, deployment.kv, deployment.stage_devices)


@cache
def adjusted(software: str, accelerator: str, kv: str = "bf16", peers: int = 1) -> Efficiencies:
    """Of an accelerator that has a table, with caches in `kv` and so many devices that share a layer."""
    reached = efficiencies_of(software)

    def ratio(name: str, key: str) -> float:
        """Of this one to those of `FITTED` that have it; of links to all of theirs, which are alike."""
        own = getattr(measured()[accelerator], name).get(key)
        known = [getattr(measured()[other], name) for other in FITTED]
        alike = name in ("link", "reduce_s")
        others = [value for each in known for at, value in each.items() if alike or at == key]
        return own / fmean(others) if own and others else 1.0

    def each(name: str, of: tuple[str, ...]) -> tuple[float, ...]:
        """Of all precisions."""
        pairs = zip(getattr(reached, name), of, strict=True)
        return tuple(value * ratio(name, key) for value, key in pairs)

    cached = "bf16" if kv in ("bf16", "fp16") else "fp8"
    devices = str(min(8, max(2, 2 ** (peers - 1).bit_length())))
    changed = {name: each(name, STORED) for name in ("read", "product_s", "product_moves", "expert_read")}
    return msgspec.structs.replace(
        reached,
        **changed,
        compute=each("compute", COMPUTED),
        expert_compute=reached.expert_compute * ratio("expert_compute", "bf16") / ratio("compute", "bf16"),
        expert_layer_s=reached.expert_layer_s * ratio("expert_layer_s", "bf16"),
        cache=reached.cache * ratio("cache", cached),
        prefill_attention=reached.prefill_attention * ratio("prefill_attention", "bf16"),
        attended_tokens=reached.attended_tokens * ratio("attended_tokens", "bf16"),
        link=reached.link * ratio("link", devices),
        reduce_s=reached.reduce_s * ratio("reduce_s", devices),
    )
