"""Which settings decide what a pool carries, and how are they called?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tidegate.config.model import Config
from tidegate.config.schema import PoolConfig
from tidegate.core.units import format_latency
from tidegate.policy.settings import GateSettings
from tidegate.sim.profiles import Profile

GOVERNED = ("gate", "queue", "routing", "prediction", "deadlines", "degradation", "context_tokens", "limits")
"""Of a pool."""
TENANT = ("weight", "class_", "limits")
STEPS = ((1, 1_000), (64, 64_000))
"""Sequences and the tokens that they attend to, of steps by which engines are told apart."""
NOTHING = "-"


def of_configuration(config: Config, pool: str, profile: Profile) -> dict[str, str]:
    """By name, such as `gate max_concurrency`; without the pool's name, so that two pools can be compared."""
    own = config.pools[pool]
    found: dict[str, str] = {"replicas": f"{len(own.replicas):,}"}
    for name in GOVERNED:
        value = getattr(own, name)
        found |= settings_of(name, gate_of(own) if name == "gate" else value)
    for name, class_ in config.classes.items():
        found |= settings_of(f"class {name}", class_)
    for name, tenant in config.tenants.items():
        found |= settings_of(f"tenant {name}", {part: getattr(tenant, part) for part in TENANT})
    found |= settings_of("limits of all", config.limits)
    found |= settings_of("weights", config.weights)
    found |= settings_of("engine", profile.replica)
    for sequences, tokens in STEPS:
        seconds = profile.curve.step_s(sequences, tokens)
        found[f"step of {sequences} x {tokens // sequences:,} tokens"] = format_latency(seconds)
    return found


def gate_of(pool: PoolConfig) -> GateSettings:
    """Of its first replica, which is as the others are."""
    own = pool.replicas[0].gate
    known = {} if own is None else msgspec.structs.asdict(own)
    return msgspec.structs.replace(
        pool.gate, **{name: value for name, value in known.items() if value is not None}
    )


def of_answer(replicas: int, advice: Mapping[str, Any]) -> dict[str, str]:
    """The same names, of what an answer advises: each figure is its value and a reason."""
    found = {"replicas": f"{replicas:,}"}
    for section, prefix in (
        ("gate", "gate"),
        ("queue", "queue"),
        ("deadlines", "deadlines"),
        ("weights", "weights"),
        ("prediction", "prediction"),
    ):
        found |= _figures(prefix, advice.get(section, {}))
    found |= _figures("routing", {"policy": advice.get("routing", {})})
    for name, tenant in advice.get("tenants", {}).items():
        found |= _figures(f"tenant {name} limits", tenant)
    return {name: value for name, value in found.items() if value != NOTHING}


def _figures(prefix: str, section: Mapping[str, Any]) -> dict[str, str]:
    return {
        f"{prefix} {name}": _told(figure["value"])
        for name, figure in section.items()
        if isinstance(figure, dict) and "value" in figure
    }


def settings_of(prefix: str, value: object) -> dict[str, str]:
    """By name, of anything that has settings."""
    return dict(_parts(prefix, msgspec.to_builtins(value)))


def _parts(prefix: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, own in value.items():
            yield from _parts(f"{prefix} {name}".replace("class_", "class"), own)
    elif isinstance(value, list | tuple) and not value:
        return
    elif isinstance(value, list | tuple) and all(isinstance(each, dict) for each in value):
        for own in value:
            step = own.pop("step", "")
            yield (
                f"{prefix} {step}".rstrip(),
                ", ".join(f"{name} {_told(each)}" for name, each in own.items() if each is not None),
            )
    else:
        yield prefix, _told(value)


def _told(value: object) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_told, value))
    return str(value)
