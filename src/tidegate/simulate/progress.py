"""How far is it? A bar on stderr, if somebody is watching."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


class Bar:
    """Counts runs, and within a single run its simulated time."""

    def __init__(self, bar: Progress | None, runs: int, span_s: float) -> None:
        self._bar, self._runs, self._span_s = bar, runs, span_s
        self._done = 0
        self._task = bar.add_task("", total=runs, what=self._what()) if bar is not None else None

    def advance(self) -> None:
        """A run is done."""
        self._done += 1
        self._show(self._done)

    def at_time(self, simulated_s: float) -> None:
        """The run under way has come so far."""
        if self._span_s > 0:
            self._show(self._done + min(1.0, simulated_s / self._span_s))

    def _show(self, done: float) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, what=self._what())

    def _what(self) -> str:
        return f"{self._done} of {self._runs} runs" if self._runs > 1 else "simulating"


@contextmanager
def progress(runs: int, span_s: float) -> Iterator[Bar]:
    """A bar for so many runs; a single one lasts `span_s` simulated seconds."""
    if not sys.stderr.isatty():
        yield Bar(None, runs, span_s)
        return
    columns = (TextColumn("{task.fields[what]}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield Bar(bar, runs, span_s)
