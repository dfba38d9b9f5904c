"""How is it asked how two configurations differ? `tidegate plan compare`, from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.planning.telling import WRONG, told

Text = str | None
HELP = "A configuration, or an answer of `tidegate plan --json`."


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help=HELP)],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another.")],
    traffic: Annotated[
        Text, typer.Option(metavar="FILE", help="What comes to both; else the traffic file beside each.")
    ] = None,
    qps: Annotated[Text, typer.Option(metavar="RATE", help="The same, by hand: requests per second.")] = None,
    input_: Annotated[Text, typer.Option("--input", metavar="TOKENS", help="Prompt length.")] = None,
    output: Annotated[Text, typer.Option(metavar="TOKENS", help="Answer length.")] = None,
    prefix_hit: Annotated[
        Text, typer.Option(metavar="RATIO", help="Of prompt tokens, from the cache.")
    ] = None,
    ttft: Annotated[Text, typer.Option(metavar="TIME", help="Budget, instead of the classes'.")] = None,
    tpot: Annotated[Text, typer.Option(metavar="TIME", help="The same.")] = None,
    e2e: Annotated[Text, typer.Option(metavar="TIME", help="The same.")] = None,
    percentile: Annotated[str, typer.Option(metavar="P", help="Of requests, that hold them.")] = "95",
    utilisation: Annotated[Text, typer.Option(metavar="RATIO", help="At most; else 70%.")] = None,
    spare: Annotated[
        Text, typer.Option(metavar="COUNT", help="Replicas that may be lost; else 1, if there are two.")
    ] = None,
    price: Annotated[
        Text, typer.Option(metavar="USD[,USD]", help="Of one replica, per hour: A's, B's.")
    ] = None,
    pool: Annotated[Text, typer.Option(metavar="NAME", help="Which, where there are several.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """How two configurations differ, and what that does: replicas, rates, latencies, costs.

    Each is answered for its own load: of x.yaml that is x.traffic.yaml, as --emit writes it.
    """
    with told(json=json):
        import msgspec

        from tidegate.core.text import as_json
        from tidegate.planning.asking import terms_of
        from tidegate.planning.compare.compared import Common, side_of
        from tidegate.planning.compare.differences import comparison_of
        from tidegate.planning.numbers import count_of
        from tidegate.planning.options import Options

        options = Options(
            traffic=traffic,
            qps=qps,
            input=input_,
            output=output,
            prefix_hit=prefix_hit,
            ttft=ttft,
            tpot=tpot,
            e2e=e2e,
            percentile=percentile,
            utilisation=utilisation,
        )
        spare_replicas = None if spare is None else count_of("--spare", spare, "replicas", least=0)
        common = Common(options=options, terms=terms_of(options), spare_replicas=spare_replicas, pool=pool)
        sides = [
            side_of(
                path,
                msgspec.structs.replace(
                    common, terms=msgspec.structs.replace(common.terms, per_hour_usd=each)
                ),
            )
            for path, each in zip((a, b), _prices(price), strict=True)
        ]
        found = comparison_of(*sides)
    if json:
        typer.echo(as_json(found))
    else:
        from rich.console import Console

        from tidegate.planning.compare.table import comparison_told

        Console(highlight=False).print(comparison_told(found))
    if found.a.impossible and found.b.impossible:
        raise typer.Exit(WRONG)


def _prices(text: str | None) -> tuple[float | None, float | None]:
    """Of one replica: one figure for both, or one for each."""
    from tidegate.core.errors import ConfigurationError
    from tidegate.planning.numbers import number_of

    if text is None:
        return None, None
    parts = text.split(",")
    if len(parts) > 2:
        raise ConfigurationError([f"--price {text}: two files have two prices; write --price 12.50,9.80"])
    first, *others = (number_of("--price", part, "US dollars an hour", above=False) for part in parts)
    return first, others[0] if others else first
