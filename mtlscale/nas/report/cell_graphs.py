"""The cells of a genotype as graphs: two inputs, nodes, an operation on each edge between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mtlscale.records import RunRecord
from mtlscale.report.charts.canvas import new_figure, style
from mtlscale.report.charts.plotly_canvas import cell as place_of
from mtlscale.report.charts.plotly_canvas import panel_grid
from mtlscale.report.stats.traces import MOST_METHODS

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

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


def cell_figure(cells: Cells, title: str) -> Drawing:
    """Draw all kinds of cells beside each other."""
    with style():
        figure = new_figure(5.2 * len(cells), 3.6)
        panels = figure.subplots(1, len(cells), squeeze=False)[0]
        for panel, (name, nodes) in zip(panels, cells.items(), strict=True):
            spots = places(len(nodes))
            panel.set_axis_off()
            panel.set_aspect("equal")  # labels lie on the bows
            panel.set_title(f"{title}, {name} cell")

            for node, edges in enumerate(nodes):
                for side, (operation, state) in enumerate(edges):
                    start, end = spots[state], spots[2 + node]
                    bend = 0.18 if side else -0.18
                    arrow = {"arrowstyle": "-|>", "color": "#4a4f57", "shrinkA": 11, "shrinkB": 11,
                             "connectionstyle": f"arc3,rad={bend}"}  # fmt: skip
                    panel.annotate("", end, start, arrowprops=arrow)
                    x, y = _bow(start, end, bend)
                    box = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
                    panel.text(x, y, operation, ha="center", va="center", fontsize=7, bbox=box)

            for number, (x, y) in enumerate(spots):
                panel.plot([x], [y], "o", markersize=19, color="#dbe7f6" if number < 2 else "#f3e3cf", zorder=3)
                panel.text(x, y, _name(number), ha="center", va="center", fontsize=7, zorder=4)
            panel.margins(0.12)

    return figure


def cell_plot(cells: Cells) -> Figure:
    """Draw the same as a plotly figure for the page."""
    figure = panel_grid([f"{name} cell" for name in cells])
    for index, nodes in enumerate(cells.values()):
        spots, subplot = places(len(nodes)), place_of(index, len(cells))

        for node, edges in enumerate(nodes):
            for side, (operation, state) in enumerate(edges):
                (x0, y0), (x1, y1) = spots[state], spots[2 + node]
                x, y = _bow((x0, y0), (x1, y1), 0.18 if side else -0.18)

                figure.add_scatter(
                    x=[x0, x, x1],
                    y=[y0, y, y1],
                    mode="lines+text",
                    text=["", operation, ""],
                    line={"color": "#8a9099", "width": 1.5, "shape": "spline"},
                    hovertemplate=f"{_name(state)} → {_name(2 + node)}: {operation}<extra></extra>",
                    showlegend=False,
                    **subplot,
                )
        figure.add_scatter(
            x=[x for x, _ in spots],
            y=[y for _, y in spots],
            mode="markers+text",
            text=[_name(number) for number in range(len(spots))],
            marker={"size": 30, "color": ["#dbe7f6" if number < 2 else "#f3e3cf" for number in range(len(spots))]},
            hoverinfo="skip",
            showlegend=False,
            **subplot,
        )

    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    return figure


def _bow(start: Point, end: Point, bend: float) -> Point:
    """Return the middle of the bow between two points."""
    (x0, y0), (x1, y1) = start, end
    return (x0 + x1) / 2 + bend * (y1 - y0) / 2, (y0 + y1) / 2 - bend * (x1 - x0) / 2


def _name(number: int) -> str:
    return INPUTS[number] if number < 2 else str(number - 2)


def cell_figures(
    records: Sequence[RunRecord], titles: Mapping[str, str], files: Mapping[str, str]
) -> Iterator[tuple[str, Drawing]]:
    """Yield (file name without suffix, figure) of each method's searched cells."""
    for method, cells in list(drawable(records).items())[:MOST_METHODS]:
        yield f"cells_{files[method]}", cell_figure(cells, method)


def cell_plots(records: Sequence[RunRecord], titles: Mapping[str, str]) -> Iterator[tuple[str, str, Figure]]:
    """Yield (title, explanation, figure) of each method's searched cells for the page."""
    for method, cells in list(drawable(records).items())[:MOST_METHODS]:
        explanation = "The operations that were chosen, of the newest run; k−1 and k−2 are the cells before."
        yield f"Cells, {titles[method]}", explanation, cell_plot(cells)
