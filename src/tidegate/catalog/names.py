"""Which entry of a catalogue does a name mean?

People write `Llama-3.1-70B`, `meta-llama/Meta-Llama-3.1-70B-Instruct`, `h100` and `H100 SXM`. A name means,
in this order, and only where an earlier rule finds nothing:

1. the entry of exactly that name;
2. the entry of that name or alias without regard to case, where blanks, underscores and hyphens are the same,
   and a maker in front (NVIDIA, AMD, Intel, Google) does not count;
3. the same without the owner in front of a `/`;
4. the same without words that change neither shape nor size: instruct, chat, base, hf, it, and meta in front.

Where a rule finds several that differ in what they describe, the name is refused and they are listed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import TypeVar

from tidegate.core.errors import ConfigurationError
from tidegate.core.text import printable

T = TypeVar("T")

_BLANKS = re.compile(r"[\s_-]+")
_MAKER = re.compile(r"^(?:nvidia|amd|intel|google|instinct|tesla|geforce)-(?!.*/)")
_SAME_SHAPE = {"instruct", "chat", "base", "hf", "it"}
_SHOWN = 60


@lru_cache(maxsize=4096)  # of the same few hundred entries, for every name that is asked for
def plain(name: str) -> str:
    """Rule 2."""
    text = _BLANKS.sub("-", name.strip().lower())
    while (shorter := _MAKER.sub("", text)) != text:
        text = shorter
    return text


@lru_cache(maxsize=4096)
def without_owner(name: str) -> str:
    """Rule 3."""
    return plain(name).rpartition("/")[2]


@lru_cache(maxsize=4096)
def without_tuning(name: str) -> str:
    """Rule 4."""
    words = [word for word in without_owner(name).removeprefix("meta-").split("-") if word not in _SAME_SHAPE]
    return "-".join(words)


def found(
    name: str,
    entries: Mapping[str, T],
    kind: str,
    *,
    aliases: Callable[[T], tuple[str, ...]] = lambda _: (),
    shape: Callable[[T], object] = lambda entry: entry,
) -> T:
    """The entry that `name` means. `shape` is what of it must be equal for two to be the same.

    Raises ConfigurationError that names the nearest.
    """
    if name in entries:
        return entries[name]
    for rule in (plain, without_owner, without_tuning):
        wanted = rule(name)
        matching = [
            (each, entry)
            for each, entry in entries.items()
            if wanted in (rule(each), *map(rule, aliases(entry)))
        ]
        if matching:
            return _only(name, matching, kind, shape)
    raise ConfigurationError(
        [f"{kind} {_quoted(name)} is not in the catalogue; {_nearest(name, entries, aliases)}"]
    )


def _only(name: str, matching: list[tuple[str, T]], kind: str, shape: Callable[[T], object]) -> T:
    first = matching[0][1]
    if any(shape(entry) != shape(first) for _, entry in matching):
        names = ", ".join(each for each, _ in matching)
        raise ConfigurationError([f"{kind} {_quoted(name)} may be any of {names}; write one of them"])
    return first


def _nearest(name: str, entries: Mapping[str, T], aliases: Callable[[T], tuple[str, ...]]) -> str:
    """The remedy: the names that look most like it, else where all of them are listed."""
    known = {
        rule(text): each
        for each, entry in entries.items()
        for text in (each, *aliases(entry))
        for rule in (plain, without_tuning)
    }
    wanted = plain(name)[:200], without_tuning(name)[:200]
    begun = [text for text in known if wanted[1] and text.startswith(wanted[1])]
    close = [*begun, *(each for text in wanted for each in get_close_matches(text, known))]
    close = close or get_close_matches(wanted[0], known, cutoff=0.4)
    names = list(dict.fromkeys(known[each] for each in close))[:3]
    if names:
        return f"did you mean {' or '.join(names)}?"
    return "`tidegate catalog list` shows what is, and --catalog FILE adds to it"


def _quoted(name: str) -> str:
    text = printable(name)
    return f'"{text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."}"'
