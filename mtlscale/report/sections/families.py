"""The studies of families and installed packages, at the extension point `studies`."""

from __future__ import annotations

from collections.abc import Iterator

from mtlscale.config import extensions
from mtlscale.report.report_section import HTML, REPORT, ReportSection
from mtlscale.report.sections.registry import View, section


@section("families", order=60, formats=(REPORT, HTML))
def families(view: View) -> Iterator[ReportSection]:
    """Yield the studies of each extension."""
    for studies in extensions("studies"):
        yield from studies(view.records, view.looks)
