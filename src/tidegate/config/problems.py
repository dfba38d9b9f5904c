"""What is wrong with a configuration, and where does it say so?

A problem names the place by its dotted path; where the text of the file is at hand, by line and column
too. It says what is wrong and, after a semicolon, the remedy. It never repeats what may be a secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches

import msgspec

Where = tuple[str | int, ...]
"""Path of a value from the root: names of keys and indices of lists."""
Mark = tuple[int, int]
"""Line and column, from 1."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Problem(msgspec.Struct, frozen=True):
    """One thing that cannot be."""

    where: Where
    text: str
    mark: Mark | None = None
    """None: where `where` stands in the file."""


def dotted(where: Where) -> str:
    """`pools."llama-3.1-8b".replicas[0].url`: a name that is more than a word is quoted."""
    text = ""
    for part in where:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if _BARE.fullmatch(part) else json.dumps(part))
    return text


def report(source: str, problems: Iterable[Problem], marks: dict[Where, Mark]) -> list[str]:
    """One line for each problem, in the order of the file."""
    placed = [(_mark_of(problem, marks), problem) for problem in problems]
    placed.sort(key=lambda each: (each[0] or (0, 0), dotted(each[1].where), each[1].text))
    return [_line(source, mark, problem) for mark, problem in placed]


def _line(source: str, mark: Mark | None, problem: Problem) -> str:
    place = source if mark is None else f"{source}:{mark[0]}:{mark[1]}"
    path = dotted(problem.where)
    return f"{place}: {path}: {problem.text}" if path else f"{place}: {problem.text}"


def _mark_of(problem: Problem, marks: dict[Where, Mark]) -> Mark | None:
    if problem.mark is not None:
        return problem.mark
    where = problem.where
    while where not in marks and where:  # what the file left to a default stands where its parent does
        where = where[:-1]
    return marks.get(where)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The remedy for a name that is not known: the closest one that is, else all of them."""
    names = list(known)
    close = get_close_matches(word, names, n=1)
    if close:
        return f"did you mean {quoted(close[0])}?"
    return f"known are {', '.join(map(quoted, names))}" if names else "there is none"


def unknown(where: Where, name: str, known: Iterable[str], kind: str) -> Iterator[Problem]:
    """A problem if nothing of that kind has the name."""
    names = list(known)
    if name not in names:
        yield Problem(
            where, f"names the {kind} {quoted(name)}, which does not exist; {did_you_mean(name, names)}"
        )


def pool_of_tenant(
    where: Where, pool: str, own: Collection[str], pools: Collection[str]
) -> Iterator[Problem]:
    """A problem if a pool is not among the tenant's `own`, or not among all `pools`."""
    if pool in pools and pool not in own:
        yield Problem(where, f"is {quoted(pool)}, which is not among the tenant's pools; add it there")
    else:
        yield from unknown(where, pool, pools, "pool")


def quoted(text: str) -> str:
    """A word of the file, short, on one line, and in characters that any terminal takes."""
    return json.dumps(text if len(text) <= 60 else text[:57] + "...")
