"""The commands, wired. Each lives beside what it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate import __version__
from tidegate.bench.commands import bench
from tidegate.config.commands import config_app, key_app
from tidegate.demo.commands import demo_app
from tidegate.emulator.commands import emulate
from tidegate.gateway.commands import serve
from tidegate.gateway.tapes import tape_app
from tidegate.simulate.commands import simulate
from tidegate.simulate.traces_command import trace_app

app = typer.Typer(
    name="tidegate",
    help="Sustain a target rate of LLM inference on finite compute, within latency budgets.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve)
app.command()(simulate)
app.command()(bench)
app.command()(emulate)
app.add_typer(demo_app, name="demo")
app.add_typer(config_app, name="config")
app.add_typer(key_app, name="key")
app.add_typer(trace_app, name="trace")
app.add_typer(tape_app, name="tape")


@app.callback(invoke_without_command=True)
def about(
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    """What `tidegate` does without a command."""
    if version:
        typer.echo(f"tidegate {__version__}")
        raise typer.Exit


def main() -> None:
    """The `tidegate` command."""
    app()
