"""How does a question become what is printed?

For people the verdict comes first, and is printed while the rest is still computed.
"""

from __future__ import annotations

import msgspec
import typer

from tidegate.core.text import as_json
from tidegate.plan.answer import Impossible
from tidegate.plan.answering import answer_of, with_reasons
from tidegate.plan.ask import Ask
from tidegate.plan.offline import offline_answer
from tidegate.plan.schedule import schedule_of
from tidegate.plan.sensitivity import changes_of
from tidegate.plan.sizing import size_of
from tidegate.planning.asking import Question
from tidegate.planning.configuring import carry_out, configured
from tidegate.planning.telling import refuse
from tidegate.planning.wanted import Wanted


def show(question: Question, wanted: Wanted, *, json: bool) -> None:
    """Answer, on stdout. Exit status 2 where there is no answer."""
    for note in question.notes:
        typer.echo(note, err=True)
    ask = question.ask
    if question.interactive is not None:
        _show_offline(ask, question.interactive, json=json)
        return
    size = size_of(ask)
    if isinstance(size, Impossible):
        raise refuse(size, json=json)
    answer = answer_of(ask, size)
    if not json:
        from rich.console import Console

        from tidegate.planning.table import reasons, verdict

        console = Console(highlight=False)
        console.print(verdict(answer, ask.terms))
    answer = msgspec.structs.replace(
        with_reasons(answer, size),
        changes=changes_of(ask),
        hours=schedule_of(ask, question.hours),
    )
    answer = configured(ask, answer, wanted)
    if not json:
        from tidegate.planning.advice_table import advice_told

        console.print(reasons(answer, ask.terms))
        console.print(advice_told(answer, whole=wanted.any))
    answer = carry_out(ask, answer, wanted)
    if json:
        typer.echo(as_json(answer))
    elif wanted.verify:
        from tidegate.planning.verification_table import told_of

        console.print(told_of(answer))


def _show_offline(ask: Ask, interactive: Ask, *, json: bool) -> None:
    answer = offline_answer(ask, interactive)
    if isinstance(answer, Impossible):
        raise refuse(answer, json=json)
    answer = msgspec.structs.replace(answer, changes=changes_of(ask))
    if json:
        typer.echo(as_json(answer))
        return
    from rich.console import Console

    from tidegate.planning.table import batch_work

    Console(highlight=False).print(batch_work(answer))
