"""Is a command line that cannot be told as data, where JSON is asked for, by every command?"""

from __future__ import annotations

import json
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tidegate.cli import command_line

APP = command_line()


def commands(command: Any, *path: str) -> list[tuple[str, ...]]:
    """The way to each command, groups of them included."""
    below = getattr(command, "commands", {})
    return [path, *(found for name, each in below.items() for found in commands(each, *path, name))]


def problem_of(*arguments: str) -> dict[str, str]:
    """The only one, from a command that must say it as JSON and nothing else."""
    result = CliRunner().invoke(APP, [*arguments])
    assert (result.exit_code, result.stderr) == (2, ""), (result.stdout, result.stderr)
    (problem,) = json.loads(result.stdout)["problems"]
    return dict(problem)


@pytest.mark.parametrize("path", commands(typer.main.get_command(APP)), ids=" ".join)
def test_an_option_that_is_none(path: tuple[str, ...]) -> None:
    """Every command says so as data, and what to do."""
    problem = problem_of(*path, "--no-such-option", "--json")

    assert problem["problem"] == "No such option: --no-such-option"
    assert problem["remedy"]


@pytest.mark.parametrize(
    "arguments, problem, remedy",
    [
        (("plan", "--qpz", "3"), "No such option: --qpz", "--qps"),
        (("plan", "fitz"), "No such command 'fitz'", "did you mean 'fits'?"),
        (("plam",), "No such command 'plam'", "did you mean 'plan'?"),
        (("plan", "compare", "a.yaml"), "Missing argument 'B'", "plan compare --help"),
        (("plan", "--json", "--qps"), "'--qps' requires an argument", "--help"),
        (("plan", "--qps", "--tpot", "20ms"), "--qps: has no value, for --tpot is an option", "write one"),
        (("simulate", "a.yaml", "--trace", "--seed", "3"), "--trace: has no value", "write one"),
        (("simulate",), "Missing argument 'CONFIG'", "simulate --help"),
        (("simulate", "no.yaml"), "no.yaml: cannot be read", ""),
        (("simulate", "no.yaml", "--seed", "x"), "Invalid value for '--seed'", "simulate --help"),
        (("bench", "http://127.0.0.1:9", "--for", "3"), "--for: '3' is not a duration", "write a number"),
        (("trace", "stats", "no.csv"), "trace no.csv: No such file", "azure-conv"),
        (("trace", "stats", "azure-conv", "--format", "fax"), "'fax' is not one of 'azure'", "stats --help"),
        (("calibrate",), "calibrate one of --url, --records and --scrapes", "none was given"),
        (("catalog", "list", "gpus"), "'gpus' is no kind of entry", "write accelerators"),
        (("demo", "--for", "0s"), "--for is above 0", "demo --help"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_data(arguments: tuple[str, ...], problem: str, remedy: str) -> None:
    """Usage errors and problems of options and files have the same form: what, and the remedy."""
    found = problem_of(*arguments, *(["--json"] if "--json" not in arguments else []))

    assert problem in found["problem"], found
    assert remedy in found["remedy"], found


def test_for_people_it_is_text() -> None:
    """Without --json it is on stderr, with the nearest option."""
    result = CliRunner().invoke(APP, ["plan", "--qpz", "3"])

    assert (result.exit_code, result.stdout) == (2, "")
    assert "--qps" in result.stderr


def test_what_is_asked_for_is_as_it_was() -> None:
    """Help, an answer and an exit status of a command's own pass through."""
    assert "Usage: " in CliRunner().invoke(APP, ["plan", "--help", "--json"]).stdout
    fits = ("plan", "fits", "--kv-tokens", "1600", "--tokens", "100", "--json")
    assert json.loads(CliRunner().invoke(APP, [*fits]).stdout)["binding"] == "kv_memory"
