"""How does what is told at a terminal become part of a page? By the same tables."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.simulate.html.elements import row, table

BOLD = "<strong>", "</strong>"


def as_parts(renderable: RenderableType) -> Iterator[str]:
    """HTML of a text, a table, or a group of them; nothing for an empty line."""
    if isinstance(renderable, Group):
        for each in renderable.renderables:
            yield from as_parts(each)
    elif isinstance(renderable, Table):
        yield as_table(renderable)
    elif isinstance(renderable, Text | str):
        if str(renderable).strip():
            yield _paragraph(renderable)
    else:
        raise TypeError(f"{type(renderable).__name__} has no HTML")


def as_table(found: Table) -> str:
    """The same rows. Columns that are not to the right are text, which may break."""
    first, *others = found.columns
    lines = []
    cells = [[*column.cells] for column in others]
    for number, (name, told) in enumerate(zip(first.cells, found.rows, strict=True)):
        bold = BOLD if told.style == "bold" else ("", "")
        inner = [
            _cell(own[number], left=column.justify != "right", bold=bold)
            for column, own in zip(others, cells, strict=True)
        ]
        lines.append(row(str(name), *inner))
    headings = (
        [str(column.header).replace("\n", " ") for column in found.columns] if found.show_header else []
    )
    text = [place for place, column in enumerate(found.columns) if column.justify != "right"]
    return table(headings, lines, str(found.caption or ""), text)


def _cell(content: RenderableType, *, left: bool, bold: tuple[str, str]) -> str:
    bad = isinstance(content, Text) and "red" in str(content.style)
    names = " ".join([*(["text"] if left else []), *(["bad"] if bad else [])])
    kind = f' class="{names}"' if names else ""
    return f"<td{kind}>{bold[0]}{escape(str(content))}{bold[1]}</td>"


def _paragraph(text: Text | str) -> str:
    style = str(text.style) if isinstance(text, Text) else ""
    kind = (
        ' class="warning"'
        if "yellow" in style or "red" in style
        else ' class="quiet"'
        if style == "dim"
        else ""
    )
    inner = escape(str(text))
    return f"<p{kind}>{f'<strong>{inner}</strong>' if style == 'bold' else inner}</p>"
