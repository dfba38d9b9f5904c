"""How is text from outside shown, so that it can do nothing but be read?"""

from __future__ import annotations


def printable(text: str) -> str:
    """The same on one line, without control characters: a terminal or a log would obey them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
