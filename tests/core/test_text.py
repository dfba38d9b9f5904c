"""Text from outside can be read and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.text import printable


def test_what_a_terminal_would_obey_is_not_there() -> None:
    """Escapes, line ends and marks that turn text around are replaced; everything else stays."""
    assert printable("plain, ärger, 漢字") == "plain, ärger, 漢字"
    assert printable("a\x1b[31mb\r\nc\u202ed") == "a\ufffd[31mb\ufffd\ufffdc\ufffdd"


@given(st.text())
def test_it_is_printable_and_as_long(text: str) -> None:
    """Whatever comes in."""
    assert printable(text).isprintable()
    assert len(printable(text)) == len(text)
