"""How is what cannot be said as data? A problem and its remedy, for each.

Every command says it so, where JSON is asked for: of options, of files, and of asks that have no answer.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidegate.core.text import as_json


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that cannot be, without figures."""

    problem: str
    remedy: str


class Problems(msgspec.Struct, frozen=True, kw_only=True):
    """What JSON says instead of an answer."""

    problems: tuple[msgspec.Struct, ...]
    """Each has at least `problem` and `remedy`."""


def in_parts(text: str) -> Told:
    """A problem and, after a semicolon or what else tells people what to do, its remedy."""
    for mark in ("; ", ": write "):
        problem, found, remedy = text.rpartition(mark)
        if found:
            return Told(problem=problem, remedy=mark.removeprefix(": ").lstrip("; ") + remedy)
    return Told(problem=text, remedy="")


def as_data(texts: Iterable[str]) -> str:
    """JSON of sentences, each with its remedy apart."""
    return as_json(Problems(problems=tuple(map(in_parts, texts))))
