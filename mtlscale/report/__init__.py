"""The report: tables, statistics, figures and a page from run records; reads results, not models.

Others use the names in `__all__`, which are loaded when first used.
"""

from mtlscale.lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "Chart": ".charts.chart",
        "Comparison": ".sections.comparisons",
        "Definition": ".columns.registry",
        "Frame": ".columns.frame",
        "Leaderboard": ".leaderboard",
        "Published": ".tables.published",
        "PublishedTable": ".tables.published",
        "Results": ".results",
        "ReportSection": ".report_section",
        "Sheet": ".cells.sheet",
        "Sweep": ".sweeps.sweeps",
        "Table": ".tables.table",
        "View": ".sections.registry",
        "column": ".columns.registry",
        "compare": ".sections.comparisons",
        "family": ".columns.registry",
        "read_published": ".tables.published",
        "section": ".sections.registry",
        "text_sheet": ".cells.sheet",
        "write_report": ".report_files",
    },
)
