"""Sections as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mtlscale.report.cells.blocks import arranged
from mtlscale.report.cells.sheet import Sheet, TableCell
from mtlscale.report.report_section import ReportSection


def markdown(sections: Iterable[ReportSection]) -> str:
    """Return the sections that have texts or tables below each other."""
    return "\n".join(text for text in map(_part, sections) if text.strip())


def _part(section: ReportSection) -> str:
    """Return a section: its conclusion, its texts as bullets, then its tables."""
    level = 3 if section.title or section.dataset else 2
    parts = [
        f"## {markdown_cell(section.title)}" if section.title else "",
        markdown_cell(section.summary),
        "\n".join(f"- {text}" for text in section.sentences),
        *(_table(part, level) for sheet in section.tables for part in arranged(sheet)),
    ]
    if section.failures:
        failures = (
            f"- {markdown_cell(f'{runs}: {status}')} — {markdown_cell(cause)}"
            for runs, status, cause in section.failures
        )
        parts += ["Runs that did not finish:", "\n".join(failures)]
    if section.legend:
        parts.append(f"<sub>{markdown_cell(section.legend)}</sub>")
    for sheet in section.folded:
        summary = f"{sheet.title[:1].lower()}{sheet.title[1:]}"
        parts += [f"<details><summary>{summary}</summary>", "\n".join(markdown_rows(sheet)), "</details>"]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(sheet: Sheet, level: int) -> str:
    """Return a table below a heading of that level and its text, its notes below it; without a title, it alone."""
    rows = "\n".join(markdown_rows(sheet))
    if not sheet.title:
        return rows
    below = f"<sub>{markdown_cell(sheet.below)}</sub>" if sheet.below else ""
    parts = (f"{'#' * level} {markdown_cell(sheet.title)}", markdown_cell(sheet.text), rows, below)
    return "\n\n".join(part for part in parts if part)


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
