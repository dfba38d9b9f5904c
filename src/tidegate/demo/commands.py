"""How is a demo run from the command line?"""

from __future__ import annotations

from math import inf
from typing import Annotated

import msgspec
import typer
import uvloop
from rich.console import Console

from tidegate.bench.options import seconds_of
from tidegate.core.errors import ConfigurationError
from tidegate.demo import outcome
from tidegate.demo.show import Show, play

demo_app = typer.Typer(
    help="Watch a gateway hold a rate on emulated engines, under traffic as it really was.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

NEXT = """\
The gateway was real, the engines were not. With your own:
  tidegate serve http://127.0.0.1:8000
What one tenant can do to the others, and what stops it:
  tidegate demo noisy-neighbour"""

ForOption = Annotated[
    str | None,
    typer.Option(
        "--for", metavar="DURATION", help="End after so long, as in 30s.", show_default="until Ctrl-C"
    ),
]
SeedOption = Annotated[int, typer.Option(min=0, help="Dice of the run.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the figures as JSON, and nothing else.")]


@demo_app.callback(invoke_without_command=True)
def demo(
    context: typer.Context,
    for_: ForOption = None,
    seed: SeedOption = 0,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Where the gateway listens.", show_default="8080")
    ] = None,
    live: Annotated[
        bool | None,
        typer.Option(help="Draw a live screen, or print lines.", show_default="live on a terminal"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Watch a gateway hold a rate on emulated engines, under traffic as it really was."""
    if context.invoked_subcommand is not None:
        return
    console = Console()
    try:
        show = Show(
            for_s=inf if for_ is None else seconds_of("--for", for_),
            port=port,
            seed=seed,
            live=not json and (console.is_terminal if live is None else live),
            quiet=json,
        )
        found = uvloop.run(play(show, console))
    except ConfigurationError as error:
        for problem in error.problems:
            typer.echo(problem, err=True)
        raise typer.Exit(2) from None
    except OSError as error:
        typer.echo(f"the demo cannot listen: {error}", err=True)
        raise typer.Exit(1) from None
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        console.print(outcome.as_table(found))
        console.print(f"\n{NEXT}", highlight=False)
