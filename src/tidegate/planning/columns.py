"""How is a table laid out so that nothing of it is cut where a terminal is narrow?

At 80 columns every table of a plan has its words and numbers whole. The widest column, which is text, folds
first; nothing ends in an ellipsis, which is neither a figure nor ASCII.
"""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table


def table_of(first: str, *figures: str, text: tuple[str, ...] = (), title: str | None = None) -> Table:
    """Columns of `figures` are to the right, those of `text` after them to the left; all may fold."""
    table = Table(
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        title=title,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
    )
    table.add_column(first, overflow="fold")
    for heading in figures:
        table.add_column(heading, justify="right", overflow="fold")
    for heading in text:
        table.add_column(heading, overflow="fold")
    return table
