"""Operators measured alone: what is read of the tables, what they reach, and what ships of it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from accuracy.operators import forms, tables
from accuracy.operators.__main__ import FILE
from accuracy.operators.forms import product_s
from accuracy.operators.ratios import _predicted, _times
from accuracy.operators.shares import PRODUCT, Operators, text
from tidegate.catalog.catalog import Catalog
from tidegate.perf.efficiencies import efficiencies_of
from tidegate.perf.shares import measured

PLANNER = json.loads((Path(__file__).parents[2] / "docs" / "accuracy.json").read_bytes())["planner"]
A100 = Catalog.shipped().accelerator("a100-sxm")


def test_the_unit_of_an_all_reduce_is_an_element() -> None:
    """Eight A100 then reach 228 GB/s on the bus, of 300 in one direction."""
    rows = tables.reduces("a100-sxm")[8]
    sent, seconds = rows["sent_bytes"][-1], rows["seconds"][-1]
    assert 2 * 7 / 8 * sent / seconds == pytest.approx(228e9, rel=0.08)
    assert sent == 2**27 * 2


def test_constants_are_found_again() -> None:
    """Of a table that the form itself has made."""
    rows = tables.products("a100-sxm")["bf16"]
    each = {"read": 0.7, "compute": 0.9, "product_s": 5e-6, "product_moves": 0.4}
    made = {**rows, "seconds": product_s(rows, A100, "bf16", each)}
    found = forms.fitted(product_s, made, A100, "bf16", PRODUCT)

    assert found.constants == pytest.approx(each, rel=1e-3)
    assert found.error < 1e-3


def test_an_operator_takes_a_launch_at_least_and_its_bytes_and_products() -> None:
    """8192 x 8192 in 16 bits at 0.73 of 2.039 TB/s: 90 us for one token; 3.5 ms for 8192 at the peak."""
    each = {"read": 0.73, "compute": 1.0, "product_s": 5e-6, "product_moves": 1.0}
    rows = {"tokens": np.array([1.0, 8192.0]), "outputs": np.array([8192.0]), "inputs": np.array([8192.0])}
    few, many = product_s(rows, A100, "bf16", each)
    assert few == pytest.approx(5e-6 + 2 * 8192**2 / (0.73 * 2.039e12), rel=0.001)
    assert many == pytest.approx(5e-6 + 2 * 8192**3 / 312e12 + 8192 * 2 * 8192 * 2 / 2.039e12, rel=0.001)


def test_what_ships_of_an_accelerator_is_what_its_tables_say() -> None:
    """A100, made anew; the file says no more than that of each accelerator."""
    made = text({"a100-sxm": Operators("a100-sxm").shares()})
    shipped = FILE.read_text(encoding="utf-8")
    assert (
        made.partition("[a100-sxm]")[2].strip()
        == shipped.partition("[a100-sxm]")[2].partition("[l40s]")[0].strip()
    )
    assert set(measured()) == set(tables.SYSTEMS)


def test_tables_bring_a_plan_for_a100_nearer_to_what_was_measured() -> None:
    """How much longer than on H100 a batch takes: off by 4 to 9 %, without tables by 7 to 18 %."""
    for each in PLANNER["ratios"]:
        assert each["error_with_table"] < 0.1
        assert each["error_with_table"] < 1.2 * each["error_without"]
    times = _times()
    case = next(case for case in times["Nvidia A100 GPU"] if case in times["Nvidia H100 GPU"])
    with_table, without = _predicted(case, lambda _: None), _predicted(case, efficiencies_of)
    assert with_table > without > 1


def test_the_roofline_meets_operators_that_it_was_not_fitted_to() -> None:
    """Matrix products, decoding and prompts of the accelerators with deployments: medians to 21 % at most."""
    kinds = ("products", "decoding", "prompts")
    found = [
        each
        for each in PLANNER["operators"]
        if each["operator"].startswith(kinds) and each["accelerator"] in ("h100-sxm", "h200-sxm", "b200-sxm")
    ]
    assert len(found) == 19
    assert max(each["shipped"] for each in found) < 0.21
    assert np.median([each["shipped"] for each in found]) < 0.1


def test_shares_are_written_to_three_digits() -> None:
    """And read again as they are."""
    shares = measured()["l40s"]
    written = text({"l40s": shares})
    assert 'software = "vLLM 0.24.0"' in written
    assert msgspec.toml.decode(written) == {"l40s": msgspec.to_builtins(shares)}
