"""A study: conclusions, tables and a chart of an experiment over all its data sets together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtlscale.report.cells.sheet import Sheet
from mtlscale.report.charts.chart import Chart
from mtlscale.report.formats.markdown import markdown_section


@dataclass(frozen=True)
class Study:
    """The chart of a study, whose title and file are the study's, with its conclusions and tables."""

    chart: Chart
    sentences: Sequence[str]
    tables: Sequence[Sheet]

    def to_markdown(self) -> str:
        bullets = "".join(f"- {sentence}\n" for sentence in self.sentences)
        tables = "".join(f"{markdown_section(table)}\n" for table in self.tables)
        return f"## {self.chart.title}\n\n{bullets}\n{tables}"
