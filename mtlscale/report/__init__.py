"""The report: tables, statistics, figures and a page from run records; reads results, not models.

Others use the names in `__all__`, which are loaded when first used.
"""

from mtlscale.lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "Comparison": ".tables.published_comparison",
        "Leaderboard": ".leaderboard",
        "Published": ".tables.published",
        "PublishedTable": ".tables.published",
        "Results": ".results",
        "Sweep": ".sweeps.sweeps",
        "Table": ".tables.table",
        "compare": ".tables.published_comparison",
        "read_published": ".tables.published",
        "write_report": ".writing.report_files",
    },
)
