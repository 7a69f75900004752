"""Scores over the share of training data, for several training fractions of one data set."""

from __future__ import annotations

from collections.abc import Iterator

from mtlscale.report.report_section import ReportSection
from mtlscale.report.sections.registry import HTML, REPORT, View, section
from mtlscale.report.studies.learning import learning_curves as curves_of


@section("learning_curves", order=30, formats=(REPORT, HTML))
def learning_curves(view: View) -> Iterator[ReportSection]:
    """Yield the curves of each data set with several fractions."""
    return (curves.study(view.looks) for curves in curves_of(view.records, view.tables))
