"""A chart as data: panels of marks, which `vega` draws into files and for pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mtlscale.report.charts.colors import GREY, LineStyle

Values = Sequence[Any] | NDArray[Any] | pd.Series | pd.Index  # numbers, or names of the axis
PLAIN, DASHED, DOTTED = LineStyle(GREY), LineStyle(GREY, dash="dash"), LineStyle(GREY, dash="dot")
INK = "#1f2328"
MOST_LINES = 12  # tasks that get a line each, or numbers in the cells of a heat map


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line through points, with a band or with error bars.

    Attributes:
        name: The line's entry in the legend.
        low: The lower end of the band, with `high`.
        error: Half the interval at each point.
        step: Whether it goes in steps, each value holding until the next.
        arrow: Whether it ends in an arrow head.
        hover: The text under the mouse, with `{y}`; "" for none, and the line is then left out of descriptions.
    """

    x: Values
    y: Values
    name: str = ""
    look: LineStyle = PLAIN
    low: Values | None = None
    high: Values | None = None
    error: Values | None = None
    markers: bool = False
    width: float = 1.5
    step: bool = False
    arrow: bool = False
    hover: str = "{y:.4g}"

    @property
    def dotted(self) -> bool:
        """Whether its points are marked; one point makes no line."""
        return self.markers or len(self.x) == 1


@dataclass(frozen=True, kw_only=True)
class Dots:
    """Points.

    Attributes:
        looks: The look of all points, or of each.
        legend: The entry of all points in the legend.
        names: What each point stands for, under the mouse and in the legend of a file, where `listed`.
        notes: What is said of each point beside its name.
        labels: The text beside each point, "" for none.
        inside: The text in each point.
        x_error: Half the interval of each point.
        size: The diameter of all points, or of each, in printer's points.
        ringed: Whether a point has a dark edge.
        hollow: Whether a point is an edge alone.
        hover: The text under the mouse, with `{name}`, `{note}`, `{x}` and `{y}`.
        aside: Whether descriptions in words leave the points out.
    """

    x: Values
    y: Values
    looks: LineStyle | Sequence[LineStyle] = PLAIN
    legend: str = ""
    names: Sequence[str] = ()
    notes: Sequence[str] = ()
    listed: bool = False
    labels: Sequence[str] = ()
    inside: Sequence[str] = ()
    x_error: Values | None = None
    y_error: Values | None = None
    size: float | Sequence[float] = 7.0
    ringed: Sequence[bool] = ()
    hollow: bool | Sequence[bool] = False
    opacity: float = 1.0
    hover: str = "{name}{note}: {y:.4g} at {x:.4g}"
    aside: bool = False

    @property
    def look_of_each(self) -> list[LineStyle]:
        return [self.looks] * len(self.x) if isinstance(self.looks, LineStyle) else list(self.looks)

    def of_each(self, value: Any, default: Any) -> list[Any]:
        """Return a field that holds one value, or one for each point, or none, as a value for each."""
        if isinstance(value, bool | int | float):
            return [value] * len(self.x)
        return list(value) if len(value) else [default] * len(self.x)


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Bars from `base` (default: 0), upright or lying.

    Attributes:
        at: The position of each bar on its axis, a number or a name.
        offset: From the position to the bar's edge; default: the bar is centred.
        name: The entry of all bars in the legend.
        colors: The colour of all bars, or of each.
        texts: The text in each bar.
        notes: What is said of each bar under the mouse beside its length.
        hover: The text under the mouse, with `{at}`, `{length}` and `{note}`.
    """

    at: Values
    length: Values
    base: Values | None = None
    width: float = 0.8
    offset: float | None = None
    name: str = ""
    colors: str | Sequence[str] = GREY
    error: Values | None = None
    lying: bool = False
    texts: Sequence[str] = ()
    notes: Sequence[str] = ()
    hover: str = "{at}: {length:.4g}{note}"


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """Coloured cells [rows, columns]; the axes hold the names.

    Attributes:
        shown: The numbers under the mouse, where the colours stand for others.
        texts: The text in each cell.
        low: The number of the first colour; default: the least.
        colors: The colours, a scheme of Vega's.
        scale: Whether the chart explains the colours.
        hover: The text under the mouse, with `{row}`, `{column}` and `{value}`.
    """

    values: NDArray[Any]
    shown: NDArray[Any] | None = None
    texts: Sequence[Sequence[str]] = ()
    low: float | None = None
    high: float | None = None
    colors: Literal["redblue", "viridis", "blues"] = "redblue"
    scale: bool = False
    hover: str = "{row}, {column}: {value:.4g}"


@dataclass(frozen=True, kw_only=True)
class Image:
    """Pixels [H, W, 3], bytes or numbers from 0 to 1."""

    pixels: NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Level:
    """A line across the panel at one value of an axis, with an entry in the legend where it has a name."""

    at: float
    axis: Literal["x", "y"] = "y"
    name: str = ""
    look: LineStyle = DASHED


@dataclass(frozen=True, kw_only=True)
class ChartText:
    """A text in a panel; `x` may be the left or right edge of the panel, beyond which it then begins or ends."""

    x: Any
    y: Any
    text: str
    color: str = ""
    anchor: Literal["left", "center", "right"] = "center"
    size: float = 8.0
    bold: bool = False
    boxed: bool = False


Mark = Line | Dots | Bars | HeatMap | Image | Level | ChartText


@dataclass(frozen=True, kw_only=True)
class Axis:
    """An axis.

    Attributes:
        names: The names along the axis, from left to right or from bottom to top.
        ticks: Position, or name, -> its text, where not every position is its own text.
        limits: Least and greatest value; None leaves an end to the data.
        reverse: Whether it goes from right to left or from top to bottom.
        whole: Whether only whole numbers have ticks.
        opposite: Whether the ticks of an x axis stand above.
    """

    title: str = ""
    log: bool = False
    names: Sequence[str] = ()
    ticks: Mapping[Any, str] = field(default_factory=dict)
    limits: tuple[float | None, float | None] = (None, None)
    reverse: bool = False
    whole: bool = False
    grid: bool = True
    opposite: bool = False
    visible: bool = True


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Marks on two axes; `weight` is its column's share of the width; without marks it is an empty place."""

    marks: Sequence[Mark]
    title: str = ""
    title_color: str = ""
    x: Axis = field(default_factory=Axis)
    y: Axis = field(default_factory=Axis)
    weight: float = 1.0
    equal: bool = False  # whether both axes have one scale

    def of(self, kind: type[Any]) -> list[Any]:
        """Return the marks of a kind."""
        return [mark for mark in self.marks if isinstance(mark, kind)]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Panels side by side, row by row.

    Attributes:
        title: The title; above the chart on a page.
        note: The sentence that explains the chart.
        file: The name of its file without suffix; charts of one name stand below each other in one file.
        columns: Panels in a row.
        width: Inches, in files; a page has a width of its own.
        legend: Where the legend of a file stands, "" for none; that of a page stands below.
        key: Colour -> text of a legend that explains colours alone.
        row: The height of a row of names in pixels, for pages that leave some out.
        words: The description for readers who do not see the chart; default: made from its marks.
    """

    panels: Sequence[Panel]
    title: str = ""
    note: str = ""
    file: str = ""
    columns: int = 1
    width: float = 7.0
    height: float = 3.6
    legend: Literal["", "right", "below"] = ""
    key: Sequence[tuple[str, str]] = ()
    share_y: bool = False
    row: int = 0
    words: str = ""

    @property
    def across(self) -> int:
        return min(self.columns, len(self.panels))

    @property
    def down(self) -> int:
        return -(-len(self.panels) // self.across)

    def x_title(self, index: int) -> str:
        """Return the title of a panel's x axis; a panel above one of the same title has none."""
        below = index + self.across
        title = self.panels[index].x.title
        return "" if below < len(self.panels) and self.panels[below].x.title == title else title

    @property
    def legend_names(self) -> list[str]:
        """The entries of the legend, each once."""
        marks = [mark for panel in self.panels for mark in panel.marks]
        names = [getattr(mark, "legend", "") or getattr(mark, "name", "") for mark in marks]
        return [name for name in dict.fromkeys(names) if name]


def ring(x: Values, y: Values, look: LineStyle = PLAIN) -> Dots:
    """Return rings around points that were chosen."""
    return Dots(x=x, y=y, looks=look, size=11, hollow=True, hover="chosen", aside=True)


def of_file(charts: Sequence[Chart]) -> dict[str, list[Chart]]:
    """Return file name -> the charts that stand below each other in it."""
    files: dict[str, list[Chart]] = {}
    for chart in charts:
        if chart.file:
            files.setdefault(chart.file, []).append(chart)
    return files


def tick_texts(values: Values) -> dict[float, str]:
    """Return position -> text of ticks at these values alone."""
    return {float(value): f"{value:g}" for value in np.unique(np.asarray(values, dtype=float))}
