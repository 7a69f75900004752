"""Both renderers show every mark of a chart, and what the marks say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure as Drawing

from mtlscale.report.charts.alt_text import described
from mtlscale.report.charts.canvas import save
from mtlscale.report.charts.chart import Axis, Bars, Chart, ChartText, Dots, HeatMap, Image, Level, Line, Panel, of_file
from mtlscale.report.charts.colors import LineStyle
from mtlscale.report.charts.matplotlib_renderer import draw
from mtlscale.report.charts.plotly_renderer import plot

RED = LineStyle("#bc4049", symbol="square", dash="dash")
LINES = Panel(
    marks=[
        Line(x=[1, 2, 3], y=[1.0, float("nan"), 3.0], name="<b>one", look=RED, low=[0, 1, 2], high=[2, 3, 4]),
        Line(x=[1, 2, 3], y=[3.0, 2.0, 1.0], name="two", error=[0.1, float("nan"), 0.3], markers=True),
        Line(x=[1, 3], y=[2, 2], hover="", arrow=True),
        Level(at=2.5, name="level"),
        Level(at=2, axis="x"),
        ChartText(x=2, y=3, text="a <text>", boxed=True),
        ChartText(x="right", y=1, text="edge", anchor="left"),
    ],
    title="lines $x$",
    x=Axis(title="epoch", whole=True),
    y=Axis(title="loss", limits=(0, None)),
)
DOTS = Panel(
    marks=[
        Dots(x=[1.0, 100.0], y=["a", "b"], looks=[RED, LineStyle("#1b6cc7")], names=["n<1", "n2"], notes=["", "!"],
             listed=True, labels=["n1", ""], x_error=[0.5, float("nan")], size=[5, 9], ringed=[True, False]),
        Dots(x=[10.0], y=["a"], hollow=True, legend="hollow", aside=True),
    ],
    x=Axis(log=True),
    y=Axis(names=["a", "b"], ticks={"a": "A"}),
)  # fmt: skip
BARS = Panel(
    marks=[
        Bars(at=["a", "b"], length=[0.25, 0.5], lying=True, name="first", texts=["¼", "½"]),
        Bars(at=["a", "b"], length=[0.75, 0.5], base=[0.25, 0.5], lying=True, name="second", error=[0.1, 0.1]),
    ],
    y=Axis(names=["a", "b"]),
)
HEAT = Panel(
    marks=[HeatMap(values=np.array([[1.0, np.nan], [-1.0, 0.5]]), texts=[["1", ""], ["−1", "½"]], scale=True)],
    x=Axis(names=["x", "y"]),
    y=Axis(names=["a", "b"], reverse=True),
)
IMAGE = Panel(marks=[Image(pixels=np.zeros((4, 6, 3)))], x=Axis(visible=False), y=Axis(visible=False))


def chart(*panels: Panel, **fields: Any) -> Chart:
    return Chart(panels=panels, legend="right", columns=3, **fields)


@pytest.fixture
def every() -> Chart:
    return chart(
        LINES, DOTS, BARS, HEAT, Panel(marks=[]), IMAGE, title="all <of> it", note="a note", key=[("red", "r")]
    )


def drawn_texts(figure: Drawing) -> list[str]:
    from matplotlib.text import Text as Drawn

    return [text.get_text() for text in figure.findobj(Drawn)]


def test_a_file_has_every_mark(every: Chart, tmp_path: Path) -> None:
    figure = draw(every)
    lines, dots, bars, heat, empty, image, *_ = figure.axes
    assert {"all <of> it", "a note", "lines $x$", "a <text>", "edge", "n1", "½", "−1", "epoch", "A"} <= set(
        drawn_texts(figure)
    )
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert set(legend) == {"<b>one", "two", "level", "n<1", "n2!", "hollow", "first", "second", "r"}
    assert [len(axes.containers) for axes in (lines, bars)] == [3, 4 - 1]  # lines, and two of bars with one's errors
    assert len(dots.collections) >= 3
    [band] = [mark for mark in lines.collections if isinstance(mark, PolyCollection)]
    assert band.get_datalim(lines.transData).extents.tolist() == [1, 0, 3, 4]
    assert dots.get_xscale() == "log" and lines.get_ylim()[0] == 0
    assert heat.images and image.images and not empty.axison
    assert heat.yaxis_inverted() and image.yaxis_inverted()  # first rows stand above
    assert save(figure, tmp_path / "every.png").stat().st_size > 10_000


def test_a_page_has_every_mark_and_escapes_names(every: Chart) -> None:
    figure = plot(every)
    kinds = [trace.type for trace in figure.data]
    assert kinds == ["scatter"] * 6 + ["bar"] * 2 + ["heatmap", "image"]  # the band is a line
    assert [trace.name for trace in figure.data[:-1] if trace.showlegend] == [
        "&lt;b&gt;one",
        "two",
        "hollow",
        "first",
        "second",
    ]
    assert {"lines $x$", "a &lt;text&gt;", "edge"} <= {note.text for note in figure.layout.annotations}
    named, unnamed = figure.layout.shapes
    assert named.showlegend and named.name == "level" and not unnamed.showlegend
    assert (unnamed.x0, unnamed.x1, unnamed.yref) == (2, 2, "y domain")
    assert figure.layout.xaxis2.type == "log" and list(figure.layout.yaxis2.ticktext) == ["A", "b"]
    assert list(figure.data[4].customdata) == ["n&lt;1", "n2"] and figure.layout.yaxis4.autorange == "reversed"
    assert figure.layout.yaxis.rangemode == "tozero" and list(figure.data[7].base) == [0.25, 0.5]


def test_panels_stand_in_rows_and_one_title_serves_a_column() -> None:
    epochs = Axis(title="epoch")
    panel = Panel(marks=[Line(x=[1, 2], y=[1, 2])], x=epochs, title="one")
    grid = chart(*[panel] * 5)
    assert [grid.x_title(index) for index in range(5)] == ["", "", "epoch", "epoch", "epoch"]
    layout = plot(grid).layout
    assert layout.xaxis.domain[1] < layout.xaxis2.domain[0] and layout.yaxis4.domain[1] < layout.yaxis.domain[0]


def test_charts_of_one_file_stand_below_each_other() -> None:
    one, two = chart(LINES, file="x"), chart(BARS, file="x")
    files = of_file([one, two, chart(DOTS)])
    assert list(files) == ["x"] and len(draw(*files["x"]).subfigs) == 2


def test_a_chart_is_described_by_its_marks(every: Chart) -> None:
    words = described(every)
    assert "<b>one from 1 to 3; two from 3 to 1" in words and "2 rows by 2 columns: highest 1 (a, x)" in words
    assert described(chart(LINES, words="said so")) == "said so"


def test_one_point_is_a_dot() -> None:
    single = chart(Panel(marks=[Line(x=[1], y=[2.0], name="alone")]))
    assert plot(single).data[0].mode == "lines+markers" and draw(single).axes[0].lines[0].get_marker() == "o"


@pytest.mark.parametrize(("last", "step"), [(1, 1), (4, 1), (8, 1), (9, 2), (40, 5), (41, 10), (3000, 500)])
def test_ticks_of_a_whole_axis_are_whole(last: int, step: int) -> None:
    panel = Panel(marks=[Line(x=range(last + 1), y=range(last + 1))], x=Axis(title="trials", whole=True))
    axis = plot(Chart(panels=[panel], title="x", note="")).layout.xaxis
    assert (axis.tick0, axis.dtick, axis.tickformat) == (0, step, ",d")
