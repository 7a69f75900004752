"""Tables that fit the terminal: what is too long for its column is folded, nothing is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def grid(*headers: str, title: str | None = None, right: tuple[str, ...] = ()) -> Table:
    """Return a table with these columns, those of `right` aligned right."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    escaped_title = None if title is None else escape(title)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=escaped_title, title_justify="left")
    for header in headers:
        table.add_column(escape(header), overflow="fold", justify="right" if header in right else "left")
    return table
