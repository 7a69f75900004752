"""The report: tables, statistics, figures and a page from run records; reads results, not models.

Others use the names in `__all__`, which are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlscale.lazy import lazily

if TYPE_CHECKING:
    from mtlscale.report.leaderboard import Leaderboard
    from mtlscale.report.results import Results
    from mtlscale.report.sweeps.sweeps import Sweep
    from mtlscale.report.tables.published import Published, PublishedTable, read_published
    from mtlscale.report.tables.published_comparison import Comparison, compare
    from mtlscale.report.tables.table import Table
    from mtlscale.report.writing.report_files import write_report

__all__ = [
    "Comparison",
    "Leaderboard",
    "Published",
    "PublishedTable",
    "Results",
    "Sweep",
    "Table",
    "compare",
    "read_published",
    "write_report",
]

__getattr__ = lazily(__name__)
