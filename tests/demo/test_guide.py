"""What docs/guides/noisy-neighbour.md says of the command is true of it."""

from __future__ import annotations

import re
import shlex

from typer.testing import CliRunner

from tests.server_process import REPOSITORY
from tidegate.demo.commands import demo_app
from tidegate.demo.neighbours import scenario
from tidegate.demo.stage import shipped

GUIDE = (REPOSITORY / "docs" / "guides" / "noisy-neighbour.md").read_text()


def test_its_commands_are_commands() -> None:
    """Every verb and option is known, up to the last, which stops the run."""
    lines = [
        line for block in re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL) for line in block.splitlines()
    ]
    lines += [f"tidegate demo noisy-neighbour {option}" for option in re.findall(r"`(--[^`]+)`", GUIDE)]

    assert len(lines) > 4
    for line in lines:
        program, demo, *options = shlex.split(line)
        assert (program, demo) == ("tidegate", "demo")
        if options[1:2] != ["--max-num-batched-tokens"]:  # vLLM's
            result = CliRunner().invoke(demo_app, [*_completed(options), "--for", "0s"])
            assert result.exit_code == 2
            assert "--for is above 0" in result.output, result.output


def test_its_arithmetic() -> None:
    """Capacity, share, quota and demand are those of the scenario that is played."""
    capacity = scenario.capacity_tokens_per_minute(4)
    demand = scenario.NOISY_PER_MINUTE * (scenario.NOISY_PROMPT_TOKENS + scenario.NOISY_OUTPUT_TOKENS)

    assert f"**{capacity / 1e6:.2f} million**" in GUIDE
    assert f"**{capacity / 4e6:.2f} million**" in GUIDE
    assert f"{demand / 1e6:.1f} million" in GUIDE
    limits = shipped(scenario.CONFIG).tenants[scenario.NOISY].limits
    assert limits is not None
    assert (limits.tokens_per_minute, limits.burst_s) == (1_100_000, 8)
    assert "**1.1 million**" in GUIDE
    assert "`burst_s: 8`" in GUIDE


def _completed(options: list[str]) -> list[str]:
    """An option that is named without its value gets one."""
    return [*options, "1"] if options[-1] == "--seed" else options
