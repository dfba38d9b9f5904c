"""The commands, wired. Each lives beside what it runs, and is imported when it is called.

All of them together take as long to import as some of them take to run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from tidegate import __version__

if TYPE_CHECKING:
    from tidegate.core.problems import Told

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


UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""Of what a command line says that cannot be. Not every typer has a public name for it."""
WRONG = 2
"""Exit status, as `config.telling` has it."""


class _Command(TyperCommand):
    """One command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        check_values(self.params, args)
        return super().parse_args(ctx, args)


class _Group(TyperGroup):
    """Several, which may have options of their own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        check_values(self.params, args)
        return super().parse_args(ctx, args)


def check_values(parameters: Iterable[Any], args: Iterable[str]) -> None:
    """Raise a usage error where an option without its value is followed by an option.

    Else that would be taken for the value, and what is told would be of what comes after it.
    """
    options = {name: each for each in parameters for name in each.opts}
    for option, value in pairwise(takewhile(lambda arg: arg != "--", args)):
        if value in options and not getattr(options.get(option), "is_flag", True):
            raise typer.BadParameter(f"{option}: has no value, for {value} is an option; write one")


class Commands(TyperGroup):
    """All commands. What is wrong with a command line is data where JSON is asked for, as any problem is."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """As typer has it, but for usage errors of a command line with `--json` on it."""
        as_data = "--json" in (sys.argv[1:] if args is None else args)
        if not as_data or rest or "standalone_mode" in extra:
            return super().main(args, *rest, **extra)
        try:
            status = super().main(args, standalone_mode=False, **extra)
        except UsageError as error:
            from tidegate.core.problems import Problems
            from tidegate.core.text import as_json

            typer.echo(as_json(Problems(problems=(_told(error),))))
            sys.exit(WRONG)
        sys.exit(status)


def _told(error: Any) -> Told:
    """The nearest of what there is, else where it is told."""
    from tidegate.core.problems import Told, in_parts

    if near := getattr(error, "possibilities", None):
        return Told(problem=error.message, remedy=f"did you mean {' or '.join(near)}?")
    text = error.format_message().removeprefix("Invalid value: ").removesuffix(".")
    found = in_parts(text.replace(". Did you mean ", "; did you mean "))
    if found.remedy:
        return found
    path = error.ctx.command_path if error.ctx is not None else "tidegate"
    return Told(problem=found.problem, remedy=f"see {path} --help")


def command_line(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The `tidegate` command with these commands in it; by default all of them."""
    app = typer.Typer(
        name="tidegate",
        cls=Commands,
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
            app.add_typer(found, name=name, cls=_Group)
        else:
            app.command(name, cls=_Command)(found)
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
