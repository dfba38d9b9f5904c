"""Does a Ray cluster give what this machine gives?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.simulate.settings import FILE
from tidegate.simulate.commands import simulate

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("default")]  # its warnings are not ours

app = typer.Typer()
app.command()(simulate)


def test_a_sweep_on_ray(tmp_path: Path) -> None:
    """The same points and seeds, to the byte."""
    file = tmp_path / "tidegate.yaml"
    file.write_text(FILE)
    options = [str(file), "--for", "10s", "--sweep", "rate=2,4", "--repeat", "2", "--json"]
    here = CliRunner().invoke(app, [*options, "--jobs", "1"])
    there = CliRunner().invoke(app, [*options, "--ray", "local"])

    assert there.exit_code == 0, there.stderr
    assert there.stdout == here.stdout
    assert len(json.loads(there.stdout)["points"]) == 2


def test_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address without one is the caller's mistake."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    file = tmp_path / "tidegate.yaml"
    file.write_text(FILE)
    result = CliRunner().invoke(app, [str(file), "--for", "10s", "--ray", "auto"])

    assert result.exit_code == 2
    assert "--ray auto: Could not find any running Ray instance" in result.stderr
