"""What ships is whole, sane, and says where it is from."""

from __future__ import annotations

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
