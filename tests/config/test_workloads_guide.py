"""docs/guides/workloads.md says what there is, and its examples work."""

from __future__ import annotations

import re
import shlex
from itertools import islice

import msgspec
import pytest
from typer.testing import CliRunner

from tests.server_process import REPOSITORY
from tidegate.cli import command_line
from tidegate.config.traffic import ArrivalConfig, LawConfig, Source, SourceConfig
from tidegate.config.traffic_loading import parse_traffic
from tidegate.workload.traces.formats import Format

GUIDE = (REPOSITORY / "docs" / "guides" / "workloads.md").read_text()


def blocks(language: str) -> list[str]:
    """The guide's code in that language."""
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def test_its_traffic_file_is_one() -> None:
    """It loads, with and without budgets of its classes, and sends requests of every source in it."""
    sources, budgets = blocks("yaml")
    traffic = parse_traffic(sources, "workloads.md")
    in_batch = sources.replace("  code:\n", "  code:\n    class: batch\n")
    with_budgets = parse_traffic(in_batch + budgets, "workloads.md")

    tenants = [planned.tenant for planned in islice(traffic.workload(1).starts(), 1_000)]

    assert set(traffic.config.sources) == {"chat", "launch", "workers", "code"}
    assert set(tenants) == {"acme", "default"}
    assert with_budgets.config.classes["batch"].budgets.e2e_s == 120


def test_its_commands_are_commands() -> None:
    """What it prints can be typed."""
    for line in (line for block in blocks("sh") for line in block.splitlines()):
        name, *arguments = shlex.split(line)
        assert name == "tidegate"
        assert CliRunner().invoke(command_line(), arguments).exit_code == 0, line


@pytest.mark.parametrize("form", Format)
def test_every_form_is_described(form: Format) -> None:
    """With its columns."""
    assert f"| `{form}` |" in GUIDE


@pytest.mark.parametrize("kind", Source.__args__, ids=lambda kind: kind.__name__)
def test_every_setting_of_a_source_is_described(kind: type[SourceConfig]) -> None:
    """In the row of its kind; those that all have, in the example."""
    tag = kind.__struct_config__.tag
    (row,) = re.findall(rf"^\| `{tag}` \|.*$", GUIDE, re.MULTILINE)
    common = {field.name for field in msgspec.structs.fields(SourceConfig)}

    for field in msgspec.structs.fields(kind):
        assert field.name in common or f"`{field.name}`" in row, field.name
    assert "# every kind has: tenant, class, model, max_tokens, streams" in GUIDE


def test_every_law_and_every_way_of_arriving_is_described() -> None:
    """By the words that a file has for them."""
    for law in LawConfig.__args__:
        assert f"| `{law.__struct_config__.tag}` |" in GUIDE
    for field in msgspec.structs.fields(ArrivalConfig):
        assert re.search(rf"\b{field.name}\b", GUIDE), field.name
    for gaps in ("poisson", "even", "gamma", "weibull"):
        assert f"| `{gaps}` |" in GUIDE
