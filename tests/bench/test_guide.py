"""The examples in docs/guides/bench.md work as printed."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import typer
from typer.testing import CliRunner

from tests.bench.scripted import complete, run, serving
from tidegate.bench.commands import bench

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "bench.md"
app = typer.Typer()
app.command()(bench)


def blocks(language: str) -> list[str]:
    """The guide's code in that language."""
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_its_commands_are_commands() -> None:
    """Every option is known and every value is accepted, up to the last, which stops the run."""
    commands = [shlex.split(line) for block in blocks("sh") for line in block.splitlines()]

    assert len(commands) >= 2
    for program, verb, *options in commands:
        result = CliRunner().invoke(app, [*options, "--for", "0s"])
        assert (program, verb) == ("tidegate", "bench")
        assert result.stderr == "--for is above 0\n", options


def test_its_program_runs() -> None:
    """With a shorter duration, the function returns the goodput of a server that answers all."""
    (program,) = blocks("python")
    names: dict[str, Any] = {}
    exec(program.replace("for_s=10.0", "for_s=0.5"), names)
    goodput = cast(Callable[[str], Coroutine[Any, Any, float]], names["goodput"])

    async def main() -> None:
        async with serving(complete) as server:
            assert await asyncio.wait_for(goodput(server.url), 20) == 1.0

    run(main())
