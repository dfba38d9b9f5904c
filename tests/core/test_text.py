"""Text from outside can be read and nothing else; values are written as JSON that people can read."""

from __future__ import annotations

from math import nan

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.text import as_json, printable


def test_what_a_terminal_would_obey_is_not_there() -> None:
    """Escapes, line ends and marks that turn text around are replaced; everything else stays."""
    assert printable("plain, ärger, 漢字") == "plain, ärger, 漢字"
    assert printable("a\x1b[31mb\r\nc\u202ed") == "a\ufffd[31mb\ufffd\ufffdc\ufffdd"


@given(st.text())
def test_it_is_printable_and_as_long(text: str) -> None:
    """Whatever comes in."""
    assert printable(text).isprintable()
    assert len(printable(text)) == len(text)


class Figure(msgspec.Struct, kw_only=True):
    """With its fields in an order that is not the alphabet's."""

    name: str
    mean_s: float


def test_values_as_json() -> None:
    """Indented, in the order of the fields; what does not exist is null, for JSON has no nan."""
    assert as_json(Figure(name="TTFT", mean_s=nan)) == '{\n  "name": "TTFT",\n  "mean_s": null\n}'
