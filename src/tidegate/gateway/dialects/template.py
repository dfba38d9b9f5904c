"""Which events of a stream differ from ones already read in nothing but the text they carry?

Nearly all events do. Once one was parsed, others like it are known by the bytes in front of their
text and behind it: they need no parsing, and what they add to the text is a subtraction.
"""

from __future__ import annotations

import re

_STRING = re.compile(rb'\s*"(?:[^"\\]|\\.)*"')
_KEPT = 4  # choices that are interleaved each have a prefix of their own; so has each second in llama.cpp


class Template:
    """The bytes around the text of known events. Learns from parsed events, one at a time.

    A quote inside JSON text is escaped and a line end too, so text can hold neither a prefix nor a
    suffix: data matches exactly if every event in it does. Only more strings beside the text could
    hide between the two; they would count as text.
    """

    __slots__ = ("_prefixes", "_suffix")

    def __init__(self) -> None:
        self._prefixes: tuple[bytes, ...] = ()  # the newest first
        self._suffix = b""

    def match(self, data: bytes) -> tuple[int, int] | None:
        """Events in `data` and bytes of text in them, if it holds known events and nothing else."""
        suffix = self._suffix
        if not data.endswith(suffix) or not data.startswith(self._prefixes):
            return None
        events = data.count(b"\n\n")
        if data.count(suffix) != events or data.find(b"\r") >= 0:  # `in` tries for a number first
            return None
        started, text_bytes = 0, len(data) - events * len(suffix)
        for prefix in self._prefixes:
            times = data.startswith(prefix) + (data.count(b"\n\n" + prefix) if events > 1 else 0)
            started += times
            text_bytes -= times * len(prefix)
            if started == events:
                # Escapes of six bytes hide characters of up to three; such text is better parsed.
                return None if data.find(b"\\") >= 0 and b"\\u" in data else (events, text_bytes)
        return None

    def learn(self, event: bytes, member: str) -> None:
        """Note what is around the text of `member`, which this event carries and was parsed for."""
        name = b'"%b":' % member.encode()
        at = event.find(name) + len(name)
        text = _STRING.match(event, at)
        if text is None or event.count(name) != 1:
            return
        prefix = event[: event.index(b'"', at) + 1]
        if prefix not in self._prefixes:
            self._prefixes = (prefix, *self._prefixes[: _KEPT - 1])
        self._suffix = event[text.end() - 1 :]
