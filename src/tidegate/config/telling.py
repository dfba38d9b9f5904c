"""How does a command tell people what cannot be, and when?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from tidegate.core.errors import ConfigurationError
from tidegate.core.problems import as_data

WRONG = 2
"""Exit status for a file or an option that cannot be, as for a command line that cannot be."""


@contextmanager
def problems_told(*, json: bool = False) -> Iterator[None]:
    """Where a ConfigurationError becomes a line on stderr for each of its problems, and exit status 2.

    Where `json` is asked for, they are JSON on stdout.
    """
    try:
        yield
    except ConfigurationError as error:
        if json:
            typer.echo(as_data(error.problems))
        else:
            for problem in error.problems:
                typer.echo(problem, err=True)
        raise typer.Exit(WRONG) from None


def check_writable(option: str, path: Path) -> None:
    """Raise ConfigurationError if `path` cannot be: before a run, so that a wrong path does not cost one."""
    try:
        path.open("ab").close()
    except OSError as error:
        raise ConfigurationError([f"{option} {path}: {error.strerror}"]) from None
