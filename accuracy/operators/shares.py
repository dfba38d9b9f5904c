"""What do operators reach of an accelerator's figures? (`tidegate/data/operators.toml`)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from accuracy.operators import forms, tables
from accuracy.operators.forms import Fit
from tidegate.catalog.accelerators import Accelerator
from tidegate.catalog.catalog import Catalog
from tidegate.perf.shares import Shares

PRODUCT: Final = {"read": 0.8, "compute": 0.7, "product_s": 4e-6, "product_moves": 0.5}
DECODE: Final = {"launch_s": 1e-5, "cache": 0.8}
PREFILL: Final = {"launch_s": 1e-5, "prefill_attention": 0.6, "attended_tokens": 500.0}
EXPERTS: Final = {"launch_s": 3e-5, "expert_read": 0.8, "expert_compute": 0.5}
TILE: Final = 128.0
REDUCE: Final = {"reduce_s": 5e-6, "link": 0.7, "second_s": 8e-6}

HEAD: Final = """\
# What operators reach of their accelerator's figures (accelerators.toml), measured alone: shares, seconds.
# README.md says where from; `python -m accuracy.operators` writes this file.
"""


class Operators:
    """All of one accelerator, fitted."""

    def __init__(self, name: str) -> None:
        """By the catalogue's name."""
        self.name, self.device = name, Catalog.shipped().accelerator(name)
        device = self.device
        self.products = {
            each: forms.fitted(forms.product_s, rows, device, each, PRODUCT)
            for each, rows in tables.products(name).items()
        }
        self.decodes = {
            each: forms.fitted(forms.decode_s, rows, device, each, DECODE)
            for each, rows in tables.attention(name, "decode").items()
        }
        self.prefills = {
            each: forms.fitted(forms.prefill_s, rows, device, each, PREFILL)
            for each, rows in tables.attention(name, "prefill").items()
        }
        self.experts = {
            each: forms.fitted(experts_s, rows, device, each, EXPERTS)
            for each, rows in tables.experts(name).items()
        }
        self.reduces = {
            peers: forms.fitted(forms.reduce_s, rows, device, peers, REDUCE)
            for peers, rows in tables.reduces(name).items()
        }

    def shares(self) -> Shares:
        """As they ship."""
        return Shares(
            software=tables.SOFTWARE.get(self.name, tables.NEWER),
            **{name: _each(self.products, name) for name in PRODUCT},
            cache=_each(self.decodes, "cache"),
            prefill_attention=_each(self.prefills, "prefill_attention"),
            attended_tokens=_each(self.prefills, "attended_tokens"),
            expert_read=_each(self.experts, "expert_read"),
            expert_compute=_each(self.experts, "expert_compute"),
            expert_layer_s=_each(self.experts, "launch_s"),
            link=_each(self.reduces, "link"),
            reduce_s=_each(self.reduces, "reduce_s"),
        )


def experts_s(
    rows: tables.Columns, device: Accelerator, precision: str, each: Mapping[str, float]
) -> tables.Array:
    """With tiles of 128 tokens, and moved at half of the bandwidth: tables cannot tell these apart."""
    return forms.experts_s(rows, device, precision, {**each, "expert_tile": TILE, "expert_moves": 0.5})


def text(every: Mapping[str, Shares]) -> str:
    """Of the file, to three digits."""
    lines = [HEAD]
    for name, shares in every.items():
        lines += [f"[{name}]", f'software = "{shares.software}"']
        for field in shares.__struct_fields__[1:]:
            values = getattr(shares, field).items()
            inside = ", ".join(f"{key} = {_digits(value)}" for key, value in values)
            lines.append(f"{field} = {{ {inside} }}" if inside else f"{field} = {{}}")
        lines.append("")
    return "\n".join(lines)


def _each(fits: Mapping[str, Fit] | Mapping[int, Fit], name: str) -> dict[str, float]:
    return {str(key): fit.constants[name] for key, fit in fits.items()}


def _digits(value: float) -> str:
    if value < 1e-2:
        return f"{value:.3g}"
    return np.format_float_positional(value, 3, fractional=False, trim="0")
