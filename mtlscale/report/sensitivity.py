"""Sensitivity studies: values over a number, by line and panel, whatever the number is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from mtlscale.report.cells.number_format import EMPTY, with_width
from mtlscale.report.cells.sheet import Sheet, text_sheet
from mtlscale.report.charts.chart import MOST_LINES, Axis, Chart, Level, Line, Mark, Panel, ring, tick_texts
from mtlscale.report.charts.colors import LineStyle, LineStyles, line_styles
from mtlscale.report.report_section import ReportSection

FEWEST = 3  # values that make a line
Lines = Mapping[str, pd.DataFrame]  # line -> rows of `x`, `value`, and `ci` or `low` and `high`, by x


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """Values over a number.

    Attributes:
        file: The name of the chart's file.
        over: What the number is, the title of the horizontal axis; or panel -> that of the panel.
        panels: Title -> line -> its rows.
        sentences: The conclusions.
        tables: The tables.
        measured: The title of the vertical axis.
        log: Whether the horizontal axes are logarithmic.
        ticked: Whether the values alone have ticks.
        limits: The range of the vertical axes.
        levels: Panel -> a value to compare with, and its name.
        chosen: Line -> the values that are ringed.
        baseline: The line that looks as the baseline does.
        left_out: Lines that only tables have.
        alike: Whether all panels measure the same, and so share their vertical axis.
    """

    file: str
    title: str
    over: str | Mapping[str, str]
    panels: Mapping[str, Lines]
    sentences: Sequence[str] = ()
    tables: Sequence[Sheet] = ()
    measured: str = ""
    log: bool = False
    ticked: bool = True
    limits: tuple[float | None, float | None] = (None, None)
    levels: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    chosen: Mapping[str, Sequence[float]] = field(default_factory=dict)
    baseline: str | None = None
    left_out: Sequence[str] = ()
    alike: bool = False

    def study(self, styles: LineStyles) -> ReportSection:
        return ReportSection.of_chart(self.chart(styles), self.sentences, self.tables)

    def chart(self, styles: LineStyles) -> Chart:
        """Return a panel of lines with their intervals for each group.

        Args:
            styles: The looks of methods; other lines get their own.
        """
        names = list(dict.fromkeys(line for lines in self.panels.values() for line in lines))
        looks = {**line_styles(names, self.baseline), **{name: styles[name] for name in names if name in styles}}
        across = min(3, len(self.panels))
        return Chart(
            panels=[self._panel(title, index % across == 0, looks) for index, title in enumerate(self.panels)],
            title=self.title,
            file=self.file,
            columns=3,
            width=1.8 + (4.0 if across > 1 else 4.8) * across,
            height=0.8 + 3.1 * -(-len(self.panels) // 3),
            legend="below",
            share_y=self.alike,
        )

    def _panel(self, title: str, is_first: bool, looks: LineStyles) -> Panel:
        drawn = [(name, rows) for name, rows in self.panels[title].items() if name not in self.left_out][:MOST_LINES]
        marks: list[Mark] = [_line(name, rows, looks[name]) for name, rows in drawn]
        for name, rows in drawn:
            ringed = rows[rows["x"].isin(self.chosen.get(name, ()))]
            marks.append(ring(ringed["x"], ringed["value"], looks[name]))
        if title in self.levels:
            value, name = self.levels[title]
            marks.append(Level(at=value, name=name))

        over = self.over if isinstance(self.over, str) else self.over[title]
        ticks = tick_texts(np.concatenate([rows["x"] for _, rows in drawn])) if self.ticked and drawn else {}
        start = (0 if not self.log and not self.ticked else None, None)
        y = Axis(title=self.measured if is_first else "", limits=self.limits)
        return Panel(marks=marks, title=title, x=Axis(title=over, log=self.log, ticks=ticks, limits=start), y=y)


def _line(name: str, rows: pd.DataFrame, look: LineStyle) -> Line:
    if "ci" in rows:
        return Line(x=rows["x"], y=rows["value"], name=name, look=look, error=rows["ci"], markers=True)
    return Line(x=rows["x"], y=rows["value"], name=name, look=look, low=rows["low"], high=rows["high"])


def frame(rows: Iterable[tuple[float, ...]], *more: str) -> pd.DataFrame:
    """Return rows of `x`, `value`, `ci` and more columns, by x."""
    return pd.DataFrame(rows, columns=["x", "value", "ci", *more]).sort_values("x", ignore_index=True)


def value_table(title: str, caption: str, corner: str, lines: Lines, number: str = ".2f", unit: str = "") -> Sheet:
    """Tabulate lines: a row each, a column per value of the number.

    Args:
        title: The table's title.
        caption: Its explanation.
        corner: The header of the names.
        lines: The lines.
        number: The format of the values.
        unit: What stands behind each value of the number.
    """
    x_values = all_x(lines.values())
    rows = []
    for name, of_line in lines.items():
        texts = {
            x: with_width(value, ci, number) for x, value, ci in of_line[["x", "value", "ci"]].itertuples(index=False)
        }
        rows.append((name, *(texts.get(x, EMPTY) for x in x_values)))
    return text_sheet(title, caption, (corner, *(f"{x:g}{unit}" for x in x_values)), tuple(rows))


def all_x(frames: Iterable[pd.DataFrame]) -> list[float]:
    """Return the values of the number, each once."""
    return sorted({float(x) for rows in frames for x in rows["x"]})


def spans(frames: Iterable[pd.DataFrame], ratio: float) -> bool:
    """Return whether the values lie so far apart that their axis is logarithmic."""
    values = all_x(frames)
    return values[0] > 0 and values[-1] / values[0] >= ratio


def is_number(value: object) -> bool:
    """Return whether a setting is a number that an axis can have."""
    return isinstance(value, int | float) and not isinstance(value, bool)
