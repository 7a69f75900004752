"""What size of the encoder is best, for data sets that differ in it."""

from __future__ import annotations

from collections.abc import Iterator

from mtlscale.report.report_section import ReportSection
from mtlscale.report.sections.registry import HTML, REPORT, View, section
from mtlscale.report.studies.capacity import capacity as sizes_of
from mtlscale.report.studies.capacity import capacity_study


@section("capacity", order=20, formats=(REPORT, HTML))
def capacity(view: View) -> Iterator[ReportSection]:
    """Yield the study where there are several sizes."""
    if view.baseline is not None and (sizes := sizes_of(view.records, view.baseline)) is not None:
        yield capacity_study(sizes, view.looks)
