"""Which efficiencies make the planner agree with the rows that may be fitted?

Weighted least squares on the logarithms of TPOT and TTFT, robust against single rows (soft L1), with a prior
for each constant: what operators measured alone say, or what others found. Priors keep apart what the rows
hardly tell apart (a slow link from a slow layer), and stand where a left-out accelerator was all there was.
Source of the method: scipy's `least_squares`, trust region.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Any, Final, NamedTuple

import numpy as np
from scipy.optimize import least_squares

from accuracy.planner.arrays import Array, Fleet, predicted
from tidegate.perf.activations import STORED
from tidegate.perf.deployment import SOFTWARE
from tidegate.perf.efficiencies import Efficiencies, Waiting, efficiencies_of, waiting_of
from tidegate.perf.work import COMPUTED

Constants = Mapping[str, float]

TTFT_WEIGHT: Final = 0.4
"""TPOT is known better, and more depends on it."""
DENSE_WEIGHT: Final = 4.0
TPOT_WEIGHT_OF_WAITING: Final = 0.3
PRIOR_WEIGHT_OF_WAITING: Final = 0.5
SOFT: Final = 0.1
"""Errors above it count linearly."""
PRIOR_WEIGHT: Final = 0.3
"""A constant one standard deviation off its prior costs as much as this error in one row."""


class Prior(NamedTuple):
    """Where a constant is expected, and the standard deviation of its logarithm."""

    value: float
    spread: float


PRIORS: Final[dict[str, Prior]] = {
    # Median shares that vLLM's operators reach on A100, H100, H200, B200, L40S and RTX PRO 6000 by themselves
    # (../shared/data/engine-ops-aiconfigurator), and what is usual: 0.8 of the bandwidth.
    "read.bf16": Prior(0.80, 0.15),
    "read.fp8": Prior(0.75, 0.2),
    "read.int4": Prior(0.65, 0.3),
    "read.fp4": Prior(0.65, 0.3),
    "compute.bf16": Prior(0.80, 0.1),
    "compute.fp8": Prior(0.80, 0.2),
    "compute.fp4": Prior(0.53, 0.3),
    "product_moves.fp8": Prior(0.25, 0.2),
    "product_moves.fp4": Prior(0.60, 0.2),
    "between": Prior(0.6, 0.1),
    "expert_moves": Prior(0.5, 0.4),
    "expert_read.bf16": Prior(0.8, 0.3),
    "expert_read.fp8": Prior(0.8, 0.3),
    "expert_read.int4": Prior(0.65, 0.3),
    "expert_read.fp4": Prior(0.8, 0.3),
    "expert_compute": Prior(0.5, 0.4),
    "expert_tile": Prior(32.0, 0.5),
    "cache": Prior(0.85, 0.2),
    "decode_attention": Prior(0.3, 0.5),
    "prefill_attention": Prior(0.65, 0.2),
    "attended_tokens": Prior(600.0, 0.4),
    "link": Prior(0.75, 0.08),
    "reduce_s": Prior(7e-6, 0.4),  # custom all-reduce of 256 bytes: 4.3 to 7.4 us, and devices do not meet
    "step_s": Prior(1e-3, 1.0),
    "queue": Prior(0.5, 0.7),
    "beside": Prior(1.0, 0.15),
    "behind": Prior(2.5, 0.3),
    "in_step_tokens": Prior(600.0, 0.5),
    **{f"layer_s.{software}": Prior(1.5e-5, 0.7) for software in SOFTWARE},
    **{f"expert_layer_s.{software}": Prior(2e-5, 0.7) for software in SOFTWARE},
    **{f"sequence_s.{software}": Prior(1e-5, 1.0) for software in SOFTWARE},
    **{f"overhead_s.{software}": Prior(0.02, 1.0) for software in SOFTWARE},
    **{f"steps.{software}": Prior(4.0, 1.0) for software in SOFTWARE},
}
START: Final = {name: prior.value for name, prior in PRIORS.items()}
KNOWN: Final = {
    # As operators alone have it (docs/accuracy.md); four bits that are computed in 16 are not quantised.
    "product_s.bf16": 4e-6,
    "product_s.fp8": 6.4e-6,
    "product_s.int4": 4e-6,
    "product_s.fp4": 7.7e-6,
    "product_moves.bf16": 1.0,
    "product_moves.int4": 1.0,
    # Prompts of 0.8 to 1 of the nominal lengths, as InferenceMAX has them.
    "alone": 0.9,
    # An engine that computes prompts before all that decodes keeps clients together; others do not.
    "together.vllm": 0.0,
    "together.sglang": 1.0,
    "together.trtllm": 0.0,
}
"""Constants that are not fitted."""
WAITING: Final = tuple(
    name
    for name in PRIORS
    if name.split(".")[0] in ("overhead_s", "steps", "queue", "behind", "in_step_tokens")
)


LISTED: Final = {
    "read": STORED,
    "product_s": STORED,
    "product_moves": STORED,
    "expert_read": STORED,
    "compute": COMPUTED,
}
"""By precision."""
OWN: Final = ("layer_s", "expert_layer_s", "sequence_s", "overhead_s", "steps", "together")
"""Of each engine's software."""


def shipped() -> dict[str, float]:
    """What `tidegate.perf.efficiencies` has, under the names of `PRIORS` and `KNOWN`."""
    constants: dict[str, float] = {}
    for software in SOFTWARE:
        for values in (efficiencies_of(software), waiting_of(software)):
            for name in values.__struct_fields__:
                value = getattr(values, name)
                if name in OWN:
                    constants[f"{name}.{software}"] = value
                elif of := LISTED.get(name):
                    constants |= {f"{name}.{each}": share for each, share in zip(of, value, strict=True)}
                elif name != "output_reserved":
                    constants[name] = value
    return constants


class Software(NamedTuple):
    """Rows by software: one array of 0 and 1 for each."""

    shares: tuple[Array, ...]

    def of(self, constants: Constants, name: str) -> Array:
        """Each row's own."""
        each = zip(SOFTWARE, self.shares, strict=True)
        return np.asarray(sum(share * constants[f"{name}.{software}"] for software, share in each))


def software_of(fleet: Fleet) -> Software:
    """Of its rows."""
    names = [row.software for row in fleet.rows]
    return Software(tuple(np.array([float(name == each) for name in names]) for each in SOFTWARE))


def efficiencies(constants: Constants, software: Software) -> Efficiencies:
    """As the planner wants them, for each row."""
    values: dict[str, Any] = {}
    for name in Efficiencies.__struct_fields__:
        if of := LISTED.get(name):
            values[name] = tuple(constants[f"{name}.{each}"] for each in of)
        elif name in OWN:
            values[name] = software.of(constants, name)
        else:
            values[name] = constants[name]
    return Efficiencies(**values)


def waiting(constants: Constants, software: Software) -> Waiting:
    """Likewise."""
    names = (name for name in Waiting.__struct_fields__ if name != "output_reserved")
    each = {name: software.of(constants, name) if name in OWN else constants[name] for name in names}
    return Waiting(**each)  # type: ignore[arg-type]


class Measured(NamedTuple):
    """A fleet with what was measured of it."""

    fleet: Fleet
    software: Software
    ttft_s: Array
    tpot_s: Array


def measured(fleet: Fleet) -> Measured:
    """Of its rows."""
    return Measured(
        fleet,
        software_of(fleet),
        np.array([row.ttft_s for row in fleet.rows]),
        np.array([row.tpot_s for row in fleet.rows]),
    )


def paces_of(known: Measured, constants: Constants) -> tuple[Array, Array]:
    """TTFT and TPOT."""
    return predicted(known.fleet, efficiencies(constants, known.software), waiting(constants, known.software))


def fitted(known: Measured, most: int = 30) -> dict[str, float]:
    """The constants that meet these rows best, in two passes: all, and then those of waiting alone.

    In the second, dense rows count for more, for it is they that TTFT is judged by.
    """
    every = _searched(known, {**START, **KNOWN}, tuple(PRIORS), most)
    return _searched(known, every, WAITING, most, dense_weight=DENSE_WEIGHT)


def _searched(
    known: Measured, start: Constants, names: Sequence[str], most: int, dense_weight: float | None = None
) -> dict[str, float]:
    centre = np.array([log(PRIORS[name].value) for name in names])
    spread = np.array([PRIORS[name].spread for name in names])
    tpot, ttft, prior = (1.0, TTFT_WEIGHT, PRIOR_WEIGHT)
    weights = np.full(len(known.tpot_s), ttft)
    if dense_weight is not None:
        tpot, prior = TPOT_WEIGHT_OF_WAITING, PRIOR_WEIGHT_OF_WAITING
        weights = np.where([row.dense for row in known.fleet.rows], dense_weight, 1.0)

    def errors(logs: Array) -> Array:
        constants = {**start, **dict(zip(names, np.exp(logs), strict=True))}
        ttft_s, tpot_s = paces_of(known, constants)
        return np.concatenate(
            [
                tpot * np.log(tpot_s / known.tpot_s),
                weights * np.log(ttft_s / known.ttft_s),
                prior * (logs - centre) / spread,
            ]
        )

    soft = SOFT if dense_weight is None else SOFT / 2
    begin = np.array([log(start[name]) for name in names])
    found = least_squares(errors, begin, loss="soft_l1", f_scale=soft, max_nfev=most, xtol=1e-4, ftol=1e-5)
    return {**start, **dict(zip(names, map(float, np.exp(found.x)), strict=True))}


FACTORS: Final = {
    "read": ("read.", "expert_read.", "cache"),
    "compute": ("compute.", "prefill_attention", "product_moves.", "between", "expert_moves"),
    "layers": ("layer_s.", "expert_layer_s.", "step_s", "reduce_s"),
    "waiting": ("steps.", "overhead_s."),
}
"""What is calibrated for a GPU and an engine: four multipliers of constants that belong together."""
FACTOR_SPREAD: Final = 0.3
FACTOR_WEIGHT: Final = 0.15


def scaled(constants: Constants, factors: Constants) -> dict[str, float]:
    """Each constant times the factor that it belongs to."""
    found = dict(constants)
    for name, beginnings in FACTORS.items():
        for constant in found:
            if constant.startswith(beginnings):
                found[constant] *= factors[name]
    return found


def calibrated(known: Measured, constants: Constants) -> dict[str, float]:
    """The factors with which a group's rows are met best."""

    def errors(logs: Array) -> Array:
        factors = dict(zip(FACTORS, np.exp(logs), strict=True))
        ttft_s, tpot_s = paces_of(known, scaled(constants, factors))
        misses = [np.log(tpot_s / known.tpot_s), TTFT_WEIGHT * np.log(ttft_s / known.ttft_s)]
        return np.concatenate([*misses, FACTOR_WEIGHT * logs / FACTOR_SPREAD])

    found = least_squares(errors, np.zeros(len(FACTORS)), loss="soft_l1", f_scale=SOFT / 2, max_nfev=30)
    return dict(zip(FACTORS, map(float, np.exp(found.x)), strict=True))
