"""How does a question become what is printed?"""

from __future__ import annotations

import msgspec
import typer

from tidegate.core.text import as_json
from tidegate.plan.answer import Impossible
from tidegate.plan.answering import answer_to
from tidegate.plan.sensitivity import changes_of
from tidegate.planning.asking import Question
from tidegate.planning.telling import refuse


def show(question: Question, *, json: bool) -> None:
    """Answer, on stdout. Exit status 2 where there is no answer."""
    for note in question.notes:
        typer.echo(note, err=True)
    answer = answer_to(question.ask)
    if isinstance(answer, Impossible):
        raise refuse(answer, json=json)
    answer = msgspec.structs.replace(answer, changes=changes_of(question.ask))
    if json:
        typer.echo(as_json(answer))
        return
    from rich.console import Console

    from tidegate.planning.table import as_table

    Console(highlight=False).print(as_table(answer, question.ask.terms))
