"""How is something written for people: text from outside, so that it can only be read, and values as JSON?"""

from __future__ import annotations

import msgspec


def printable(text: str) -> str:
    """The same on one line, without control characters: a terminal or a log would obey them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def as_json(value: msgspec.Struct) -> str:
    """Indented JSON: keys in the order of the fields, null for nan, which is a figure that does not exist."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
