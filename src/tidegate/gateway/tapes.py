"""How does a tape come to the disk without anybody waiting for it, and how is it looked at again?

Lines are collected in memory and written by a thread, four times a second. Whatever happens to the disk stops
the tape, with one line in the log; the gateway goes on.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Annotated

import typer

from tidegate.core.errors import ConfigurationError
from tidegate.policy.tape import Entry, Tape, replay

log = logging.getLogger("tidegate")

WRITE_EVERY_S = 0.25
BEHIND_BYTES = 16 * 2**20
"""As much may wait for the disk; a gateway writes some 2 MB a second at 1,000 requests."""
GOODBYE_S = 2.0
"""How long a disk that hangs may hold up the end of the process."""

DIFFERENT, UNREADABLE = 1, 2
"""Exit statuses of `tape check`."""


class TapeFile:
    """A new file that only its owner may read: a tape says who asked when, and for how much."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigurationError if there is such a file already, or none can be made."""
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise ConfigurationError([f"--tape {path}: exists; move it, or name another file"]) from None
        except OSError as error:
            raise ConfigurationError([f"--tape {path}: cannot be made: {error.strerror}"]) from None
        self._path = path
        self._waiting = bytearray()
        self._lock = Lock()
        self._stopped = False
        self._closing = Event()
        self._thread = Thread(target=self._run, name="tape", daemon=True)
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Have it written soon. Never waits, never raises."""
        with self._lock:
            if self._stopped:
                return
            self._waiting += line
            if len(self._waiting) <= BEHIND_BYTES:
                return
        self._stop("the disk is too slow")

    def close(self) -> None:
        """Write what waits."""
        self._closing.set()
        self._thread.join(GOODBYE_S)

    def _run(self) -> None:
        while not self._closing.wait(WRITE_EVERY_S):
            self._flush()
        self._flush()
        os.close(self._file)

    def _flush(self) -> None:
        with self._lock:
            block, self._waiting = self._waiting, bytearray()
        view = memoryview(block)
        try:
            while view and not self._stopped:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            self._stop(error.strerror or str(error))

    def _stop(self, why: str) -> None:
        with self._lock:
            told, self._stopped = self._stopped, True
            self._waiting = bytearray()
        if not told:
            log.error("the tape %s ends here: %s; requests are served as before", self._path, why)


tape_app = typer.Typer(help="Look at what `serve --tape` recorded.", no_args_is_help=True)


@tape_app.callback()
def _group() -> None:
    """Keeps `check` a command of its own."""


@tape_app.command()
def check(file: Annotated[Path, typer.Argument(metavar="FILE", help="A tape of `serve --tape`.")]) -> None:
    """Replay a tape: does this version decide as the one that recorded it did? Exit status 1 if not."""
    seen = _Seen()
    try:
        with file.open("rb") as lines:
            tape = Tape.read(lines)
            tape.calls = seen.passing(tape.calls)
            difference = replay(tape)
    except OSError as error:
        raise _ended(f"{file}: {error.strerror}", UNREADABLE) from None
    except ConfigurationError as error:
        raise _ended("\n".join(f"{file}: {each}" for each in error.problems), UNREADABLE) from None
    if tape.cut_off:
        typer.echo(f"{file}: the last line is cut off, and left out", err=True)
    recorded = f"recorded by tidegate {tape.header.software}"
    if difference is not None:
        raise _ended(f"{file}, {recorded}: {difference}", DIFFERENT)
    typer.echo(f"{file}, {recorded}: {seen}, the same commands again")


def _ended(text: str, status: int) -> typer.Exit:
    typer.echo(text, err=True)
    return typer.Exit(status)


@dataclass(slots=True)
class _Seen:
    """What a tape is about, counted while it is read."""

    calls: int = 0
    first_at: float = inf
    last_at: float = -inf
    commands: Counter[str] = field(default_factory=Counter)

    def passing(self, calls: Iterator[Entry]) -> Iterator[Entry]:
        """The calls as they are."""
        for call in calls:
            self.calls += 1
            self.first_at, self.last_at = min(self.first_at, call.now), max(self.last_at, call.now)
            self.commands.update(type(command).__name__ for command in call.commands)
            yield call

    def __str__(self) -> str:
        commands = ", ".join(f"{count} {name}" for name, count in sorted(self.commands.items()))
        seconds = max(0.0, self.last_at - self.first_at)
        return f"{self.calls} calls in {seconds:.1f} s, {commands or 'no commands'}"
