"""How does a command tell what cannot be, to people and as data?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from tidegate.core.errors import ConfigurationError
from tidegate.core.problems import Problems, as_data
from tidegate.core.text import as_json
from tidegate.plan.answer import Impossible

WRONG = 2
"""Exit status, as `config.telling` has it, which takes as long to import as a plan by hand takes to make."""


@contextmanager
def told(*, json: bool) -> Iterator[None]:
    """Where a ConfigurationError becomes a line for each of its problems, or JSON, and exit status 2."""
    try:
        yield
    except ConfigurationError as error:
        if json:
            typer.echo(as_data(error.problems))
        else:
            for problem in error.problems:
                typer.echo(problem, err=True)
        raise typer.Exit(WRONG) from None


def refuse(impossible: Impossible, *, json: bool) -> typer.Exit:
    """The same for an ask that has no answer; to be raised."""
    if json:
        typer.echo(as_json(Problems(problems=(impossible,))))
    else:
        typer.echo(str(impossible), err=True)
    return typer.Exit(WRONG)
