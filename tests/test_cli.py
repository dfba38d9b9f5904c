"""Is each command found, and only it?"""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tidegate.cli import COMMANDS, command_line


def test_the_help_page_lists_every_command() -> None:
    """In the order in which they are wired."""
    page = CliRunner().invoke(command_line(), ["--help"]).output

    places = [page.find(f" {name} ") for name in COMMANDS]
    assert places == sorted(places)
    assert places[0] > 0


def test_a_misspelt_command_names_the_nearest() -> None:
    """And ends as bad usage does."""
    result = CliRunner().invoke(command_line(), ["simulat"])

    assert result.exit_code == 2
    assert "'simulate'" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_alone_is_the_same_command(name: str) -> None:
    """What is imported for one verb answers as it does among all of them."""
    alone, among_all = (
        CliRunner().invoke(app, [name, "--help"]) for app in (command_line([name]), command_line())
    )

    assert alone.exit_code == 0
    assert alone.output == among_all.output


def test_a_command_does_not_wait_for_the_others() -> None:
    """What simulates imports neither what serves nor what shows: its first line is soon there."""
    script = (
        "import sys; from tidegate.cli import command_line; command_line(['simulate']);"
        "print(*sorted(name for name in sys.modules if name.startswith('tidegate.')))"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    imported = out.split()
    assert "tidegate.simulate.commands" in imported
    assert not {"tidegate.gateway", "tidegate.demo", "tidegate.emulator", "tidegate.bench"} & set(imported)
