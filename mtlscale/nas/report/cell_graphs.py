"""The cells of a genotype as graphs: two inputs, nodes, an operation on each edge between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mtlscale.records import RunRecord
from mtlscale.report.charts.chart import Axis, Chart, ChartText, Dots, Line, Mark, Panel
from mtlscale.report.charts.colors import LineStyle
from mtlscale.report.stats.traces import MOST_METHODS

Cells = Mapping[str, Sequence[Sequence[tuple[str, int]]]]  # cell -> node -> edges: operation, and the state it reads
Point = tuple[float, float]
INPUTS = ("k−2", "k−1")  # the outputs of the two cells before


def drawable(records: Sequence[RunRecord]) -> dict[str, Cells]:
    """Return the cells that each method's newest finished run has chosen.

    They are `cells` of the run's structure.
    """
    cells_of: dict[str, Cells] = {}
    for record in records:
        cells: Any = record.structure.get("cells")
        if record.status == "finished" and isinstance(cells, Mapping) and cells:
            cells_of[record.method] = {
                str(name): [[(str(operation), int(state)) for operation, state in node] for node in nodes]
                for name, nodes in cells.items()
            }
    return cells_of


def places(nodes: int) -> list[Point]:
    """Return the positions of the two inputs and the nodes.

    Inputs are at the left and nodes on a bow, so that few edges cover each other.
    """
    middle = (nodes - 1) / 2
    return [
        (0.0, 1.0),
        (0.0, -1.0),
        *((1.2 + node, 0.9 * (-1) ** node * (1 - abs(node - middle) / nodes)) for node in range(nodes)),
    ]


def cell_chart(cells: Cells, title: str, file: str = "") -> Chart:
    """Return all kinds of cells beside each other."""
    return Chart(
        panels=[_panel(name, nodes) for name, nodes in cells.items()],
        title=f"Cells, {title}",
        note="The operations that were chosen, of the newest run; k−1 and k−2 are the cells before.",
        file=file,
        columns=len(cells),
        width=5.2 * len(cells),
    )


def _panel(name: str, nodes: Sequence[Sequence[tuple[str, int]]]) -> Panel:
    spots = places(len(nodes))
    marks: list[Mark] = []
    for node, edges in enumerate(nodes):
        for side, (operation, state) in enumerate(edges):
            x, y = _bow(spots[state], spots[2 + node], 0.18 if side else -0.18)
            text = f"{_name(state)} → {_name(2 + node)}: {operation}"
            marks.append(Line(x=x, y=y, look=LineStyle("#8a9099"), arrow=True, hover=text))
            marks.append(ChartText(x=x[len(x) // 2], y=y[len(y) // 2], text=operation, size=7, boxed=True))

    colors = ["#1b6cc7" if number < 2 else "#a55401" for number in range(len(spots))]
    xs, ys = zip(*spots, strict=True)
    names = [_name(number) for number in range(len(spots))]
    marks.append(Dots(x=xs, y=ys, looks=[LineStyle(color) for color in colors], inside=names, names=names, size=19,
                      hover="{name}"))  # fmt: skip
    hidden = Axis(visible=False, grid=False)
    return Panel(
        marks=marks, title=f"{name} cell", x=replace(hidden, limits=(-0.4, xs[-1] + 0.4)), y=hidden, equal=True
    )


def _bow(start: Point, end: Point, bend: float) -> tuple[list[float], list[float]]:
    """Return the bow between two points, free of the circles at its ends."""
    (x0, y0), (x1, y1) = start, end
    along = np.linspace(0.15, 0.83, 15)
    height = 2 * along * (1 - along) * bend
    x = x0 + along * (x1 - x0) + height * (y1 - y0)
    y = y0 + along * (y1 - y0) - height * (x1 - x0)
    return x.tolist(), y.tolist()


def _name(number: int) -> str:
    return INPUTS[number] if number < 2 else str(number - 2)


def cell_charts(records: Sequence[RunRecord], titles: Mapping[str, str], files: Mapping[str, str]) -> Iterator[Chart]:
    """Yield the chart of each method's searched cells."""
    for method, cells in list(drawable(records).items())[:MOST_METHODS]:
        yield cell_chart(cells, titles[method], f"cells_{files[method]}")
