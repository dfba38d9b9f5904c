"""What goes wrong, or is taken out, and when? A time of None lasts to the end.

Each fault names its replica and its instant. None needs another one's dice: one more fault changes nothing
but what it strikes. Those that overlap on a replica last each for its own time, and factors multiply; only
the end of a drain ends every drain, as an operator's does.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isfinite

import msgspec


class _Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="fault"):
    """Whom it strikes, and when: seconds from the start."""

    replica: str
    at_s: float


class Crash(_Fault, frozen=True, kw_only=True, tag="crash"):
    """Connections break, all work is lost, new connections are refused until it is back, empty."""

    restart_after_s: float | None = None
    """None: it stays away."""


class Flap(_Fault, frozen=True, kw_only=True, tag="flap"):
    """Crashes again and again: away for `down_s`, back for `up_s`, `times` times."""

    down_s: float
    up_s: float
    times: int


class Slow(_Fault, frozen=True, kw_only=True, tag="slow"):
    """Each step takes `factor` times as long."""

    factor: float
    for_s: float | None = None


class Errors(_Fault, frozen=True, kw_only=True, tag="errors"):
    """A `share` (0..1) of the requests that reach it is answered with `status` at once."""

    share: float
    status: int = 500
    for_s: float | None = None


class Drain(_Fault, frozen=True, kw_only=True, tag="drain"):
    """An operator has it sent nothing new, and takes it back after `for_s`."""

    for_s: float | None = None


class Leave(_Fault, frozen=True, kw_only=True, tag="leave"):
    """It is drained, and is removed once it is idle, or after `grace_s` with all that still runs there."""

    grace_s: float | None = None


Fault = Crash | Flap | Slow | Errors | Drain | Leave


def crashes(fault: Crash | Flap) -> Iterator[tuple[float, float]]:
    """When it goes away and when it is back; inf for never."""
    if isinstance(fault, Crash):
        away_s = inf if fault.restart_after_s is None else fault.restart_after_s
        yield fault.at_s, fault.at_s + away_s
        return
    for index in range(fault.times):
        at_s = fault.at_s + index * (fault.down_s + fault.up_s)
        yield at_s, at_s + fault.down_s


def problems(fault: Fault) -> list[str]:
    """What of it cannot be."""
    said = []
    if not (isfinite(fault.at_s) and fault.at_s >= 0):
        said.append(f"at_s is an instant from 0 s on, not {fault.at_s:g}")
    for name in ("restart_after_s", "for_s", "grace_s", "down_s", "up_s"):
        value = getattr(fault, name, None)
        if value is not None and not value > 0:
            said.append(f"{name} is a time above 0 s, not {value:g}")
    if isinstance(fault, Slow) and not 0 < fault.factor < inf:
        said.append(f"factor is above 0, not {fault.factor:g}")
    if isinstance(fault, Errors):
        if not 0 <= fault.share <= 1:
            said.append(f"share is from 0 to 1, not {fault.share:g}")
        if fault.status not in range(500, 600) and fault.status != 429:
            said.append(f"status is one that blames the replica (429 or 5xx), not {fault.status}")
    if isinstance(fault, Flap) and fault.times < 1:
        said.append(f"times is at least 1, not {fault.times}")
    return [f"fault {fault.__struct_config__.tag} of {fault.replica!r}: {each}" for each in said]
