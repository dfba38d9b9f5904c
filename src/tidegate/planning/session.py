"""How does a question become what is printed?

For people the verdict comes first, and is printed while the rest is still computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.core.text import as_json
from tidegate.plan.answer import Impossible
from tidegate.plan.answering import answer_of, with_reasons
from tidegate.plan.ask import Ask, Replica
from tidegate.plan.link import Link
from tidegate.plan.offline import offline_answer
from tidegate.plan.schedule import schedule_of
from tidegate.plan.sensitivity import changes_of
from tidegate.plan.sizing import size_of
from tidegate.planning.asking import Question
from tidegate.planning.configuring import carry_out, configured
from tidegate.planning.telling import refuse
from tidegate.planning.wanted import Wanted

if TYPE_CHECKING:
    from rich.console import Console

    from tidegate.plan.search import Searched


def show(question: Question, wanted: Wanted, searched: Searched | None = None, *, json: bool) -> None:
    """Answer, on stdout. Exit status 2 where there is no answer."""
    for note in question.notes:
        typer.echo(note, err=True)
    if searched is not None and not json:
        from tidegate.planning.search_table import headline

        typer.echo(headline(searched))
    if question.interactive is not None:
        _show_offline(question.ask, question.interactive, searched, json=json)
    elif question.link is not None:
        _show_apart(question.ask, question.link, searched, json=json)
    else:
        _show(question, wanted, searched, json=json)


def _show(question: Question, wanted: Wanted, searched: Searched | None, *, json: bool) -> None:
    ask = question.ask
    size = size_of(ask)
    if isinstance(size, Impossible):
        raise refuse(size, json=json)
    answer = answer_of(ask, size)
    if not json:
        from rich.console import Console

        from tidegate.planning.table import reasons, verdict

        console = Console(highlight=False)
        console.print(verdict(answer, ask.terms))
        _alternatives(console, searched, ask)
    answer = msgspec.structs.replace(
        with_reasons(answer, size),
        changes=changes_of(ask),
        hours=schedule_of(ask, question.hours),
        search=searched.found if searched is not None else None,
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


def _show_offline(ask: Ask, interactive: Ask, searched: Searched | None, *, json: bool) -> None:
    answer = offline_answer(ask, interactive)
    if isinstance(answer, Impossible):
        raise refuse(answer, json=json)
    found = searched.found if searched is not None else None
    answer = msgspec.structs.replace(answer, changes=changes_of(ask), search=found)
    if json:
        typer.echo(as_json(answer))
        return
    from rich.console import Console

    from tidegate.planning.table import batch_work

    console = Console(highlight=False)
    console.print(batch_work(answer))
    _alternatives(console, searched, ask)


def _show_apart(ask: Ask, link: Link, searched: Searched | None, *, json: bool) -> None:
    from tidegate.plan.apart_answer import disaggregated_answer

    assert isinstance(ask.replica, Replica)
    answer = disaggregated_answer(ask, ask.replica, link)
    if isinstance(answer, Impossible):
        raise refuse(answer, json=json)
    if json:
        found = searched.found if searched is not None else None
        typer.echo(as_json(msgspec.structs.replace(answer, search=found)))
        return
    from rich.console import Console

    from tidegate.planning.apart_table import sides
    from tidegate.planning.table import verdict

    console = Console(highlight=False)
    console.print(verdict(answer, ask.terms), sides(answer))
    _alternatives(console, searched, ask)


def _alternatives(console: Console, searched: Searched | None, ask: Ask) -> None:
    if searched is None:
        return
    from tidegate.planning.search_table import alternatives

    console.print("", alternatives(searched.found, ask.terms), sep="\n")
