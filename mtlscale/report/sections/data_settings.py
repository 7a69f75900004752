"""Δ over an option of the data, for data sets of one pipeline that differ in it."""

from __future__ import annotations

from collections.abc import Iterator

from mtlscale.report.report_section import ReportSection
from mtlscale.report.sections.registry import HTML, REPORT, View, section
from mtlscale.report.studies.data_settings import courses


@section("data_settings", order=40, formats=(REPORT, HTML))
def data_settings(view: View) -> Iterator[ReportSection]:
    """Yield a course for each option."""
    return (course.study(view.looks) for course in courses(view.records, view.tables))
