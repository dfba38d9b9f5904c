"""What ships is whole, sane, and says where it is from."""

from __future__ import annotations

import csv
import re
from datetime import date
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
    "name, usable_gib, shown_mib",
    [
        ("h100-sxm", 79.1, 81_559),
        ("l40s", 45, 46_068),
        ("rtx-4090", 23.52, 24_564),
        ("a100-sxm", 79.14, 81_920),
        ("h200-sxm", 139.72, 143_771),
        ("b200-sxm", 178.35, 183_359),
        ("l4", 22.03, 23_034),
        ("t4", 14.56, 15_360),
        ("rtx-pro-6000", 94.96, 97_887),
    ],
)
def test_usable_memory(name: str, usable_gib: float, shown_mib: int) -> None:
    """What an engine is given is less than what is printed on the box, and up to 0.9 GiB less than nvidia-smi
    shows (in MiB, as public logs and modal-labs/modal-client pull 2797 have it).
    """
    usable = CATALOG.accelerator(name).usable_bytes / GIB

    assert usable == pytest.approx(usable_gib, abs=0.01)
    assert -0.02 < shown_mib / 1024 - usable < 0.9


@pytest.mark.parametrize(
    "names, precision, other, ratio",
    [
        (("h100-sxm", "h100-pcie", "h200-sxm"), "fp8", "bf16", 2),
        (("l4", "l40s", "rtx-4090", "rtx-pro-6000"), "fp8", "bf16", 2),
        (("b200-sxm", "gb200", "b300-sxm", "gb300", "mi300x", "mi325x"), "fp8", "bf16", 2),
        (("b200-sxm", "gb200", "rtx-pro-6000"), "fp4", "fp8", 2),
        (("b300-sxm", "gb300"), "fp4", "fp8", 3),  # Blackwell Ultra: 1.5 times what Blackwell does in fp4
        (("a100-sxm", "a100-pcie", "a100-40", "a30", "a10g", "t4"), "int8", "bf16", 2),
        (("tpu-v5e", "tpu-v5p", "tpu-v6e"), "int8", "bf16", 2),
        (("gaudi-3", "b60"), "fp8", "bf16", 1),
    ],
)
def test_rates_are_dense_and_in_proportion(
    names: tuple[str, ...], precision: str, other: str, ratio: float
) -> None:
    """Half the bits are twice the rate where the cores have them: a rate with sparsity beside a dense one,
    which is the usual mistake, would be 4 or 1.
    """
    for name in names:
        rates = CATALOG.accelerator(name).flops_per_s
        assert rates[precision] / rates[other] == pytest.approx(ratio, rel=0.07), name


@pytest.mark.parametrize(
    "name, bandwidth_gb_per_s, dense_tflops",
    [
        ("a100-sxm", 2039, 312),
        ("h100-sxm", 3350, 989.4),  # NVIDIA's Hopper white paper, table 1: 1,978.9 are sparse
        ("h100-pcie", 2000, 756),  # the same table: 1,513 are sparse
        ("h200-sxm", 4800, 989.4),
        ("b200-sxm", 7672, 2250),  # pytorch/ao: a bus of 7,680 bits at 3,996 MHz
        ("mi300x", 5300, 1307),  # AMD's data sheet, page 1
        ("l40s", 864, 362),
        ("rtx-pro-6000", 1597, 467.8),  # the Server Edition: 1,792 GB/s are the Workstation Edition's
        ("rtx-4090", 1008, 165.2),  # NVIDIA's Ada white paper, appendix A, accumulated in fp32
        ("a10g", 600, 70),
        ("gaudi-3", 3700, 1678),
    ],
)
def test_figures_of_makers(name: str, bandwidth_gb_per_s: float, dense_tflops: float) -> None:
    """What the data sheets say, within what they round."""
    accelerator = CATALOG.accelerator(name)

    assert accelerator.bandwidth_bytes_per_s / 1e9 == pytest.approx(bandwidth_gb_per_s, rel=0.005)
    assert accelerator.flops_per_s["bf16"] / 1e12 == pytest.approx(dense_tflops, rel=0.002)


@pytest.mark.parametrize(
    "name, bf16, fp8, int8, fp4",
    [
        ("gb200", 2500, 5000, 5000, 10_000),
        ("b200-sxm", 2250, 4500, 4500, 9000),
        ("gaudi-3", 1677, 1677, None, None),
        ("mi325x", 1307, 2614, None, None),
        ("mi300x", 1307, 2614, None, None),
        ("h200-sxm", 989, 1979, 1979, None),
        ("h100-sxm", 989, 1979, 1979, None),
        ("h100-pcie", 756, 1513, 1513, None),
        ("tpu-v5p", 459, None, 918, None),
        ("l40s", 362, 733, 733, None),
        ("a100-sxm", 312, None, 624, None),
        ("a100-pcie", 312, None, 624, None),
        ("tpu-v5e", 197, None, 394, None),
    ],
)
def test_rates_of_a_public_table(
    name: str, bf16: float, fp8: float | None, int8: float | None, fp4: float | None
) -> None:
    """Dense TFLOPS of stas00/ml-engineering, compute/accelerator at b9e2972; MI300X and MI325X, which it cuts
    to 1,300, as it computes them from their clock.
    """
    rates = CATALOG.accelerator(name).flops_per_s
    found = {precision: rate / 1e12 for precision, rate in rates.items()}

    for precision, tflops in {"bf16": bf16, "fp8": fp8, "int8": int8, "fp4": fp4}.items():
        assert found.get(precision) == (None if tflops is None else pytest.approx(tflops, rel=0.003))


@pytest.mark.parametrize("accelerator", CATALOG.accelerators.values(), ids=lambda each: each.name)
def test_nothing_is_guessed(accelerator: Accelerator) -> None:
    """No usable memory is derived, a link to the host has a source and is below that to other devices, and
    a price is one of a day, within the range of the others.
    """
    price, host = accelerator.price, accelerator.host_link_bytes_per_s

    assert "derived" not in " ".join((*accelerator.sources.values(), accelerator.source))
    assert (host is None) == ("host_link_bytes_per_s" not in accelerator.sources)
    assert (host or 0) <= accelerator.link_bytes_per_s
    for dated in (accelerator.dated, *accelerator.dates.values(), *([price.dated] if price else [])):
        assert date(2024, 1, 1) < date.fromisoformat(dated) <= date(2026, 11, 30)
    if price is not None and price.low_usd is not None and price.high_usd is not None:
        assert price.low_usd <= price.per_hour_usd <= price.high_usd
        assert any(note.startswith("price range: ") for note in accelerator.notes)


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
