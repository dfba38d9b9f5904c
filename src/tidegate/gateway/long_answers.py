"""What does an answer that is too long to be kept still say of its usage?

Engines write `usage` beside the text, near the start or the end of the object. So both ends are kept,
bounded, and searched once the answer is over.
"""

from __future__ import annotations

import json
import re

from tidegate.core.request import Usage
from tidegate.gateway.apis import Api
from tidegate.gateway.usage import read_usage

END_BYTES = 4096
"""Longer than any engine's `usage` with what follows it."""

# In a string the closing quote would be escaped, so this is only ever a member's name.
_USAGE = re.compile(rb'"usage"\s*:\s*(?={)')
_scan = json.JSONDecoder().raw_decode


class Ends:
    """The first and the last bytes of an answer."""

    __slots__ = ("_first", "_last")

    def __init__(self, beginning: bytes) -> None:
        self._first = beginning[:END_BYTES]
        self._last = beginning[-END_BYTES:]

    def add(self, data: bytes) -> None:
        """The next part of the answer."""
        self._last = (self._last + data[-END_BYTES:])[-END_BYTES:]

    def usage(self, api: Api) -> Usage | None:
        """The totals that stand last, or first; None if there are none at either end."""
        for piece in (self._last, self._first):
            for member in reversed(list(_USAGE.finditer(piece))):
                usage = _read(api, piece[member.end() :])
                if usage is not None:
                    return usage
        return None


def _read(api: Api, piece: bytes) -> Usage | None:
    try:
        counts, _ = _scan(piece.decode("latin-1"))  # of counts only names and digits matter
    except (ValueError, RecursionError):
        return None
    return read_usage(api.form, counts)
