"""How is it asked how many requests fit at once? `tidegate plan fits`, from the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.planning.numbers import count_of, ratio_of
from tidegate.planning.telling import told

Text = str | None


def fits(
    kv_tokens: Annotated[str, typer.Option(metavar="TOKENS", help="That the KV cache holds.")],
    tokens: Annotated[str, typer.Option(metavar="TOKENS", help="Of one request at its end.")],
    reserved: Annotated[
        Text, typer.Option(metavar="TOKENS", help="The longest that one may become, if that is reserved.")
    ] = None,
    block: Annotated[str, typer.Option(metavar="TOKENS", help="Of a block of KV cache.")] = "16",
    busy: Annotated[Text, typer.Option(metavar="RATIO", help="Of the compute, as seen.")] = None,
    at: Annotated[str, typer.Option(metavar="COUNT", help="With so many requests.")] = "1",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """How many requests fit into a replica at once: what binds, its KV cache or its compute?"""
    with told(json=json):
        from tidegate.core.text import as_json
        from tidegate.plan.fits import Seen
        from tidegate.plan.fits import fits as found

        answer = found(
            Seen(
                kv_tokens=count_of("--kv-tokens", kv_tokens, "tokens"),
                request_tokens=count_of("--tokens", tokens, "tokens"),
                reserved_tokens=count_of("--reserved", reserved, "tokens") if reserved is not None else None,
                block_tokens=count_of("--block", block, "tokens"),
                busy_ratio=ratio_of("--busy", busy) if busy is not None else None,
                busy_at=count_of("--at", at, "requests"),
            )
        )
    if json:
        typer.echo(as_json(answer))
        return
    typer.echo(f"{answer.concurrency:,} requests fit at once.")
    typer.echo(answer.because)
