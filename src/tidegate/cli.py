"""The commands, wired. Each lives beside what it runs, and is imported when it is called.

All of them together take as long to import as some of them take to run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated

import typer

from tidegate import __version__

COMMANDS = {
    "serve": "tidegate.gateway.commands:serve",
    "simulate": "tidegate.simulate.commands:simulate",
    "calibrate": "tidegate.calibrate.commands:calibrate",
    "bench": "tidegate.bench.commands:bench",
    "emulate": "tidegate.emulator.commands:emulate",
    "demo": "tidegate.demo.commands:demo_app",
    "config": "tidegate.config.commands:config_app",
    "key": "tidegate.config.commands:key_app",
    "plan": "tidegate.planning.commands:plan_app",
    "catalog": "tidegate.planning.catalog.commands:catalog_app",
    "trace": "tidegate.simulate.traces.command:trace_app",
    "tape": "tidegate.gateway.tapes:tape_app",
}
"""Where each is found, in the order of the help page."""


def command_line(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The `tidegate` command with these commands in it; by default all of them."""
    app = typer.Typer(
        name="tidegate",
        help="Sustain a target rate of LLM inference on finite compute, within latency budgets.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(about)
    for name in names:
        module, attribute = COMMANDS[name].split(":")
        found = getattr(import_module(module), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def about(
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    """What `tidegate` does without a command."""
    if version:
        typer.echo(f"tidegate {__version__}")
        raise typer.Exit


def asked() -> typer.Typer:
    """As much of the `tidegate` command as this process was asked for."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    # What is no command may be a misspelt one: then all are there, to name the nearest.
    return command_line([name] if name in COMMANDS else COMMANDS)
