"""docs/guides/catalog.md says what there is, and its examples work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from tests.server_process import REPOSITORY
from tidegate.catalog.accelerators import Accelerator
from tidegate.catalog.catalog import Catalog
from tidegate.catalog.models import Attention, FeedForward
from tidegate.cli import command_line
from tidegate.planning.catalog.commands import entry_named
from tidegate.planning.catalog.files import parse_catalog

GUIDE = (REPOSITORY / "docs" / "guides" / "catalog.md").read_text()
CATALOG = Catalog.shipped()


def blocks(language: str) -> list[str]:
    """The guide's code in that language."""
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def test_its_commands_are_commands() -> None:
    """What it prints can be typed."""
    for line in (line for block in blocks("sh") for line in block.splitlines()):
        name, *arguments = shlex.split(line)
        assert name == "tidegate"
        assert CliRunner().invoke(command_line(["catalog", "config"]), arguments).exit_code == 0, line


def test_its_counts() -> None:
    """As many as it says."""
    assert f"{len(CATALOG.models)} models and {len(CATALOG.accelerators)}\naccelerators" in GUIDE


def test_its_names() -> None:
    """Each finds what the guide says."""
    _, _, table = GUIDE.partition("| you write | it means |")
    rows = re.findall(r"^\| `(.*?)` \| `(.*?)` \|$", table.partition("\n\n")[0], re.MULTILINE)

    assert len(rows) == 5
    for written, meant in rows:
        assert entry_named(written, CATALOG).name == meant


def test_its_file_is_one(tmp_path: Path) -> None:
    """It loads upon what ships, and does what its comments say."""
    (text,) = blocks("yaml")
    catalog = parse_catalog(text, "my.yaml", CATALOG, base=tmp_path)

    ours, h100 = catalog.accelerator("our-h100"), CATALOG.accelerator("h100")
    assert ours.bandwidth_bytes_per_s == h100.bandwidth_bytes_per_s
    assert ours.usable_bytes == 84_000_000_000
    assert catalog.accelerator("l40s").sources["bandwidth_bytes_per_s"] == "measured here"
    assert catalog.model("assistant-8b").layers == CATALOG.model("llama-3.1-8b").layers
    price = catalog.accelerator("h200").price
    assert price is not None
    assert price.per_hour_usd == 3.10


def test_every_figure_of_an_accelerator_is_described() -> None:
    """Those that count; texts and the price's own parts explain themselves."""
    for field in msgspec.structs.fields(Accelerator):
        numeric = field.type in (int, float) or field.name in ("flops_per_s", "price", "power_w")
        assert not numeric or f"`{field.name}`" in GUIDE, field.name


@pytest.mark.parametrize("kind", [*Attention.__args__, *FeedForward.__args__], ids=lambda kind: kind.__name__)
def test_every_kind_of_layer_is_described(kind: type[msgspec.Struct]) -> None:
    """With every field of it, in the row of its type."""
    (row,) = re.findall(rf"^\| `{kind.__struct_config__.tag}` \|.*$", GUIDE, re.MULTILINE)

    for field in kind.__struct_fields__:
        assert f"`{field}`" in row, field
