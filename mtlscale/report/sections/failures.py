"""The runs that did not finish, of all data sets."""

from __future__ import annotations

from collections.abc import Iterator

from mtlscale.report.cells.sheet import text_sheet
from mtlscale.report.report_section import HTML, ReportSection
from mtlscale.report.sections.registry import View, section
from mtlscale.report.tables.caveats import cause_of


@section("failures", order=910, formats=(HTML,))
def failures(view: View) -> Iterator[ReportSection]:
    """Yield the table, if there are any."""
    several = len(view.tables) > 1
    rows = [
        (method, *([dataset] if several else []), str(seed), status, cause_of(error))
        for dataset, table in view.tables.items()
        for method, seed, status, error, _ in table.failures.itertuples(index=False)
    ]
    header = ("method", *(["data set"] if several else []), "seed", "status", "cause")
    if rows:
        yield ReportSection(title="Runs that did not finish", tables=[text_sheet("", "", header, rows)])
