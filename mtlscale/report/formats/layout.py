"""Layout of tables: the names that other modules need of columns, words and Markdown."""

from mtlscale.report.formats.legend import colour_key, failures, legend, run_ids
from mtlscale.report.formats.markdown import markdown, markdown_cell
from mtlscale.report.formats.number_format import EMPTY, decimals, signed
from mtlscale.report.tables.columns import MOST_TASKS, Block, LeaderboardColumn, by_block, columns

__all__ = [
    "EMPTY",
    "MOST_TASKS",
    "Block",
    "LeaderboardColumn",
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
