"""The examples in docs/guides/calibrate.md work as printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import typer
from typer.testing import CliRunner

from tidegate.bench.commands import bench
from tidegate.calibrate.commands import calibrate
from tidegate.config.profiles import parse_profile

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "calibrate.md"
app = typer.Typer()
app.command("calibrate")(calibrate)
app.command("bench")(bench)


def blocks(language: str) -> list[str]:
    """The guide's code in that language."""
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_its_commands_are_commands(tmp_path: Path) -> None:
    """Every option is known and every value accepted, up to the last, which stops the run."""
    commands = [shlex.split(line) for block in blocks("sh") for line in block.splitlines()]

    assert len(commands) == 5
    for program, *options in commands:
        result = CliRunner().invoke(app, [*options, "--for", "0s", "--out", str(tmp_path / "p.yaml")])
        assert program == "tidegate"
        assert "--for 0s: is too short" in result.output or "--for is above" in result.output, options


def test_its_profile_is_one() -> None:
    """It loads, and its own bounds are not beyond what was measured."""
    (text,) = blocks("yaml")
    profile = parse_profile(text, "guide")

    assert profile.measured is not None
    assert profile.measured.assumed == ("max_batched_tokens",)
    assert profile.beyond() == []
