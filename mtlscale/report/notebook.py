"""A leaderboard in a notebook: plain HTML tables in the notebook's own colours."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from mtlscale.report.layout import Column, columns

if TYPE_CHECKING:
    from mtlscale.report.leaderboard import Leaderboard
    from mtlscale.report.table import Table


def as_html(board: Leaderboard) -> str:
    """One table per data set, best method first; what a column is stands in its title."""
    return "\n".join(_table(name, table) for name, table in board.tables.items())


def _table(name: str, table: Table) -> str:
    shown = columns(table)
    heads = "".join(f'<th title="{escape(column.help)}">{escape(column.header)}</th>' for column in shown)
    rows = []
    for index, method in enumerate(table.rows.index):
        cells = "".join(f"<td>{_cell(column, index)}</td>" for column in shown)
        rows.append(f"<tr><th>{escape(str(method))}</th>{cells}</tr>")
    head = f"<thead><tr><th>method</th>{heads}</tr></thead>"
    return f"<table><caption>{escape(name)}</caption>{head}<tbody>{''.join(rows)}</tbody></table>"


def _cell(column: Column, index: int) -> str:
    text = escape(column.texts[index])
    return f"<b>{text}</b>" if index in column.best else text
