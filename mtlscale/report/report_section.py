"""A section of a report: texts, charts and tables below one title. Every format knows how to show one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtlscale.report.cells.sheet import Sheet
from mtlscale.report.charts.chart import Chart


@dataclass(frozen=True, kw_only=True)
class ReportSection:
    """A section of a report.

    Attributes:
        title: Its heading.
        texts: Its sentences.
        charts: Its charts, which pages draw, and files of a report where they have a name.
        tables: Its tables.
        key: The name by which it is asked for.
    """

    title: str
    texts: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Sheet] = ()
    key: str = ""

    @classmethod
    def of_chart(cls, chart: Chart, texts: Sequence[str], tables: Sequence[Sheet]) -> ReportSection:
        """Return a section with the title of its chart."""
        return cls(title=chart.title, texts=texts, charts=(chart,), tables=tables)

    @property
    def chart(self) -> Chart:
        """The first chart."""
        return self.charts[0]
