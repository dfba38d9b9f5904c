"""How is YAML written that says why? Lines with keys, values, and a reason above where there is one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from textwrap import wrap

WIDTH = 108
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}

Scalar = str | int | float | bool | None


class Lines:
    """A text that grows line by line."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def comment(self, text: str, depth: int = 0) -> None:
        """A sentence or more, wrapped."""
        indent = "  " * depth
        self._lines += [f"{indent}# {line}" for line in wrap(text, WIDTH - len(indent))]

    def blank(self) -> None:
        """An empty line."""
        self._lines.append("")

    def key(self, depth: int, key: str, value: object = "", reason: str = "") -> None:
        """A key with what `inline` makes of its value; without one, what follows belongs to it."""
        if reason:
            self.comment(reason, depth)
        shown = "" if value == "" else f" {inline(value)}"
        self._lines.append(f"{'  ' * depth}{scalar(key)}:{shown}")

    def item(self, depth: int, value: object, reason: str = "") -> None:
        """An item of a list."""
        if reason:
            self.comment(reason, depth)
        self._lines.append(f"{'  ' * depth}- {inline(value)}")

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"


def inline(value: object) -> str:
    """Any plain data in one line; what a mapping has as None is left out."""
    if isinstance(value, Mapping):
        pairs = (f"{scalar(key)}: {inline(each)}" for key, each in value.items() if each is not None)
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(inline, value)) + "]"
    assert value is None or isinstance(value, str | int | float)
    return scalar(value)


def scalar(value: Scalar) -> str:
    """One value, which reads back as itself."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:_}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return scalar(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
    return value if plain else json.dumps(value, ensure_ascii=False)
