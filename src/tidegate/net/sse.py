"""Where does an event of a `text/event-stream` end, and what does it carry?

Events come out with every byte they came in with, whatever the reads were cut into: joined with the
tail they are the input. Source: WHATWG HTML, section 9.2 (server-sent events).
"""

from __future__ import annotations

import re

from tidegate.core.errors import UpstreamError

# Two line ends in a row, of any kind. CR at the very end of what is known may yet become CR LF.
_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?=[^\n]))")
_BLANK_LINE_AT_END = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)\Z")
_LONGEST_END = 4  # CR LF CR LF


class EventSplitter:
    """Bytes in, complete events out. `limit` bounds an event in bytes.

    An event that ends in a lone CR is given only once the next byte shows that no LF belongs to it,
    or by `finish` at the end of the stream.
    """

    __slots__ = ("_rest", "limit")

    def __init__(self, limit: int = 2**20) -> None:
        self.limit = limit
        self._rest = bytearray()

    @property
    def tail(self) -> bytes:
        """The incomplete rest."""
        return bytes(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """Complete events, terminators included. Raises UpstreamError once an event outgrows the limit."""
        rest = self._rest
        if not rest and data.find(b"\r") < 0 and len(data) <= self.limit:
            *events, tail = data.split(b"\n\n")
            if tail:
                rest += tail
            return [event + b"\n\n" for event in events]
        return self._search(data)

    def finish(self) -> list[bytes]:
        """The stream is over: the event that only its last CR kept back, if there is one."""
        if _BLANK_LINE_AT_END.search(self._rest) is None:
            return []
        event = self.tail
        self._rest.clear()
        return [event]

    def _search(self, data: bytes) -> list[bytes]:
        rest = self._rest
        # What was searched before holds no end; only one that straddles the seam can be new.
        start, search_from = 0, max(0, len(rest) - _LONGEST_END + 1)
        rest += data
        events = []
        while (end := _BLANK_LINE.search(rest, search_from)) is not None:
            events.append(bytes(rest[start : end.end()]))
            start = search_from = end.end()
        del rest[:start]
        if not events and len(rest) > self.limit:
            raise UpstreamError(f"an event is longer than {self.limit} bytes")
        if any(len(event) > self.limit for event in events):
            raise UpstreamError(f"an event is longer than {self.limit} bytes")
        return events


def data_of(event: bytes) -> bytes:
    """The content of its `data` lines, joined by LF; empty for an event that has none."""
    if event.startswith(b"data: ") and event.find(b"\n") == len(event) - 2 and event.find(b"\r") < 0:
        return event[6:-2]
    return b"\n".join(_values_of(event, b"data"))


def _values_of(event: bytes, field: bytes) -> list[bytes]:
    values = []
    for line in event.splitlines():
        name, _, value = line.partition(b":")
        if name == field:
            values.append(value.removeprefix(b" "))
    return values
