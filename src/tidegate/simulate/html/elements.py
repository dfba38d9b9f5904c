"""Of what does an HTML report consist? One file, with its style in it: no script, nothing fetched.

Every text that comes in is escaped, but for the cells and the body, which are HTML.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from html import escape
from importlib.resources import files


def page(title: str, body: str) -> str:
    """The whole file."""
    style = (files("tidegate.simulate.html") / "report.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>\n{style}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def table(headings: Sequence[str], rows: Sequence[str], caption: str = "", text: Container[int] = ()) -> str:
    """Of rows as `row` makes them. `text` are columns, from 0, that are not figures."""
    kinds = [' class="text"' if place in text else "" for place in range(len(headings))]
    head = "".join(
        f'<th scope="col"{kind}>{escape(heading)}</th>' for kind, heading in zip(kinds, headings, strict=True)
    )
    below = f"<caption>{escape(caption)}</caption>" if caption else ""
    inner = f"{below}<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="scroll"><table>{inner}</table></div>'


def row(name: str, *cells: str) -> str:
    """A line of a table, with cells in HTML."""
    return f'<tr><th scope="row">{escape(name)}</th>{"".join(cells)}</tr>'


def definitions(words: Mapping[str, str]) -> str:
    """Names, and what each is."""
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in words.items())
    return f"<dl>{items}</dl>"
