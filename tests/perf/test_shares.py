"""Operators that were measured alone, where no deployment was."""

from __future__ import annotations

import pytest

from tests.perf.shapes import LLAMA_8B
from tidegate.catalog.catalog import Catalog
from tidegate.perf.deployment import Deployment
from tidegate.perf.efficiencies import efficiencies_of
from tidegate.perf.roofline import curve_of
from tidegate.perf.shares import FITTED, has_table, measured, reached_on
from tidegate.perf.work import COMPUTED


def on(name: str, **settings: object) -> Deployment:
    """8B in 16 bits."""
    accelerator = Catalog.shipped().accelerator(name)
    return Deployment(model=LLAMA_8B, accelerator=accelerator, weights="bf16", **settings)  # type: ignore[arg-type]


def test_tables_are_of_accelerators_that_the_catalogue_has() -> None:
    """Shares are shares, and launches take microseconds."""
    assert set(FITTED) < set(measured())
    for name, shares in measured().items():
        assert Catalog.shipped().accelerator(name).name == name
        for field in ("read", "compute", "product_moves", "cache", "prefill_attention", "link"):
            assert all(0 < share <= 1 for share in getattr(shares, field).values()), (name, field)
        assert all(1e-6 <= each <= 1e-4 for each in (*shares.product_s.values(), *shares.reduce_s.values()))


@pytest.mark.parametrize("name", [*FITTED, "b300-sxm", "rtx-4090", "mi300x"])
def test_where_deployments_were_measured_or_nothing_was_efficiencies_are_shared(name: str) -> None:
    """Those of the engine's software."""
    assert not has_table(name)
    assert reached_on(on(name)) == efficiencies_of("vllm")


def test_an_a100_reads_more_slowly_and_computes_better_than_its_figures_say() -> None:
    """0.73 of its bandwidth where others read at 0.84; 0.93 of its peak where others compute at 0.85."""
    shared, own = efficiencies_of("vllm"), reached_on(on("a100-sxm"))
    shares = measured()
    others = [shares[name] for name in FITTED]
    read = shares["a100-sxm"].read["bf16"] / (sum(each.read["bf16"] for each in others) / len(others))

    assert own.read[0] == pytest.approx(shared.read[0] * read)
    assert own.read[0] < 0.9 * shared.read[0]
    assert own.compute[COMPUTED.index("bf16")] > 1.05 * shared.compute[0]
    assert own.layer_s == shared.layer_s


def test_all_reduces_over_pcie_are_slower_the_more_devices_there_are() -> None:
    """Eight L40S reach a tenth of what two do, which a link's rate alone does not tell."""
    two, four, eight = (reached_on(on("l40s", tp=tp)).link for tp in (2, 4, 8))
    assert two > 4 * four > 6 * eight
    assert eight == pytest.approx(two / 9.4, rel=0.1)
    assert reached_on(on("l40s", tp=8)).reduce_s > 3 * reached_on(on("l40s", tp=2)).reduce_s


def test_better_efficiencies_come_first() -> None:
    """Whoever has calibrated an engine has measured its accelerator as well."""
    deployment = on("a100-sxm")
    shared = curve_of(deployment, efficiencies_of("vllm"))
    assert curve_of(deployment).step_s(1, 100.0) > 1.05 * shared.step_s(1, 100.0)
