"""How long does an operator take, by the terms that the planner's step is a sum of?

Each form has the constants that `tidegate.perf.efficiencies` has, and is what `tidegate.perf.roofline` makes
of it, for one operator and one layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from scipy.optimize import least_squares

from accuracy.operators.tables import Array, Columns
from tidegate.catalog.accelerators import Accelerator
from tidegate.perf.activations import ELEMENT_BYTES
from tidegate.perf.precisions import KV_BITS, weight_bytes
from tidegate.perf.roofline import either

HEAD_DIM: Final = 128
"""Of all attention that was measured."""
SOFT: Final = 0.1
"""Errors above it count linearly."""
SHARE: Final = (0.01, 1.0)
BOUNDS: Final = {
    "product_s": (1e-6, 1e-3),
    "launch_s": (1e-6, 1e-3),
    "reduce_s": (1e-6, 1e-3),
    "second_s": (1e-7, 1e-3),
    "attended_tokens": (1.0, 1e4),
}
"""Of what is no share. No kernel is launched in less than a microsecond."""
Form = Callable[[Columns, Accelerator, Any, Mapping[str, float]], Array]


class Fit(NamedTuple):
    """Constants, and how far off the form is with them: medians of absolute relative errors."""

    constants: dict[str, float]
    error: float


def product_s(rows: Columns, device: Accelerator, precision: str, each: Mapping[str, float]) -> Array:
    """A launch, weights or products, inputs and outputs."""
    size = rows["outputs"] * rows["inputs"]
    reading_s = size * weight_bytes(precision) / (each["read"] * device.bandwidth_bytes_per_s)
    computing_s = 2 * rows["tokens"] * size / (each["compute"] * peak(device, precision))
    moved = rows["tokens"] * (rows["outputs"] + rows["inputs"]) * ELEMENT_BYTES
    moving_s = moved / (each["product_moves"] * device.bandwidth_bytes_per_s)
    return each["product_s"] + _either(reading_s, computing_s) + moving_s


def decode_s(rows: Columns, device: Accelerator, precision: str, each: Mapping[str, float]) -> Array:
    """A launch, and the cache."""
    pairs = rows["batch"] * rows["tokens"] * rows["kv_heads"]
    read = pairs * 2 * HEAD_DIM * KV_BITS[precision] / 8
    return each["launch_s"] + read / (each["cache"] * device.bandwidth_bytes_per_s)


def prefill_s(rows: Columns, device: Accelerator, precision: str, each: Mapping[str, float]) -> Array:
    """A launch, and products with what is before, as if there were some tokens more of it."""
    before = rows["tokens"] / 2 + each["attended_tokens"]
    flops = rows["batch"] * rows["tokens"] * before * 4 * HEAD_DIM * rows["heads"]
    return each["launch_s"] + flops / (each["prefill_attention"] * peak(device, "bf16"))


def experts_s(rows: Columns, device: Accelerator, precision: str, each: Mapping[str, float]) -> Array:
    """A launch, weights of experts that any token chooses, or products with tiles filled up; tokens moved.

    Tokens choose evenly here, each other experts as far as there are some.
    """
    size = 3 * rows["hidden"] * rows["size"] / rows["parts"]
    here = rows["count"] / rows["groups"]
    pairs = rows["tokens"] * rows["chosen"] / rows["groups"]
    touched = np.minimum(here, rows["tokens"] * rows["chosen"])
    rate, flops_per_s = device.bandwidth_bytes_per_s, peak(device, computed(precision))
    reading_s = touched * size * weight_bytes(precision) / (each["expert_read"] * rate)
    filled = pairs + touched * each["expert_tile"] / 2
    computing_s = filled * 2 * size / (each["expert_compute"] * flops_per_s)
    moved = pairs * (2 * rows["hidden"] + 3 * rows["size"] / rows["parts"]) * ELEMENT_BYTES
    return each["launch_s"] + _either(reading_s, computing_s) + moved / (each["expert_moves"] * rate)


def reduce_s(rows: Columns, device: Accelerator, peers: int, each: Mapping[str, float]) -> Array:
    """All to all at once, or in two exchanges, whichever is sooner."""
    sent_s = rows["sent_bytes"] / (device.link_bytes_per_s * each["link"])
    two_s = each["second_s"] + 2 * (peers - 1) / peers * sent_s
    return each["reduce_s"] + np.minimum((peers - 1) * sent_s, two_s)


def peak(device: Accelerator, precision: str) -> float:
    """Of the products."""
    return device.flops_per_s.get(precision) or device.flops_per_s["bf16"]


def computed(precision: str) -> str:
    """Four bits that are only stored are computed in 16."""
    return "bf16" if precision == "int4" else precision


def fitted(form: Form, rows: Columns, device: Accelerator, kind: Any, start: Mapping[str, float]) -> Fit:
    """The constants that meet these rows best, within `BOUNDS`."""
    names = tuple(start)
    bounds = np.log([BOUNDS.get(name, SHARE) for name in names]).T

    def errors(logs: Array) -> Array:
        predicted = form(rows, device, kind, dict(zip(names, np.exp(logs), strict=True)))
        return np.log(predicted / rows["seconds"])

    begin = np.log(list(start.values()))
    found = least_squares(
        errors, begin, bounds=(bounds[0], bounds[1]), loss="soft_l1", f_scale=SOFT, max_nfev=200
    )
    constants = dict(zip(names, map(float, np.exp(found.x)), strict=True))
    return Fit(constants, off(form(rows, device, kind, constants), rows["seconds"]))


def off(predicted: Array, measured: Array) -> float:
    """The median of absolute relative errors."""
    return float(np.median(np.abs(predicted / measured - 1)))


def _either(one: Array, other: Array) -> Array:
    return either(one, other)  # type: ignore[arg-type,return-value]
