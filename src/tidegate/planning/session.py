"""How does a question become what is printed?

For people the verdict comes first, and is printed while the rest is still computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.core.text import as_json
from tidegate.plan.answer import Answer, Impossible
from tidegate.plan.answering import answer_of, with_reasons
from tidegate.plan.ask import Ask
from tidegate.plan.offline import offline_answer
from tidegate.plan.schedule import schedule_of
from tidegate.plan.sensitivity import changes_of
from tidegate.plan.sizing import size_of
from tidegate.planning.asking import Question
from tidegate.planning.emit.configuring import carry_out, configured
from tidegate.planning.offloading import offloaded
from tidegate.planning.telling import refuse
from tidegate.planning.wanted import Wanted

if TYPE_CHECKING:
    from rich.console import Console

    from tidegate.plan.search.cheapest import Searched


def show(question: Question, wanted: Wanted, searched: Searched | None = None, *, json: bool) -> None:
    """Answer, on stdout. Exit status 2 where there is no answer."""
    for note in (*question.notes, *_unsent(question, wanted)):
        typer.echo(note, err=True)
    if searched is not None and not json:
        from rich.console import Console

        from tidegate.planning.search_table import headline

        Console(highlight=False).print(headline(searched), style="bold")
    if question.interactive is not None:
        _show_offline(question, wanted, searched, json=json)
    elif question.front is not None:
        _show_apart(question, wanted, searched, json=json)
    else:
        _show(question, wanted, searched, json=json)


def _unsent(question: Question, wanted: Wanted) -> tuple[str, ...]:
    """What of the load a traffic file does not say."""
    load = question.ask.load
    clients = load.users is not None or question.interactive is not None
    if not (clients and load.prefix_hit_ratio and (wanted.emit is not None or wanted.verify)):
        return ()
    return (
        "--prefix-hit: in a traffic file clients who wait for their answers share no prefixes; what is "
        "simulated computes every prompt whole",
    )


def _show(question: Question, wanted: Wanted, searched: Searched | None, *, json: bool) -> None:
    ask = question.ask
    size = size_of(ask)
    if isinstance(size, Impossible):
        raise refuse(size, json=json)
    answer = offloaded(ask, answer_of(ask, size), wanted)
    if not json:
        from rich.console import Console

        from tidegate.planning.table import reasons, verdict

        console = Console(highlight=False)
        console.print(verdict(answer, ask.terms))
        for part in (answer.offload, answer.fleet):
            if part is not None:
                console.print("", part.because, sep="\n")
        _alternatives(console, searched, ask)
    if wanted.curve or wanted.html is not None:
        from tidegate.plan.curve import curve_of

        answer = msgspec.structs.replace(answer, curve=curve_of(ask, size))
        if wanted.curve and not json:
            from tidegate.planning.curve.plot import curve_told

            assert answer.curve is not None
            console.print(curve_told(answer.curve, ask.terms))
    answer = msgspec.structs.replace(
        with_reasons(ask, answer, size),
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
    _report(ask, answer, wanted)
    if json:
        typer.echo(as_json(answer))
    elif wanted.verify:
        from tidegate.planning.verify.table import told_of

        console.print(told_of(answer))


def _report(ask: Ask, answer: Answer, wanted: Wanted) -> None:
    if wanted.html is None:
        return
    from tidegate.planning.html.report import write_report

    write_report(ask, answer, wanted.html, force=wanted.force)
    typer.echo(f"wrote {wanted.html}", err=True)


def _show_offline(question: Question, wanted: Wanted, searched: Searched | None, *, json: bool) -> None:
    ask = question.ask
    assert question.interactive is not None
    answer = offline_answer(ask, question.interactive)
    if isinstance(answer, Impossible):
        raise refuse(answer, json=json)
    found = searched.found if searched is not None else None
    answer = msgspec.structs.replace(answer, changes=changes_of(ask), search=found)
    answer = configured(ask, answer, wanted)
    if not json:
        from rich.console import Console

        from tidegate.planning.advice_table import advice_told
        from tidegate.planning.table import batch_work

        console = Console(highlight=False)
        console.print(batch_work(answer))
        _alternatives(console, searched, ask)
        console.print(advice_told(answer, whole=wanted.any))
    answer = carry_out(ask, answer, wanted)
    _report(ask, answer, wanted)
    if json:
        typer.echo(as_json(answer))
    elif wanted.verify:
        from tidegate.planning.verify.table import told_of

        console.print(told_of(answer))


def _show_apart(question: Question, wanted: Wanted, searched: Searched | None, *, json: bool) -> None:
    from tidegate.plan.disaggregated.answering import disaggregated_answer
    from tidegate.plan.disaggregated.changes import changes_apart
    from tidegate.plan.disaggregated.schedule import schedule_apart

    ask, front = question.ask, question.front
    assert front is not None
    answer = disaggregated_answer(ask, front)
    if isinstance(answer, Impossible):
        raise refuse(answer, json=json)
    if wanted.curve:
        typer.echo("--curve: not known of replicas for prompts apart from those that decode", err=True)
    if not json:
        from rich.console import Console

        from tidegate.planning.apart_table import sides
        from tidegate.planning.table import changes, schedule, verdict

        console = Console(highlight=False)
        console.print(verdict(answer, ask.terms), sides(answer, ask.terms))
        _alternatives(console, searched, ask)
    answer = msgspec.structs.replace(
        answer,
        changes=changes_apart(ask, front),
        hours=schedule_apart(ask, front, question.hours),
        search=searched.found if searched is not None else None,
    )
    answer = configured(ask, answer, wanted, front)
    if not json:
        from tidegate.planning.advice_table import advice_told

        console.print("", changes(answer), sep="\n")
        if answer.hours:
            console.print("", schedule(answer), sep="\n")
        console.print(advice_told(answer, whole=wanted.any))
    answer = carry_out(ask, answer, wanted, front)
    _report(ask, answer, wanted)
    if json:
        typer.echo(as_json(answer))
    elif wanted.verify:
        from tidegate.planning.verify.table import told_of

        console.print(told_of(answer))


def _alternatives(console: Console, searched: Searched | None, ask: Ask) -> None:
    if searched is None:
        return
    from tidegate.planning.search_table import alternatives

    console.print("", alternatives(searched.found, ask.terms), sep="\n")
