"""How does a question become what is printed?"""

from __future__ import annotations

import typer

from tidegate.core.text import as_json
from tidegate.plan.answer import Impossible
from tidegate.plan.ask import Ask
from tidegate.plan.sizing import answer_to
from tidegate.planning.telling import refuse


def show(ask: Ask, *, json: bool) -> None:
    """Answer, on stdout. Exit status 2 where there is no answer."""
    answer = answer_to(ask)
    if isinstance(answer, Impossible):
        raise refuse(answer, json=json)
    if json:
        typer.echo(as_json(answer))
        return
    from rich.console import Console

    from tidegate.planning.table import as_table

    Console(highlight=False).print(as_table(answer, ask.terms))
