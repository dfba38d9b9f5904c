"""What ships is whole, sane, and says where it is from."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import msgspec
import pytest

from tests.catalog.shipped_models import SHIPPED, text
from tests.shared_data import shared
from tidegate.catalog.accelerators import Accelerator, Price
from tidegate.catalog.catalog import Catalog
from tidegate.catalog.precisions import PRECISIONS
from tidegate.core.errors import ConfigurationError

GIB = 2**30
CATALOG = Catalog.shipped()
FIGURES = {field.name for field in msgspec.structs.fields(Accelerator)}


def test_the_shipped_file_is_what_the_configs_give() -> None:
    """Nobody wrote in it by hand: `python -m tests.catalog.shipped_models` makes it."""
    shared("model-configs/model_configs.jsonl.gz")

    assert SHIPPED.read_bytes() == text()


def test_how_many_there_are() -> None:
    """And reading them twice costs nothing."""
    assert (len(CATALOG.accelerators), len(CATALOG.models)) == (24, 103)
    assert Catalog.shipped() is CATALOG


@pytest.mark.parametrize("accelerator", CATALOG.accelerators.values(), ids=lambda each: each.name)
def test_accelerators_are_sane(accelerator: Accelerator) -> None:
    """Figures are in the units that their names say, and each has a source."""
    assert 0.85 * accelerator.memory_bytes < accelerator.usable_bytes < accelerator.memory_bytes
    assert 1e11 < accelerator.bandwidth_bytes_per_s < 1e13
    assert set(accelerator.flops_per_s) <= set(PRECISIONS)
    assert 1e13 < accelerator.flops_per_s["bf16"] < 1e16
    assert 1e10 <= accelerator.link_bytes_per_s < 1e12
    assert 1e10 <= accelerator.node_link_bytes_per_s < 1e12
    assert 1e-6 <= accelerator.link_latency_s <= 1e-4
    assert accelerator.source
    assert accelerator.dated
    assert accelerator.sources.keys() <= FIGURES
    if accelerator.price is None:
        assert "no price was found" in accelerator.notes
    else:
        assert accelerator.price.source
        assert accelerator.price.dated
        assert (accelerator.price.low_usd is None) == (accelerator.price.high_usd is None)


def test_figures_are_those_of_their_source() -> None:
    """Every figure that an entry says is of a systems/*.yaml file is what that file has."""
    with Path(shared("gpu-catalogue/gpu_systems.csv")).open() as lines:
        rows = {row["system"]: row for row in csv.DictReader(lines)}
    columns = {
        "memory_bytes": "gpu_mem_capacity",
        "bandwidth_bytes_per_s": "gpu_mem_bw",
        "link_bytes_per_s": "node_intra_node_bw",
        "link_latency_s": "node_p2p_latency",
        "node_link_bytes_per_s": "node_inter_node_bw",
        "per_node": "node_num_gpus_per_node",
        "power_w": "gpu_power",
    }
    rates = {"bf16": "bfloat16", "fp8": "fp8", "int8": "int8", "fp4": "fp4"}
    entries = [
        (re.search(r"systems/(\w+)\.yaml", each.source), each) for each in CATALOG.accelerators.values()
    ]
    found = {match[1]: each for match, each in entries if match}

    assert found.keys() == rows.keys()
    for system, accelerator in found.items():
        row = rows[system]
        for figure, column in columns.items():
            if figure not in accelerator.sources:
                assert getattr(accelerator, figure) == float(row[column]), (system, figure)
        stated = {precision: row[f"gpu_{name}_tc_flops"] for precision, name in rates.items()}
        expected = {precision: float(rate) for precision, rate in stated.items() if rate}
        assert accelerator.flops_per_s == pytest.approx(expected, rel=1e-4), system


@pytest.mark.parametrize(
    "name, usable_gib",
    [("h100-sxm", 79.1), ("l40s", 45), ("rtx-4090", 23.52), ("a100-sxm", 79.14), ("h200-sxm", 139.41)],
)
def test_usable_memory(name: str, usable_gib: float) -> None:
    """What an engine is given is less than what is printed on the box."""
    assert CATALOG.accelerator(name).usable_bytes / GIB == pytest.approx(usable_gib, abs=0.01)


def test_models_say_where_they_are_from() -> None:
    """All of them, and the day."""
    assert all(model.source and model.dated for model in CATALOG.models.values())


def test_what_is_added_comes_first_and_replaces() -> None:
    """An entry of the same name is replaced, another joins, a price changes nothing else."""
    h100 = CATALOG.accelerator("h100")
    mine = msgspec.structs.replace(h100, memory_bytes=1)
    price = Price(per_hour_usd=1.5, source="contract", dated="2026-11-01")

    replaced = CATALOG.extended(accelerators=(mine,))
    assert replaced.accelerator("h100").memory_bytes == 1
    assert len(replaced.accelerators) == 24

    priced = CATALOG.extended(prices={"H100": price}).accelerator("h100")
    assert priced == msgspec.structs.replace(h100, price=price)
    assert CATALOG.accelerator("h100") == h100

    with pytest.raises(ConfigurationError, match="did you mean h100-sxm"):
        CATALOG.extended(prices={"h10": price})
