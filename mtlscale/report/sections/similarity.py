"""Gain against covariance similarity, for data sets that are pairs of aligned tasks."""

from __future__ import annotations

from collections.abc import Iterator

from mtlscale.report.report_section import ReportSection
from mtlscale.report.sections.registry import HTML, REPORT, View, section
from mtlscale.report.studies.similarity import pairs
from mtlscale.report.studies.similarity_study import similarity_study


@section("similarity", order=10, formats=(REPORT, HTML))
def similarity(view: View) -> Iterator[ReportSection]:
    """Yield the study where there are pairs of tasks."""
    reference = view.reference
    if reference is not None and (pairs_by_method := pairs(view.records, reference)):
        yield similarity_study(view.records, pairs_by_method, reference, view.looks)
