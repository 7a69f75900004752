"""Leaderboard tables as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mtlscale.report.formats.legend import failures, legend, run_ids
from mtlscale.report.tables.columns import MOST_TASKS, LeaderboardColumn, by_block, columns
from mtlscale.report.tables.takeaway import takeaway

if TYPE_CHECKING:
    from mtlscale.report.tables.table import Table


def markdown(table: Table) -> str:
    """Return the data set's section of leaderboard.md."""
    lines = [f"## {markdown_cell(table.dataset)}", "", markdown_cell(takeaway(table)), ""]

    quality, tasks, cost = by_block(columns(table))
    tasks_fit = len(tasks) <= MOST_TASKS
    for block in filter(None, ([*tasks, *quality], cost) if tasks_fit else (quality, tasks, cost)):
        names = [table.name(method) for method in table.rows.index]
        lines += markdown_rows(names, block)
        lines.append("")

    if len(table.failures):
        lines += ["Runs that did not finish:", ""]
        lines += [
            f"- {markdown_cell(f'{method}, seed {seed}: {status}')} — {markdown_cell(error)}"
            for method, seed, status, error in failures(table)
        ]
        lines.append("")

    lines += [f"<sub>{markdown_cell(legend(table))}</sub>", "", *_run_ids(table), ""]
    return "\n".join(lines)


def _run_ids(table: Table) -> Iterator[str]:
    """Yield the lines of a folded table of run ids, for readers who look for them in the Markdown."""
    header, rows = run_ids(table)
    yield from ("<details><summary>ids of the runs</summary>", "")
    yield f"| {' | '.join(map(markdown_cell, header))} |"
    yield f"|{' --- |' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(map(markdown_cell, row))} |"
    yield from ("", "</details>")


def markdown_rows(names: Sequence[str], block: Sequence[LeaderboardColumn], first: str = "method") -> Iterator[str]:
    """Yield the lines of a table with the columns beside the names of their rows.

    Args:
        names: The name of each row.
        block: The columns, each with one text per row.
        first: The header of the column of names.
    """
    yield "| " + " | ".join(markdown_cell(text) for text in (first, *(column.header for column in block))) + " |"
    yield "| --- |" + " ---: |" * len(block)
    for index, name in enumerate(names):
        cells = [markdown_cell(name)]
        for column in block:
            text = markdown_cell(column.texts[index])
            cells.append(f"**{text}**" if index in column.best else text)
        yield "| " + " | ".join(cells) + " |"


def markdown_cell(text: object) -> str:
    """Escape a text for a cell of a Markdown table, so that no markup of the user's takes effect."""
    cell = str(text).replace("\\", "\\\\").replace("\n", " ")
    for mark in "|<*`[":
        cell = cell.replace(mark, f"\\{mark}")
    return cell
