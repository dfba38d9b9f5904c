"""How is a plan asked for on the command line?

What a way of asking needs is imported when it is asked in that way, so that the first line comes at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.planning.telling import told

LOAD, REPLICA, TERMS, OUTPUT = "Load", "Replica", "Terms", "Output"

plan_app = typer.Typer(help="How much to buy, and which limits to set?")


@plan_app.callback(invoke_without_command=True)
def plan(
    context: typer.Context,
    qps: Annotated[
        str | None, typer.Option(metavar="RATE", help="Requests per second, mean.", rich_help_panel=LOAD)
    ] = None,
    peak_ratio: Annotated[
        str | None,
        typer.Option(
            metavar="RATIO",
            help="The busiest minute over the mean one; else the trace's, or 1.",
            rich_help_panel=LOAD,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "--output-tokens", metavar="TOKENS", help="Answer length.", rich_help_panel=LOAD
        ),
    ] = None,
    throughput: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENS/S", help="Of one replica at full batch, by hand.", rich_help_panel=REPLICA
        ),
    ] = None,
    ttft: Annotated[
        str | None, typer.Option(metavar="TIME", help="Budget to the first token.", rich_help_panel=TERMS)
    ] = None,
    tpot: Annotated[
        str | None, typer.Option(metavar="TIME", help="Budget per token after it.", rich_help_panel=TERMS)
    ] = None,
    e2e: Annotated[
        str | None, typer.Option(metavar="TIME", help="Budget to the end.", rich_help_panel=TERMS)
    ] = None,
    percentile: Annotated[
        str, typer.Option(metavar="P", help="Of requests that hold the budgets.", rich_help_panel=TERMS)
    ] = "95",
    utilisation: Annotated[
        str,
        typer.Option(metavar="RATIO", help="At most, with every replica up.", rich_help_panel=TERMS),
    ] = "70%",
    spare: Annotated[
        str | None,
        typer.Option(
            metavar="COUNT", help="Replicas that may be lost; else 1 if there are two.", rich_help_panel=TERMS
        ),
    ] = None,
    replicas: Annotated[
        str | None,
        typer.Option(metavar="COUNT", help="So many, instead of a rate.", rich_help_panel=TERMS),
    ] = None,
    price: Annotated[
        str | None,
        typer.Option(metavar="USD", help="Of one accelerator, per hour.", rich_help_panel=TERMS),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=OUTPUT)] = False,
) -> None:
    """From a load and budgets to replicas, how full they are, what binds, and what they cost."""
    if context.invoked_subcommand is not None:
        return
    with told(json=json):
        from tidegate.planning.asking import Options, ask_of
        from tidegate.planning.session import show

        options = {name: value for name, value in context.params.items() if name != "json"}
        show(ask_of(Options(**options)), json=json)
