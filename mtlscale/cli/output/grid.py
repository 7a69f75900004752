"""Tables that fit the terminal: what is too long for its column is folded, nothing is cut."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.table import Table


def grid(
    headers: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    right: Collection[str] = (),
    whole: Collection[str] = (),
) -> Table:
    """Return a table; only cells that are rich texts have styles.

    Args:
        headers: The header of each column.
        title: The title above the table.
        right: The headers of columns that are aligned right.
        whole: The headers of columns that are never folded: what they have is copied.
    """
    from rich import box
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    escaped_title = None if title is None else escape(title)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=escaped_title, title_justify="left")
    for header in headers:
        justify: Literal["left", "right"] = "right" if header in right else "left"
        table.add_column(escape(header), overflow="fold", justify=justify, no_wrap=header in whole)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else escape(str(cell)) for cell in row))
    return table
