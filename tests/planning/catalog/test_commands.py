"""`tidegate catalog` lists what is known and shows all of one, to people and to programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.catalog import configs
from tidegate.catalog.catalog import Catalog
from tidegate.planning.catalog.commands import catalog_app

WIDE = {"COLUMNS": "200"}


def run(*arguments: str) -> Result:
    """The command, on a wide terminal."""
    return CliRunner().invoke(catalog_app, list(arguments), env=WIDE)


def data(*arguments: str) -> Any:
    """What it prints as JSON."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    "kind, accelerators, models", [(None, 24, 103), ("accelerators", 24, None), ("models", None, 103)]
)
def test_list(kind: str | None, accelerators: int | None, models: int | None) -> None:
    """One kind or both, and JSON has what the table has."""
    listed = data("list", *([kind] if kind else []))
    shown = run("list", *([kind] if kind else [])).stdout

    for name, count, example in (
        ("accelerators", accelerators, "h100-sxm"),
        ("models", models, "meta-llama/Llama-3.1-70B"),
    ):
        assert len(listed.get(name, [])) == (count or 0)
        assert (example in shown) == (count is not None)


def test_show_a_model() -> None:
    """Layers by kind, parameters, bytes per token."""
    shown = run("show", "gpt-oss-120b").stdout
    for text in (
        "18 layers  grouped, 64 heads, 8 KV heads of 64, window 128  4 of 128 experts of 2,880",
        "117B, 5.13B active",
        "fp4, attention in bf16",
        "36 KiB in bf16",
        "read on 2026-11-30",
    ):
        assert text in shown

    report = data("show", "gpt-oss-120b")
    assert report["parameters"] == pytest.approx(116.8e9, rel=0.001)
    assert report["kv_bytes_per_token"] == 18 * 2 * 8 * 64 * 2
    assert report["layers"][0]["attention"]["window_tokens"] == 128


@pytest.mark.parametrize(
    "name, kv_bytes_per_token",
    [
        ("Llama-3.1-70B", 320 * 1024),
        ("Llama-3.1-8B", 128 * 1024),
        ("deepseek-ai/DeepSeek-V3", 61 * 576 * 2),
        ("Qwen/Qwen3.5-397B-A17B", 15 * 2 * 2 * 256 * 2),  # three layers in four keep a state instead
    ],
)
def test_kv_bytes_per_token(name: str, kv_bytes_per_token: int) -> None:
    """Of the layers whose cache grows, in bf16."""
    assert data("show", name)["kv_bytes_per_token"] == kv_bytes_per_token


@pytest.mark.parametrize("name", Catalog.shipped().models)
def test_every_model_can_be_shown(name: str) -> None:
    """Whatever kinds of layers it has, there are words for them."""
    result = run("show", name)

    assert result.exit_code == 0
    assert "layers" in result.stdout


def test_show_an_accelerator() -> None:
    """Every figure with its source and its day, the price with its range."""
    shown = run("show", "h100").stdout
    assert "NVIDIA H100 SXM (h100-sxm)" in shown
    assert "3.99 USD/h (2.69 to 12.29)" in shown
    assert "also: h100," in shown

    for name in Catalog.shipped().accelerators:
        report = data("show", name)
        figures = {"memory_bytes", "usable_bytes", "bandwidth_bytes_per_s", "flops_per_s", "link_bytes_per_s"}
        assert figures <= report["sources"].keys()
        assert report["sources"].keys() == report["dates"].keys()
        assert all(report["sources"].values())
        assert all(report["dates"].values())


def test_a_file_of_the_user(tmp_path: Path) -> None:
    """`--catalog` adds to both verbs, and `show` takes the path of a config.json."""
    (tmp_path / "my.yaml").write_text("accelerators: {ours: {like: h100, title: '[bold]\\e[31m'}}")
    (tmp_path / "config.json").write_text(json.dumps(configs.LLAMA))
    file = str(tmp_path / "my.yaml")

    assert data("list", "accelerators", "--catalog", file)["accelerators"][0]["name"] == "ours"
    assert data("show", str(tmp_path / "config.json"))["hidden"] == 256
    shown = run("show", "ours", "--catalog", file).stdout
    assert "\x1b" not in shown
    assert "[bold]" in shown


@pytest.mark.parametrize(
    "arguments, problem",
    [
        (["show", "h101"], 'accelerator "h101" is not in the catalogue; did you mean h100-sxm?'),
        (["show", "Llama-3.1-71B"], 'model "Llama-3.1-71B" is not in the catalogue; did you mean'),
        (["show", "zzz"], "`tidegate catalog list` shows what is, and --catalog FILE adds to it"),
        (["show", "nowhere.json"], "nowhere.json: cannot be read"),
        (["list", "gpus"], "'gpus' is no kind of entry; write accelerators or models"),
        (["list", "--catalog", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
    ],
)
def test_what_cannot_be(arguments: list[str], problem: str) -> None:
    """A line on stderr and exit status 2; with --json the same as data."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert problem in result.stderr

    result = run(*arguments, "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["problems"][0]["remedy" if ";" in problem else "problem"]
