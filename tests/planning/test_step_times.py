"""Where a plan's step times come from."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from tidegate.cli import command_line

APP = command_line(["plan"])
LOAD = ("--qps", "1", "--input", "1000", "--output", "200", "--json")


def planned(*options: str) -> dict[str, Any]:
    """The JSON of the command."""
    result = CliRunner().invoke(APP, ["plan", *options, *LOAD])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize(
    ("gpu", "step_times"),
    [
        ("h100-sxm", "roofline"),
        ("b300-sxm", "roofline"),
        ("l40s", "roofline, with operators measured on NVIDIA L40S"),
    ],
)
def test_a_plan_says_where_its_step_times_come_from(gpu: str, step_times: str) -> None:
    """Operators stand in where no deployment was measured."""
    assert planned("--model", "meta-llama/Llama-3.1-8B", "--gpu", gpu)["step_times"] == step_times


def test_two_figures_have_no_step_times() -> None:
    """They are a pace."""
    result = CliRunner().invoke(
        APP, ["plan", "--throughput", "2000", "--output", "500", "--tpot", "20ms", "--qps", "1", "--json"]
    )
    assert json.loads(result.stdout)["step_times"] is None
