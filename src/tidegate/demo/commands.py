"""How is a demo run from the command line?"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from math import inf
from typing import Annotated, Any, TypeVar

import msgspec
import typer
import uvloop
from rich.console import Console, RenderableType

from tidegate.core.errors import ConfigurationError
from tidegate.core.text import as_json
from tidegate.core.units import seconds_of
from tidegate.demo import outcome
from tidegate.demo.neighbours import playing as neighbours
from tidegate.demo.neighbours.scenario import Contest
from tidegate.demo.neighbours.view import verdict
from tidegate.demo.show import Show, play

T = TypeVar("T")

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
LiveOption = Annotated[
    bool | None, typer.Option(help="Draw a live screen, or print lines.", show_default="live on a terminal")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the figures as JSON, and nothing else.")]


@demo_app.callback(invoke_without_command=True)
def demo(
    context: typer.Context,
    for_: ForOption = None,
    seed: SeedOption = 0,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="Where the gateway listens; if that is taken, on any port that is free.",
            show_default="8080",
        ),
    ] = None,
    live: LiveOption = None,
    json: JsonOption = False,
) -> None:
    """Watch a gateway hold a rate on emulated engines, under traffic as it really was."""
    if context.invoked_subcommand is not None:
        return
    console = Console()
    for_s = inf if for_ is None else _seconds(for_)
    show = Show(for_s=for_s, port=port, seed=seed, live=_live(live, json, console), quiet=json)
    found = _run(play(show, console))
    if json:
        typer.echo(as_json(found))
    else:
        console.print(outcome.as_table(found))
        console.print(f"\n{NEXT}", highlight=False)


@demo_app.command("noisy-neighbour")
def noisy_neighbour(
    for_: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How much traffic, in time at its own pace.")
    ] = "120s",
    speed: Annotated[
        float, typer.Option(min=0.1, help="Fleet, traffic and limits run so many times as fast.")
    ] = 2.0,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Simulate it, in a second, instead of playing it.")
    ] = False,
    both: Annotated[
        bool, typer.Option("--both", help="Play it, simulate what was played, and compare the two.")
    ] = False,
    seed: SeedOption = 0,
    live: LiveOption = None,
    json: JsonOption = False,
) -> None:
    """One tenant sends few and huge requests: what the others feel of it under request and token limits.

    Ends with 1 if the others were not protected as promised, or if a simulation says something else.
    """
    if simulated and both:
        raise typer.BadParameter("--simulated is one way and --both the other: leave one of them out")
    console = Console()
    contest = Contest(
        for_s=_seconds(for_), speed=speed, seed=seed, live=_live(live, json, console), quiet=json
    )
    if simulated:
        found, shown, good = _simulated(contest)
    elif both:
        found, shown, good = _compared(contest, console)
    else:
        found, shown, good = _played(contest, console)
    if json:
        typer.echo(as_json(found))
    else:
        console.print(shown)
    if not good:
        raise typer.Exit(1)


Conclusion = tuple[msgspec.Struct, RenderableType, bool]
"""For programs, for people, and whether all is as it should be."""


def _played(contest: Contest, console: Console) -> Conclusion:
    found = _run(neighbours.play(contest, console)).comparison
    return found, verdict(found), found.held or not found.complete


# What simulates is imported by who simulates: it brings numpy, for which a live screen need not wait.


def _simulated(contest: Contest) -> Conclusion:
    from tidegate.demo.neighbours.simulating import simulated

    try:
        found = simulated(contest)
    except ConfigurationError as error:
        raise typer.BadParameter(error.problems[0]) from None
    return found, verdict(found), found.held


def _compared(contest: Contest, console: Console) -> Conclusion:
    from tidegate.demo.neighbours.agreement import simulate_played
    from tidegate.demo.neighbours.side_by_side import agreement

    played = _run(neighbours.play(contest, console))
    live = played.comparison
    if not live.complete:
        return live, verdict(live), True
    found = simulate_played(played, contest)
    return found, agreement(found), found.agrees and live.held


def _live(asked: bool | None, json: bool, console: Console) -> bool:
    return not json and (console.is_terminal if asked is None else asked)


def _seconds(text: str) -> float:
    try:
        seconds = seconds_of("--for", text)
    except ConfigurationError as error:
        raise typer.BadParameter(error.problems[0]) from None
    if seconds <= 0:
        raise typer.BadParameter("--for is above 0")
    return seconds


def _run(show: Coroutine[Any, Any, T]) -> T:
    """What can go wrong is an option, or this machine."""
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    try:
        return uvloop.run(show)
    except ConfigurationError as error:
        raise typer.BadParameter(error.problems[0]) from None
    except OSError as error:
        typer.echo(f"the demo cannot listen: {error.strerror or error}", err=True)
        raise typer.Exit(1) from None
