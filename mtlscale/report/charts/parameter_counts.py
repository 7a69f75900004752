"""Gain of each method over the baseline against the size of its network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mtlscale.report.charts.canvas import new_figure, style
from mtlscale.report.charts.colors import GREY, LineStyles, line_styles
from mtlscale.report.charts.plotly_canvas import interval, label, new_plot
from mtlscale.report.formats.number_format import EMPTY
from mtlscale.report.stats.pareto import FLOOR, pareto

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

    from mtlscale.report.tables.table import Table

MOST_METHODS = 30


def sized(table: Table) -> pd.DataFrame:
    """Return the methods' sizes and gains for a chart.

    Returns:
        By method: `parameters`, `gain` (Δ), half its interval `ci`, and whether no method has a higher gain with as few
        parameters (`front`). Only the best methods, those on the front, baseline and reference; empty where there is
        no Δ, or all networks are of one size.
    """
    rows = table.rows.drop(index=FLOOR, errors="ignore")
    rows = rows[(rows["parameters"] > 0) & rows["delta_i"].notna()]

    points = rows[["parameters", "delta_i", "delta_i_ci"]].set_axis(["parameters", "gain", "ci"], axis=1)
    if points["parameters"].nunique() < 2:
        points = points.iloc[:0]
    points = points.assign(front=pareto(points["parameters"].to_numpy(float), points["gain"].to_numpy(float)))

    always_shown = points["front"] | points.index.isin([table.baseline, table.reference])
    return points[always_shown | (np.arange(len(points)) < MOST_METHODS)]


def parameter_figure(table: Table, styles: LineStyles | None = None) -> Drawing:
    """Draw Δ with its interval against the number of parameters, the front as a line; baseline and reference larger."""
    from matplotlib.ticker import LogLocator, NullFormatter

    points = sized(table)
    styles = styles or line_styles([str(method) for method in points.index], table.baseline)

    with style():
        figure = new_figure(7.6, 4.2)
        panel = figure.subplots()
        panel.set_xscale("log")

        front = points[points["front"]].sort_values("parameters")
        panel.plot(front["parameters"], front["gain"], color=GREY, linewidth=1.1, linestyle="--", zorder=1)

        roles = {table.baseline: " (baseline)", table.reference: " (reference)"}
        for method, row in points.iterrows():
            special = method in (table.baseline, table.reference)
            panel.errorbar(
                row["parameters"],
                row["gain"],
                yerr=None if np.isnan(row["ci"]) else row["ci"],
                fmt=styles[str(method)].marker,
                color=styles[str(method)].color,
                markersize=8 if special else 6,
                markeredgecolor="#1f2328" if row["front"] else "none",
                markeredgewidth=1.2,
                capsize=2.5,
                elinewidth=0.9,
                label=f"{method}{roles.get(str(method), '')}",
            )
            if special or row["front"]:  # to the left of and above the front there is nothing else
                side: dict[str, Any] = (
                    {"ha": "right", "xytext": (-6, 5)} if row["front"] else {"ha": "left", "xytext": (7, 5)}
                )
                panel.annotate(str(method), (row["parameters"], row["gain"]), textcoords="offset points", **side)

        panel.axhline(0.0, color=GREY, linewidth=0.8, linestyle=":", zorder=0)
        panel.xaxis.set_major_formatter(lambda value, _: count_text(value))
        panel.xaxis.set_major_locator(
            LogLocator(subs=(1.0, 2.0, 5.0) if _wide(points) else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
        )
        panel.xaxis.set_minor_formatter(NullFormatter())

        panel.set_xlabel("parameters")
        panel.set_title(f"Δ over {table.baseline}, %, against parameters (ringed, dashed: the Pareto front)")
        figure.legend(loc="outside right upper", frameon=False, fontsize=8, ncols=1 + len(points) // 24)
    return figure


def parameter_plot(table: Table, styles: LineStyles | None = None) -> Figure:
    """Draw the same chart for the page."""
    points = sized(table)
    styles = styles or line_styles([str(method) for method in points.index], table.baseline)
    figure = new_plot(380)

    front = points[points["front"]].sort_values("parameters")
    figure.add_scatter(
        x=front["parameters"].tolist(),
        y=front["gain"].tolist(),
        mode="lines",
        line={"color": GREY, "width": 1, "dash": "dash"},
        hoverinfo="skip",
    )

    special = [method in (table.baseline, table.reference) for method in points.index]
    figure.add_scatter(
        x=points["parameters"].tolist(),
        y=points["gain"].tolist(),
        error_y=interval(points["ci"]),
        text=[label(method) for method in points.index],
        textposition="top center",
        mode="markers+text" if len(points) <= 20 else "markers",
        marker={
            "size": [14 if marked else 10 for marked in special],
            "color": [styles[str(method)].color for method in points.index],
            "symbol": [styles[str(method)].symbol for method in points.index],
            "line": {"width": [2.0 if marked else 0.0 for marked in points["front"]], "color": GREY},
        },
        hovertemplate="%{text}: %{y:+.3g} % with %{x:,.4g} parameters<extra></extra>",
    )

    figure.update_xaxes(title="parameters", type="log")
    figure.update_yaxes(title=f"Δ over {label(table.baseline)}, %")
    return figure


def count_text(value: float) -> str:
    """Format a count in three digits: 12,300,000 as 12.3 M."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}" if value > 0 else EMPTY


def _wide(points: pd.DataFrame) -> bool:
    return bool(points["parameters"].max() / points["parameters"].min() > 4)
