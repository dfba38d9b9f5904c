"""Which points does a sweep have?

    rate=10..60:10          10, 20, 30, 40, 50, 60
    replicas=1..16*2        1, 2, 4, 8, 16
    routing=least_tokens,round_robin
    pools.llama.queue.max_requests=100,1000

Several sweeps make every combination, the last one changing fastest. Values stay texts: whoever takes a
setting reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import product

from tidegate.core.errors import ConfigurationError

SHORT = {"routing": "pools.*.routing.policy", "replicas": "pools.*.replicas"}
"""Names for paths that are swept often."""
MOST_POINTS = 10_000
_NUMBER = r"[-+]?[0-9]+(?:\.[0-9]+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?:([:*])({_NUMBER}))?")


def points_of(sweeps: Sequence[str]) -> list[dict[str, str]]:
    """Every combination of `key=values`, as values by key; one without any for no sweeps at all."""
    values: dict[str, list[str]] = {}
    for text in sweeps:
        key, equals, spec = text.partition("=")
        if not equals or not key:
            raise ConfigurationError([f"--sweep {text}: write KEY=VALUES, such as rate=10..60:10"])
        if key in values:
            raise ConfigurationError([f"--sweep {key}: stands twice; give all its values in one"])
        values[key] = _values(key, spec)
    count = 1
    for each in values.values():
        count *= len(each)
    if count > MOST_POINTS:
        raise ConfigurationError(
            [f"--sweep: {count:,} points are more than {MOST_POINTS:,}; widen the steps"]
        )
    return [dict(zip(values, combination, strict=True)) for combination in product(*values.values())]


def settings_of(point: Mapping[str, str], options: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """A point apart: what names an option of the run, and what is a path of the file, written out."""
    count = point.get("replicas", "")
    if re.fullmatch(_NUMBER, count) and not count.isdigit():
        raise ConfigurationError([f"replicas={count}: is not a whole number"])
    own = {key: value for key, value in point.items() if key in options}
    paths = {SHORT.get(key, key): value for key, value in point.items() if key not in options}
    return own, paths


def label_of(point: Mapping[str, str]) -> str:
    """`rate=20 routing=round_robin`; empty for the only point."""
    return " ".join(f"{key}={value}" for key, value in point.items())


def _values(key: str, spec: str) -> list[str]:
    values = [value for part in _parts(spec) for value in _part(key, part)]
    if not all(values):
        raise ConfigurationError([f"--sweep {key}={spec}: a value is empty; remove the comma, or write it"])
    if len(set(values)) < len(values):
        raise ConfigurationError([f"--sweep {key}={spec}: a value stands twice; remove one"])
    return values


def _parts(spec: str) -> Iterator[str]:
    """What commas separate, those within brackets and braces apart."""
    depth, start = 0, 0
    for at, sign in enumerate(spec):
        depth += (sign in "[{") - (sign in "]}")
        if sign == "," and depth == 0:
            yield spec[start:at].strip()
            start = at + 1
    yield spec[start:].strip()


def _part(key: str, text: str) -> list[str]:
    found = _RANGE.fullmatch(text)
    if found is None:
        if ".." in text:
            remedy = "write FROM..TO, FROM..TO:STEP or FROM..TO*FACTOR"
            raise ConfigurationError([f"--sweep {key}={text}: is no range; {remedy}"])
        return [text]
    # Decimal, or 0.1..0.3:0.1 would end before 0.30000000000000004.
    low, high, by = Decimal(found[1]), Decimal(found[2]), Decimal(found[4] or 1)
    grows = by > 1 and low > 0 if found[3] == "*" else by > 0
    if not grows or high < low:
        raise ConfigurationError(
            [f"--sweep {key}={text}: a range goes up, by a step above 0 or a factor above 1"]
        )
    values: list[str] = []
    while low <= high:
        values.append(f"{low.normalize():f}")
        if len(values) > MOST_POINTS:
            raise ConfigurationError([f"--sweep {key}={text}: has more than {MOST_POINTS:,} values"])
        low = low * by if found[3] == "*" else low + by
    return values
