"""How tables are laid out: what the other modules need of columns, words and Markdown."""

from mtlscale.report.columns import MOST_TASKS, Block, Column, by_block, columns
from mtlscale.report.markdown import markdown, markdown_cell
from mtlscale.report.texts import EMPTY, decimals, signed
from mtlscale.report.words import colour_key, failures, legend, run_ids

__all__ = [
    "EMPTY",
    "MOST_TASKS",
    "Block",
    "Column",
    "by_block",
    "colour_key",
    "columns",
    "decimals",
    "failures",
    "legend",
    "markdown",
    "markdown_cell",
    "run_ids",
    "signed",
]
