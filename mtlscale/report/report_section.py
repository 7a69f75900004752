"""A section of a report: texts, charts and tables below one title. Every format knows how to show one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mtlscale.report.cells.sheet import Sheet
from mtlscale.report.charts.chart import Chart
from mtlscale.report.tables.caveats import Failure

FIRST, WIDE = "first screen", "wide"  # what a terminal shows at first, and everything
REPORT, HTML, NOTEBOOK = "report", "html", "notebook"  # leaderboard.md and the files of charts; pages
MARKDOWN, LATEX, JSON, CSV = "markdown", "latex", "json", "csv"
FORMATS = (REPORT, HTML, "terminal", MARKDOWN, LATEX, JSON, CSV)
TABLES, OVERALL, LEARNED = "tables", "overall", "learned"  # keys that pages tell apart


@dataclass(frozen=True, kw_only=True)
class ReportSection:
    """A section of a report.

    Attributes:
        title: Its heading; tables of a section without one have headings of their own.
        summary: Its conclusion, which formats set off.
        texts: Its sentences.
        charts: Its charts, which pages draw, and files of a report where they have a name.
        tables: Its tables.
        key: The name by which it is asked for.
        dataset: The data set that it is about; "" for all of them.
        short: What stands first where there is little room for tables.
        failures: Runs that did not finish.
        legend: What stands below everything.
        folded: Tables that few readers look for.
        terms: Names and what they stand for.
        numbers: What JSON has of it, where that is not texts and tables.
    """

    title: str = ""
    summary: str = ""
    texts: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Sheet] = ()
    key: str = ""
    dataset: str = ""
    short: Sheet | None = None
    failures: Sequence[Failure] = ()
    legend: str = ""
    folded: Sequence[Sheet] = ()
    terms: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, Any] | None = None

    @classmethod
    def of_chart(cls, chart: Chart, texts: Sequence[str], tables: Sequence[Sheet]) -> ReportSection:
        """Return a section with the title of its chart."""
        return cls(title=chart.title, texts=texts, charts=(chart,), tables=tables)

    @property
    def sentences(self) -> list[str]:
        """The texts, and the terms as texts."""
        return [*self.texts, *(f"{term}: {text}" for term, text in self.terms.items())]

    @property
    def chart(self) -> Chart:
        """The first chart."""
        return self.charts[0]
