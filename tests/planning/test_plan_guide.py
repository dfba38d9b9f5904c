"""The examples in docs/guides/plan.md, and the one in the README, work as printed."""

from __future__ import annotations

import re
import shlex

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.server_process import REPOSITORY
from tidegate.planning.commands import plan_app

GUIDE = (REPOSITORY / "docs" / "guides" / "plan.md").read_text()
README = (REPOSITORY / "README.md").read_text()

app = typer.Typer()
app.add_typer(plan_app, name="plan")
app.command("other")(lambda: None)
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL) for line in block.splitlines()]
PRINTED = re.findall(r"```sh\n([^\n]*)\n```\n\n```\n(.*?)```", GUIDE, re.DOTALL)
README_COMMANDS = re.findall(r"^venv/bin/(tidegate plan.*)$", README, re.MULTILINE)
README_PRINTED = re.findall(r"```sh\nvenv/bin/(tidegate plan[^\n]*)\n```\n\n```\n(.*?)```", README, re.DOTALL)


def run(command: str) -> Result:
    """A command of the guide, as it is printed there."""
    program, *arguments = shlex.split(command)
    assert program == "tidegate"
    return CliRunner().invoke(app, arguments)


def words(text: str) -> str:
    """However wide a terminal is."""
    return " ".join(text.replace("─", " ").split())


@pytest.mark.parametrize("command", [*COMMANDS, *README_COMMANDS])
def test_its_commands_are_commands(command: str) -> None:
    """Each answers, or is refused as the guide says."""
    expected = 2 if "--tpot 1ms" in command else 0

    assert run(command).exit_code == expected, command


@pytest.mark.parametrize("command, text", [*PRINTED, *README_PRINTED])
def test_it_prints_what_it_says(command: str, text: str) -> None:
    """What stands below a command is the beginning of what the command prints."""
    result = run(command)

    assert words(result.stdout + result.stderr).startswith(words(text))


def test_the_waits_are_those_of_the_first_example() -> None:
    """The table of waits is a part of its answer."""
    (table,) = re.findall(r"```\n(P95 at.*?)```", GUIDE, re.DOTALL)

    assert words(table) in words(run(COMMANDS[0]).stdout)
    assert "84.8%" in run(COMMANDS[0]).stdout


def test_the_curve_is_that_of_the_first_example() -> None:
    """The sentence and the plot are parts of its answer."""
    (drawn,) = re.findall(r"<!-- of that answer -->\n```\n(.*?)```", GUIDE, re.DOTALL)
    (command,) = [command for command in COMMANDS if "--curve" in command]

    assert words(drawn) in words(run(command).stdout)


def test_figures_in_the_text() -> None:
    """What the guide says of KV memory is what the commands say."""
    by_input = {}
    for command in COMMANDS:
        found = re.search(r"--kv-quant (\w+) --input|--input (\d+)", command)
        if found is not None and ("llama-3.1-8b --gpu l40s" in command.lower() or "--kv-quant" in command):
            by_input[found[1] or found[2]] = run(command).stdout
    for key, holds in {"3596": "48", "32268": "6", "fp16": "42", "fp8": "85"}.items():
        assert re.search(rf"hold {holds} requests", words(by_input[key])), key
    assert "199,413 tokens" in by_input["3596"]
    assert "10 GiB each" in words(by_input["fp16"])
