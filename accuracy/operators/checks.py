"""Does the roofline, as it ships, meet each operator alone?

Its constants were fitted to whole deployments and never to these tables, but for what a launch takes: so this
is a check of the physics. Beside it stands how well the same form meets the table with constants of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from accuracy.operators import forms, tables
from accuracy.operators.forms import Fit, Form
from accuracy.operators.shares import Operators
from tidegate.perf.activations import STORED
from tidegate.perf.efficiencies import Efficiencies, efficiencies_of
from tidegate.perf.roofline import TWO_SHOT_S
from tidegate.perf.shares import adjusted, has_table
from tidegate.perf.work import COMPUTED


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Medians of absolute relative errors."""

    accelerator: str
    operator: str
    points: int
    shipped: float
    own: float
    """With constants fitted to this table."""


def checks() -> list[Check]:
    """Of all that was measured."""
    return [check for name in tables.SYSTEMS for check in _of(Operators(name))]


def _of(known: Operators) -> Iterator[Check]:
    name = known.name
    for precision, rows in tables.products(name).items():
        reached = _reached(name)
        each = {
            "read": reached.read[STORED.index(precision)],
            "compute": reached.compute[COMPUTED.index(precision)],
            "product_s": reached.product_s[STORED.index(precision)],
            "product_moves": reached.product_moves[STORED.index(precision)],
        }
        yield _check(known, f"products, {precision}", forms.product_s, rows, precision, known.products, each)
    for precision, rows in tables.attention(name, "decode").items():
        each = {"cache": _reached(name, precision).cache}
        yield _check(known, f"decoding, {precision}", forms.decode_s, rows, precision, known.decodes, each)
    for precision, rows in tables.attention(name, "prefill").items():
        reached = _reached(name)
        each = {field: getattr(reached, field) for field in ("prefill_attention", "attended_tokens")}
        yield _check(known, f"prompts, {precision}", forms.prefill_s, rows, precision, known.prefills, each)
    for precision, rows in tables.experts(name).items():
        each = _experts(_reached(name), precision)
        yield _check(known, f"experts, {precision}", forms.experts_s, rows, precision, known.experts, each)
    for peers, rows in tables.reduces(name).items():
        reached = _reached(name, peers=peers)
        each = {"reduce_s": reached.reduce_s, "link": reached.link, "second_s": TWO_SHOT_S}
        yield _check(known, f"all-reduce of {peers}", forms.reduce_s, rows, peers, known.reduces, each)


def _experts(reached: Efficiencies, precision: str) -> dict[str, float]:
    computed = COMPUTED.index(forms.computed(precision))
    return {
        "expert_read": reached.expert_read[STORED.index(precision)],
        "expert_compute": reached.expert_compute * reached.compute[computed],
        "expert_tile": reached.expert_tile,
        "expert_moves": reached.expert_moves,
    }


def _reached(accelerator: str, kv: str = "bf16", peers: int = 1) -> Efficiencies:
    if has_table(accelerator):
        return adjusted("vllm", accelerator, kv, peers)
    return efficiencies_of("vllm")


def _check(
    known: Operators,
    operator: str,
    form: Form,
    rows: tables.Columns,
    kind: Any,
    fits: Mapping[Any, Fit],
    each: Mapping[str, float],
) -> Check:
    launched = {"launch_s": fits[kind].constants.get("launch_s", 0.0)}
    predicted = form(rows, known.device, kind, {**launched, **each})
    return Check(
        accelerator=known.name,
        operator=operator,
        points=len(rows["seconds"]),
        shipped=forms.off(predicted, rows["seconds"]),
        own=fits[kind].error,
    )
