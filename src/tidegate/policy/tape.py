"""What was a governor told, what did it say, and would it say the same again?

A tape is JSON in lines: a `Header` (configuration and seed; a governor starts empty, and its replicas come as
events), then an `Entry` for each call, `on_wakeup` too, with the commands that answered it. `Recorder` writes
one, `replay` gives it to a fresh governor. Nothing here does I/O or keeps anything: each line goes to a sink.

A tape holds no prompt and no credential: events carry none, but for the words of an engine that failed,
which may repeat what it was asked. Those are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random

import msgspec

from tidegate import __version__
from tidegate.core.errors import ConfigurationError
from tidegate.core.messages import Command, Event, Evict, Failed
from tidegate.core.records import RequestRecord
from tidegate.policy.governor import Governor
from tidegate.policy.pool import Pool
from tidegate.policy.settings import GovernorSettings

FORMAT = 1
"""Raised whenever an older tape can no longer be read."""

WITHHELD = "(words withheld)"
"""Stands for what an engine said of its failure."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: with what the governor was made."""

    tape: int = FORMAT
    software: str = __version__
    """That recorded it. Another one may decide otherwise, and rightly."""
    seed: int
    """Of `random.Random`, the governor's only dice."""
    settings: GovernorSettings


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every other line: one call of the governor, and its answer."""

    now: float
    event: Event | None = None
    """None: `on_wakeup`."""
    commands: list[Command] = []
    raised: str = ""
    """The exception that came instead of commands: a fault of ours, to be found by replaying."""


# -- recording ------------------------------------------------------------------------------------


class Recorder:
    """A governor whose calls are written down. `sink` is given whole lines; the governor must be fresh."""

    def __init__(self, governor: Governor, seed: int, sink: Callable[[bytes], None]) -> None:
        self.governor = governor
        self._sink = sink
        self._write(Header(seed=seed, settings=governor.settings))

    @classmethod
    def of(cls, settings: GovernorSettings, seed: int, sink: Callable[[bytes], None]) -> Recorder:
        """A new governor and its tape."""
        return cls(Governor(settings, Random(seed)), seed, sink)

    def handle(self, event: Event, now: float) -> list[Command]:
        """As `Governor.handle`."""
        try:
            commands = self.governor.handle(event, now)
        except Exception as error:
            self._write(Entry(now=now, event=_unsaid(event), raised=repr(error)))
            raise
        said = event.detail if isinstance(event, Failed) else ""
        told = [_without(said, each) for each in commands] if said else commands
        self._write(Entry(now=now, event=_unsaid(event), commands=told))
        return commands

    def on_wakeup(self, now: float) -> list[Command]:
        """As `Governor.on_wakeup`."""
        try:
            commands = self.governor.on_wakeup(now)
        except Exception as error:
            self._write(Entry(now=now, raised=repr(error)))
            raise
        self._write(Entry(now=now, commands=commands))
        return commands

    def next_wakeup(self) -> float:
        """As `Governor.next_wakeup`."""
        return self.governor.next_wakeup()

    def take_ended(self) -> list[RequestRecord]:
        """As `Governor.take_ended`."""
        return self.governor.take_ended()

    def check(self) -> None:
        """As `Governor.check`."""
        self.governor.check()

    @property
    def pools(self) -> dict[str, Pool]:
        """The governor's."""
        return self.governor.pools

    @property
    def ended(self) -> list[RequestRecord]:
        """The governor's."""
        return self.governor.ended

    def _write(self, line: Header | Entry) -> None:
        self._sink(_ENCODER.encode(line) + b"\n")


_ENCODER = msgspec.json.Encoder()


def _unsaid(event: Event) -> Event:
    if isinstance(event, Failed) and event.detail:
        return msgspec.structs.replace(event, detail=WITHHELD)
    return event


def _without(said: str, command: Command) -> Command:
    """The command as it would be had the engine said WITHHELD: its words end what the client is told."""
    if isinstance(command, Evict) and command.detail.endswith(said):
        return msgspec.structs.replace(command, detail=command.detail.removesuffix(said) + WITHHELD)
    return command


# -- replaying ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tape:
    """A tape that is being read. `calls` is read as it is used, and only once."""

    header: Header
    calls: Iterator[Entry]
    cut_off: bool = False
    """The last line was not whole, as when the process that wrote it was killed; it is left out."""

    @classmethod
    def read(cls, lines: Iterable[bytes]) -> Tape:
        """Raises ConfigurationError, here or from `calls`, if a line is not what a tape says."""
        whole = iter(lines)
        tape = cls(_header_of(next(whole, b"")), iter(()))
        tape.calls = tape._read(whole)
        return tape

    def _read(self, lines: Iterator[bytes]) -> Iterator[Entry]:
        for number, line in enumerate(lines, start=2):
            if not line.endswith(b"\n"):
                self.cut_off = True
                return
            try:
                call = _CALLS.decode(line)
            except msgspec.DecodeError as error:
                raise ConfigurationError(
                    [f"line {number} is not a call that tidegate {__version__} knows: {error}"]
                ) from None
            yield call


_CALLS = msgspec.json.Decoder(Entry)


class _Form(msgspec.Struct):
    tape: int
    software: str


def _header_of(line: bytes) -> Header:
    try:
        form = msgspec.json.decode(line, type=_Form)
    except msgspec.DecodeError:
        raise ConfigurationError(["line 1 is not the header of a tape; `serve --tape` writes one"]) from None
    if form.tape != FORMAT:
        raise ConfigurationError(
            [f"line 1: a tape of format {form.tape}; this is format {FORMAT}: replay it with {form.software}"]
        )
    try:
        return msgspec.json.decode(line, type=Header)
    except msgspec.DecodeError as error:
        raise ConfigurationError(
            [f"line 1: settings of tidegate {form.software}, which {__version__} cannot read: {error}"]
        ) from None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first call that is answered otherwise than the tape says."""

    line: int
    """Of the tape, from 1."""
    expected: Entry
    got: Entry

    def __str__(self) -> str:
        told = "on_wakeup" if self.expected.event is None else repr(self.expected.event)
        rows = [f"line {self.line}, at {self.expected.now!r}: {told}"]
        rows += [f"  expected  {each}" for each in _answers(self.expected)]
        rows += [f"  got       {each}" for each in _answers(self.got)]
        return "\n".join(rows)


def _answers(call: Entry) -> list[str]:
    return [repr(each) for each in call.commands] or [call.raised or "no command"]


def replay(tape: Tape) -> Difference | None:
    """Give the tape to a fresh governor; the first difference, or None if it says the same throughout."""
    governor = Governor(tape.header.settings, Random(tape.header.seed))
    for number, call in enumerate(tape.calls, start=2):
        again = _again(governor, call)
        if again != call:
            return Difference(line=number, expected=call, got=again)
        governor.ended.clear()
    return None


def _again(governor: Governor, call: Entry) -> Entry:
    try:
        if call.event is None:
            commands = governor.on_wakeup(call.now)
        else:
            commands = governor.handle(call.event, call.now)
    except Exception as error:
        return msgspec.structs.replace(call, commands=[], raised=repr(error))
    return msgspec.structs.replace(call, commands=commands, raised="")
