"""Every mark of a chart is in its file and in its specification, with what the marks say."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Picture

from mtlscale.report.charts.alt_text import described
from mtlscale.report.charts.chart import Axis, Bars, Chart, ChartText, Dots, HeatMap, Image, Level, Line, Panel, of_file
from mtlscale.report.charts.colors import LineStyle
from mtlscale.report.charts.vega import FILE, save, specification

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


def texts(charts: Sequence[Chart], folder: Path) -> list[str]:
    """Return the texts of a file of charts."""
    svg = save(charts, folder / "chart.svg").read_text()
    return [unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


def rows_of(spec: dict[str, Any], panel: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Return kind of mark -> the rows of a panel."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for layer in spec["concat"][panel]["layer"]:
        rows.setdefault(layer["mark"]["type"], []).extend(layer["data"]["values"])
    return rows


def test_a_file_has_every_mark(every: Chart, tmp_path: Path) -> None:
    drawn = texts([every], tmp_path)
    assert {"all <of> it", "a note", "lines $x$", "a <text>", "edge", "n1", "½", "−1", "epoch", "A"} <= set(drawn)
    legend = ["<b>one", "two", "level", "n<1", "n2!", "hollow", "first", "second", "r"]
    assert [text for text in drawn if text in legend] == legend
    with Picture.open(save([every], tmp_path / "every.png")) as image:
        assert image.width == pytest.approx(7.0 * 150, abs=20)
        colors = {color for _, color in image.convert("RGB").getcolors(1_000_000) or ()}
    assert {(0xBC, 0x40, 0x49), (0x1B, 0x6C, 0xC7), (0xE6, 0xE8, 0xEC), (0, 0, 0)} <= colors


def test_rows_hold_the_marks(every: Chart) -> None:
    spec = specification(every)
    lines, dots, bars, heat, empty, image = (rows_of(spec, panel) for panel in range(6))
    assert [(row["x"], row["y"], row["y2"]) for row in lines["area"]] == [
        (1.0, 0.0, 2.0),
        (2.0, 1.0, 3.0),
        (3.0, 2.0, 4.0),
    ]
    assert [row["y"] for row in lines["line"]] == [1.0, None, 3.0, 3.0, 2.0, 1.0, 2.0, 2.0]
    assert [row["hover"] for row in lines["point"] if "hover" in row][:2] == [
        "<b>one, epoch 1: 1",
        "<b>one, epoch 3: 3",
    ]
    assert [row["turn"] for row in lines["point"] if "turn" in row] == [90.0]  # an arrow head to the right
    # Levels, and both lines with an interval.
    assert [(row.get("y"), row.get("y2")) for row in lines["rule"]] == [
        (2.5, None), (None, None), (2.9, 3.1), (2.0, 2.0), (0.7, 1.3),
    ]  # fmt: skip
    assert [row["hover"] for row in dots["point"]][:2] == ["n<1: a at 1", "n2!: b at 100"]
    assert [(row["x"], row["x2"]) for row in dots["rule"]] == [(0.5, 1.5)]
    assert [(row["x"], row["x2"], row["y"]) for row in bars["rect"]] == [
        (0.0, 0.25, "a"), (0.0, 0.5, "b"), (0.25, 1.0, "a"), (0.5, 1.0, "b"),
    ]  # fmt: skip
    assert [row["value"] for row in heat["rect"]] == [1.0, None, -1.0, 0.5]
    assert [row["color"] for row in heat["text"]] == ["white", "white", "white", "black"]
    assert not empty["point"] and image["image"][0]["url"].startswith("data:image/png;base64,")
    assert json.loads(json.dumps(spec, allow_nan=False)) == spec


def test_axes_are_as_they_are_told(every: Chart) -> None:
    first, second, _, fourth, *_ = (part["encoding"] for part in specification(every)["concat"])
    assert first["y"]["scale"]["domainMin"] == 0 and first["y"]["scale"]["zero"]
    assert second["x"]["scale"]["type"] == "log" and second["x"]["axis"]["values"] == [1, 10, 100]
    assert second["y"]["scale"]["domain"] == ["b", "a"] and '["A", "b"]' in second["y"]["axis"]["labelExpr"]
    assert fourth["y"]["scale"]["domain"] == ["a", "b"] and fourth["x"]["scale"]["domain"] == ["x", "y"]
    assert first["x"]["axis"]["tickMinStep"] == 1


def test_hover_texts_keep_braces_of_names() -> None:
    dots = Dots(x=[1.0], y=[0.5], names=["{y} {z:1}"], hover="{name} {other}: {y:.1%}")
    [row] = rows_of(specification(Chart(panels=[Panel(marks=[dots])])))["point"]
    assert row["hover"] == "{y} {z:1} {other}: 50.0%"


def test_names_beside_points_that_limits_leave_out_are_left_out() -> None:
    dots = Dots(x=[1.0, 2.0], y=[1.0, 9.0], labels=["near", "far"])
    drawn = rows_of(specification(Chart(panels=[Panel(marks=[dots], y=Axis(limits=(0.0, 2.0)))])))
    assert [row["text"] for row in drawn["text"]] == ["near"]


def test_panels_stand_in_rows_and_one_title_serves_a_column() -> None:
    panel = Panel(marks=[Line(x=[1, 2], y=[1, 2])], x=Axis(title="epoch"), title="one")
    spec = specification(chart(*[panel] * 5))
    assert spec["columns"] == 3
    assert [part["encoding"]["x"]["title"] for part in spec["concat"]] == [None, None, "epoch", "epoch", "epoch"]


def test_charts_of_one_file_stand_below_each_other(tmp_path: Path) -> None:
    one, two = chart(LINES, file="x", title="one chart", note="said"), chart(BARS, file="x", title="two", note="said")
    files = of_file([one, two, chart(DOTS)])
    assert list(files) == ["x"]
    drawn = texts(files["x"], tmp_path)
    assert drawn.index("one chart") < drawn.index("two") and drawn.count("said") == 1


def test_a_chart_is_described_by_its_marks(every: Chart) -> None:
    words = described(every)
    assert "<b>one from 1 to 3; two from 3 to 1" in words and "2 rows by 2 columns: highest 1 (a, x)" in words
    assert described(chart(LINES, words="said so")) == "said so"


def test_one_point_is_a_dot() -> None:
    single, both = (
        rows_of(specification(chart(Panel(marks=[Line(x=x, y=x, name="alone")]))))["point"] for x in ([1], [1, 2])
    )
    assert [row.get("opacity") for row in (*single, *both)] == [1.0, None, 0.0, 0.0, None]  # and those of the legend


def test_no_file_is_higher_than_4000_pixels(tmp_path: Path) -> None:
    high = Chart(panels=[Panel(marks=[Line(x=[1, 2], y=[1, 2])])], width=4.0, height=50.0)
    with Picture.open(save([high], tmp_path / "high.png")) as image:
        assert 3990 <= image.height <= 4000 and image.width < 4.0 * 150


def test_a_page_has_titles_outside_of_charts(every: Chart) -> None:
    assert "title" not in specification(every) and specification(every, FILE)["title"] == "all <of> it"
