"""Tables as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from mtlscale.report.cells.sheet import Sheet, TableCell
from mtlscale.report.report_section import ReportSection
from mtlscale.report.sheets.dataset import run_ids, sheets
from mtlscale.report.tables.caveats import failures, legend
from mtlscale.report.tables.takeaway import takeaway

if TYPE_CHECKING:
    from mtlscale.report.tables.table import Table


def markdown(table: Table) -> str:
    """Return the data set's section of leaderboard.md."""
    lines = [f"## {markdown_cell(table.dataset)}", "", markdown_cell(takeaway(table)), ""]
    for sheet in sheets(table):
        lines += [*markdown_rows(sheet), ""]

    if len(table.failures):
        lines += ["Runs that did not finish:", ""]
        lines += [
            f"- {markdown_cell(f'{method}, seed {seed}: {status}')} — {markdown_cell(error)}"
            for method, seed, status, error in failures(table)
        ]
        lines.append("")

    lines += [f"<sub>{markdown_cell(legend(table))}</sub>", ""]
    # For readers who look for run ids in the Markdown.
    lines += ["<details><summary>ids of the runs</summary>", "", *markdown_rows(run_ids(table)), "", "</details>", ""]
    return "\n".join(lines)


def markdown_section(sheet: Sheet, level: int = 3) -> str:
    """Return a table below a heading of that level and its text, its notes below it."""
    parts = (f"{'#' * level} {markdown_cell(sheet.title)}", markdown_cell(sheet.text), "\n".join(markdown_rows(sheet)))
    below = f"<sub>{markdown_cell(sheet.below)}</sub>" if sheet.below else ""
    return "\n\n".join(part for part in (*parts, below) if part) + "\n"


def markdown_part(section: ReportSection) -> str:
    """Return a section of a report: its texts as bullets, then its tables."""
    bullets = "".join(f"- {text}\n" for text in section.texts)
    tables = "".join(f"{markdown_section(table)}\n" for table in section.tables)
    return f"## {section.title}\n\n{bullets}\n{tables}"


def markdown_rows(sheet: Sheet) -> Iterator[str]:
    """Yield the lines of a table."""
    yield _line(map(markdown_cell, sheet.header))
    yield _line("---:" if column.right else "---" for column in sheet.columns)
    for row in sheet.rows:
        yield _line(map(_cell, row))


def _line(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _cell(cell: TableCell) -> str:
    text = markdown_cell(cell.text)
    return f"**{text}**" if "best" in cell.mark else text


def markdown_cell(text: object) -> str:
    """Escape a text for a cell of a Markdown table, so that no markup of the user's takes effect."""
    cell = str(text).replace("\\", "\\\\").replace("\n", " ")
    for mark in "|<*`[":
        cell = cell.replace(mark, f"\\{mark}")
    return cell
