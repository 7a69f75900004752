"""From run records to a leaderboard: tables, statistics, figures and a page. Reads results, not models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlscale.lazy import lazily

if TYPE_CHECKING:
    from mtlscale.report.beside import Comparison, compare
    from mtlscale.report.leaderboard import Leaderboard
    from mtlscale.report.published import Published, PublishedTable, read_published
    from mtlscale.report.results import Results
    from mtlscale.report.sweeps import Sweep
    from mtlscale.report.table import Table
    from mtlscale.report.write import write_report

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

__getattr__ = lazily(
    __name__,
    {
        "mtlscale.report.beside": ["Comparison", "compare"],
        "mtlscale.report.leaderboard": ["Leaderboard"],
        "mtlscale.report.published": ["Published", "PublishedTable", "read_published"],
        "mtlscale.report.results": ["Results"],
        "mtlscale.report.sweeps": ["Sweep"],
        "mtlscale.report.table": ["Table"],
        "mtlscale.report.write": ["write_report"],
    },
)
