"""The commands of docs/guides/plan-configuration.md work, and what they print is what stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.server_process import REPOSITORY
from tidegate.cli import command_line
from tidegate.planning.verify import simulating as verifying
from tidegate.planning.verify.simulating import Effort

GUIDE = (REPOSITORY / "docs" / "guides" / "plan-configuration.md").read_text()


def test_its_commands_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, each on what those before it have written; less is simulated than by default."""
    (tmp_path / "docs").symlink_to(REPOSITORY / "docs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(verifying, "Effort", lambda **_: Effort(seeds=2, requests=200))
    told = []
    for block in re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL):
        for line in block.splitlines():
            program, *arguments = shlex.split(line)
            assert program == "tidegate"
            result = CliRunner().invoke(command_line(), arguments)
            assert result.exit_code == 0, (line, result.output)
            told.append(" ".join(result.output.split()))

    assert "Closed form and simulation agree in all 13 figures" in told[-1]
    (fragment,) = re.findall(r"```\n(    limits:.*?)```", GUIDE, re.DOTALL)
    assert fragment in Path("tidegate.yaml").read_text()
