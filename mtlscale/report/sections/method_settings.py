"""Scores over a setting of the methods, for methods that differ in one number."""

from __future__ import annotations

from collections.abc import Iterator

from mtlscale.report.report_section import ReportSection
from mtlscale.report.sections.registry import HTML, REPORT, View, section
from mtlscale.report.studies.method_settings import settings


@section("method_settings", order=60, formats=(REPORT, HTML))
def method_settings(view: View) -> Iterator[ReportSection]:
    """Yield a study for each family of methods."""
    return (setting.study({}) for setting in settings(view.records, view.reference))
