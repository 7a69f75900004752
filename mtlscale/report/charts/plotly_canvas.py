"""Shared parts of all interactive charts: panels, legends and labels of plotly.

Plotly reads labels as a small HTML of its own, so names that the user gave are escaped here.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mtlscale.report.charts.colors import GREY, LineStyles

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def new_plot(height: int) -> Figure:
    """Return an empty chart without a legend; its height is in pixels."""
    from plotly.graph_objects import Figure

    axis = {"automargin": True, "zeroline": False}
    base = {"template": "none", "height": height, "showlegend": False, "margin": margin(top=16)}
    return Figure(layout={**base, "xaxis": axis, "yaxis": axis})


def panel_grid(titles: Sequence[str], *, across: int = 3, height: int = 260, over: str = "epoch") -> Figure:
    """Return a chart of panels side by side; `cell` is a panel's place.

    Args:
        titles: The title of each panel.
        across: The number of panels in a row.
        height: The height of a row in pixels.
        over: The title of the x axis, below the last panel of each column.
    """
    from plotly.subplots import make_subplots

    columns = min(across, len(titles))
    rows = -(-len(titles) // columns)

    labels, gap = [label(title) for title in titles], 0.07 if across <= 3 else 0.04
    figure = make_subplots(rows, columns, subplot_titles=labels, vertical_spacing=0.3 / rows, horizontal_spacing=gap)
    figure.update_layout(template="none", height=60 + height * rows, margin=margin(top=36 if any(titles) else 16))

    if across > 3:
        figure.update_annotations(font_size=12)

    figure.update_xaxes(automargin=True, zeroline=False)
    figure.update_yaxes(automargin=True, zeroline=False)

    for index in range(max(0, len(titles) - columns), len(titles)):
        figure.update_xaxes(title={"text": over, "standoff": 6}, **cell(index, len(titles), across))
    return figure


def with_legend(figure: Figure) -> Figure:
    """Add a legend below the panels, with room for its lines."""
    names = [trace.name for trace in figure.data if trace.showlegend]
    lines = 1 + sum(len(name) + 7 for name in names) // 60
    room = 46 + 20 * lines
    figure.update_layout(hovermode="x unified", showlegend=True, height=figure.layout.height + room)
    legend = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"}
    figure.update_layout(margin={"b": room}, legend=legend)
    return figure


def by_rows(figure: Figure, height: int) -> Figure:
    """Record the height of a row in the figure: the page shrinks it where a filter leaves fewer rows."""
    figure.update_layout(meta={"row": height})
    return figure


def at_line(figure: Figure, x: float) -> None:
    """Draw a dotted line from bottom to top at `x`.

    Plotly's own function takes as long as all the rest of a figure.
    """
    line = {"dash": "dot", "width": 1, "color": GREY}
    figure.layout.shapes = (
        {"type": "line", "xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1, "line": line},
    )


def lines_with_intervals(
    panels: Mapping[str, Mapping[str, pd.DataFrame]], value: str, styles: LineStyles, over: str
) -> Figure:
    """Draw a panel of lines with intervals for each group.

    Args:
        panels: Title of a panel -> name of a line -> its rows of `x`, the value and `ci`, half its interval.
        value: The column of the value.
        styles: The look of each line.
        over: The title of the x axis.
    """
    figure = panel_grid(list(panels), over=over)
    labelled: set[str] = set()

    for index, lines in enumerate(panels.values()):
        for name, rows in lines.items():
            figure.add_scatter(
                x=rows["x"].tolist(),
                y=rows[value].tolist(),
                error_y=interval(rows["ci"]),
                mode="lines+markers",
                name=label(name),
                legendgroup=name,
                showlegend=name not in labelled,
                line={"color": styles[name].color, "dash": styles[name].dash},
                marker={"symbol": styles[name].symbol},
                **cell(index, len(panels)),
            )
            labelled.add(name)

    return with_legend(figure)


def interval(widths: pd.Series[float]) -> dict[str, Any]:
    """Return plotly's error bars from half intervals."""
    return {"type": "data", "array": numbers(widths), "thickness": 1.4, "width": 4, "color": GREY}


def margin(top: int) -> dict[str, int]:
    """Return the margins of a chart in pixels."""
    return {"l": 10, "r": 16, "t": top, "b": 30}


def cell(index: int, count: int, across: int = 3) -> dict[str, int]:
    """Return the place of a panel: its row and column, from 1."""
    columns = min(across, count)
    return {"row": index // columns + 1, "col": index % columns + 1}


def label(text: Any) -> str:
    """Escape a text for plotly's labels."""
    return html.escape(str(text))


def numbers(values: pd.Series[float]) -> list[float | None]:
    """Return the values with None for NaN, which JSON does not have."""
    return [None if np.isnan(value) else float(value) for value in values]


def grid(values: np.ndarray) -> list[list[float | None]]:
    """Return the rows of a matrix with None for NaN."""
    return [numbers(pd.Series(row)) for row in values]


def faint(color: str) -> str:
    """Return a hexadecimal colour as a nearly transparent one."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.14)"
