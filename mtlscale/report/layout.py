"""How tables are laid out: what the other modules need of columns, words and Markdown."""

from mtlscale.report.columns import EMPTY, MOST_TASKS, Column, by_block, columns, decimals, signed
from mtlscale.report.markdown import markdown, markdown_cell
from mtlscale.report.words import colour_key, failures, legend, summary

__all__ = [
    "EMPTY",
    "MOST_TASKS",
    "Column",
    "by_block",
    "colour_key",
    "columns",
    "decimals",
    "failures",
    "legend",
    "markdown",
    "markdown_cell",
    "signed",
    "summary",
]
