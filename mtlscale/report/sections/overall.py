"""The comparison across data sets: its table and its charts."""

from __future__ import annotations

from collections.abc import Iterator

from mtlscale.report.overall.columns import across
from mtlscale.report.overall.plots import charts
from mtlscale.report.report_section import CSV, FIRST, HTML, OVERALL, REPORT, ReportSection
from mtlscale.report.sections.registry import View, section


@section(OVERALL, order=-100)
def overall(view: View) -> Iterator[ReportSection]:
    """Yield the table; a terminal shows its conclusion at first, unless it is asked for."""
    if view.overall is None or (view.form == CSV and view.pairwise):
        return
    sheet = across(view.overall, view.overall_notes)
    if view.form == FIRST and not view.overall_asked:
        yield ReportSection(summary=f"{sheet.text}\n")
    else:
        drawn = charts(view.overall, view.looks) if view.form in (HTML, REPORT) else ()
        yield ReportSection(tables=[sheet], charts=list(drawn))
