"""What do the events of a stream mean, and how is a stream ended, in each API's own form?

A `Dialect` follows one stream. `streams.Relay` decides what is held, dropped and added; the dialect
only reads events and writes endings.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import msgspec

from tidegate.core.request import Usage
from tidegate.net.sse import data_of


class Look(NamedTuple):
    """What one event said."""

    content_bytes: int | None = None
    """UTF-8 bytes of what the model produced; None when it is not content."""
    usage: Usage | None = None
    usage_of: int | None = None
    """The choice, of several, with or right behind whose end this usage was told; None: not just one's."""
    usage_only: bool = False
    """Nothing but the usage that was asked for: may be withheld."""
    error: str | None = None
    final: bool = False
    """The terminator, after which nothing may follow."""


NOTHING = Look()


class Dialect(Protocol):
    """One stream in one API's form. What is passed to it are events, whole."""

    complete: bool
    """Every answer has ended; only usage and the terminator may be missing."""

    def plain(self, data: bytes) -> tuple[int, int] | None:
        """Events in `data` and bytes of content in them, if each is plainly like one that was looked at.

        None where any is not. True of events together exactly if it is true of each.
        """

    def look(self, event: bytes) -> Look:
        """What an event says; an event that is not understood says nothing."""

    def terminator(self) -> bytes:
        """What a complete stream ends with, if the engine forgot it; empty if only the engine can say it."""

    def truncation(self, usage: Usage, show_usage: bool) -> bytes:
        """A well-formed ending for every answer that is still open: cut for length."""

    def error(self, message: str, code: str) -> bytes:
        """An error event; official clients raise on it."""


def write_event(payload: dict[str, Any], name: str = "") -> bytes:
    """One event. Everything that came from outside is inside JSON, so it cannot break out of its line."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + msgspec.json.encode(payload) + b"\n\n"


def is_whole(event: bytes) -> bool:
    """True if an event that lacks its blank line at least has all of its data."""
    data = data_of(event).strip()
    try:
        return data == b"[DONE]" or bool(msgspec.json.decode(data, type=msgspec.Raw))
    except (msgspec.DecodeError, RecursionError):
        return False


def text_bytes(value: Any) -> int:
    """UTF-8 length of a string; 0 for anything else."""
    if not isinstance(value, str):
        return 0
    return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))


def message_of(error: Any) -> str:
    """The message in an engine's error value, whatever its shape."""
    if isinstance(error, dict):
        error = error.get("message") or error.get("code") or error.get("type")
    return error if isinstance(error, str) and error else "the engine reported an error"
