"""What stands below all tables of a terminal: each part of a legend once, then the takeaway of each data set."""

from __future__ import annotations

from collections.abc import Iterator

from mtlscale.report.report_section import WIDE, ReportSection
from mtlscale.report.sections.registry import View, section
from mtlscale.report.tables.caveats import colour_key, definitions
from mtlscale.report.tables.takeaway import takeaway


@section("conclusions", order=10, formats=(WIDE,))
def conclusions(view: View) -> Iterator[ReportSection]:
    """Yield the legend and the takeaways."""
    if view.columns:
        return
    tables = view.tables.values()
    datasets: dict[str, list[str]] = {}
    for table in tables:
        for part in definitions(table):
            datasets.setdefault(part, []).append(table.dataset)
    parts = [
        part if len(labels) == len(tables) else f"{', '.join(labels)}: {part}" for part, labels in datasets.items()
    ]
    keys = " ".join(dict.fromkeys(filter(None, map(colour_key, tables))))
    yield ReportSection(legend=f"{'; '.join(parts)}. {keys}".rstrip() + "\n", summary="\n".join(map(takeaway, tables)))
