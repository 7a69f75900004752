"""Interactive charts of the overall leaderboard."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pandas as pd

from mtlscale.report.charts.colors import GREY, LineStyles, line_styles
from mtlscale.report.charts.label_placement import with_room
from mtlscale.report.charts.plotly_canvas import cell, label, new_plot, panel_grid
from mtlscale.report.formats.number_format import points
from mtlscale.report.overall.multi_dataset import MultiDatasetResult
from mtlscale.report.overall.plots import CHANCES, chances, cost_name, drawn_costs, gain_name

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def figures(result: MultiDatasetResult, styles: LineStyles | None = None) -> list[tuple[str, str, Figure]]:
    """Return (title, explanation, figure) of each chart that has data."""
    styles = styles or line_styles([str(method) for method in result.rows.index], result.baseline)
    titled_figures: list[tuple[str, str, Figure]] = []

    if len(result.ranks):
        explanation = f"Over {len(result.ranks)} data sets, 1 is best; small dots are single data sets."
        if not np.isnan(result.critical_difference):
            explanation += f" Bars are a critical difference ({result.critical_difference:.3g}) wide: methods are told "
            explanation += "apart where they do not overlap."
            if not result.friedman.rejects:
                explanation += f" But ranks differ no more than by chance (Friedman p = {result.friedman.p:.2g})."
        titled_figures.append(("Mean ranks", explanation, _ranks(result, styles)))

    if result.rows["same"].notna().any():
        explanation = (
            f"Against {result.reference}: worse by more than {points(result.rope)} (left), within "
            f"{points(result.rope)} (grey), better by more (right). Bayesian signed-rank test over data sets."
        )
        titled_figures.append(("Probability of being better", explanation, _chances(result)))

    if costs := drawn_costs(result):
        explanation = "Ringed, with a dashed line: no method gains more at as low a cost. Means over data sets."
        titled_figures.append(("Quality and cost over data sets", explanation, _trade(result, costs, styles)))

    return titled_figures


def _ranks(result: MultiDatasetResult, styles: LineStyles) -> Figure:
    means = result.ranks.mean()[::-1]
    figure = new_plot(100 + 24 * len(means))

    names = {method: label(method) for method in means.index}
    singles = cast("pd.Series[float]", result.ranks.stack())
    figure.add_scatter(
        x=singles.tolist(),
        y=[names[method] for _, method in singles.index],
        mode="markers",
        marker={"size": 5, "opacity": 0.45, "color": [styles[str(method)].color for _, method in singles.index]},
        meta="aside",
        customdata=[label(dataset) for dataset, _ in singles.index],
        hovertemplate="%{y}, %{customdata}: %{x:.3g}<extra></extra>",
    )

    half = result.critical_difference / 2
    bars = {"type": "constant", "value": half, "thickness": 1.4, "width": 4, "color": GREY}
    figure.add_scatter(
        x=means.tolist(),
        y=list(names.values()),
        mode="markers",
        marker={
            "size": 10,
            "color": [styles[str(method)].color for method in means.index],
            "symbol": [styles[str(method)].symbol for method in means.index],
        },
        error_x=None if np.isnan(half) else bars,
        hovertemplate="%{y}: %{x:.3f}<extra></extra>",
    )

    figure.update_yaxes(categoryorder="array", categoryarray=list(names.values()))
    figure.update_xaxes(title="mean rank")
    return figure


def _chances(result: MultiDatasetResult) -> Figure:
    probabilities = chances(result)[::-1]
    figure = new_plot(100 + 24 * len(probabilities))
    names = [label(method) for method in probabilities.index]

    for name, color in CHANCES.items():
        figure.add_bar(
            x=probabilities[name].tolist(),
            y=names,
            orientation="h",
            marker={"color": color},
            text=[f"{value:.2f}" if value >= 0.08 else "" for value in probabilities[name]],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            hovertemplate=f"%{{y}}, {'equivalent' if name == 'same' else name}: %{{x:.3f}}<extra></extra>",
        )

    figure.update_layout(barmode="stack", bargap=0.15)
    figure.update_xaxes(range=[0, 1], title="probability")
    return figure


def _trade(result: MultiDatasetResult, costs: list[str], styles: LineStyles) -> Figure:
    figure = panel_grid([""] * len(costs), across=2, height=340, over="")
    for index, cost in enumerate(costs):
        panel_cell = cell(index, len(costs), 2)
        spots = result.trade.dropna(subset=["gain", cost])
        front = spots[spots[f"front_{cost}"]].sort_values(cost)
        figure.add_scatter(
            x=front[cost].tolist(),
            y=front["gain"].tolist(),
            mode="lines",
            line={"color": GREY, "width": 1, "dash": "dash"},
            hoverinfo="skip",
            showlegend=False,
            **panel_cell,
        )

        special = spots.index.isin([result.baseline, result.reference])
        room = with_room(np.log(spots[cost]), spots["gain"], special | spots[f"front_{cost}"])
        figure.add_scatter(
            x=spots[cost].tolist(),
            y=spots["gain"].tolist(),
            text=[label(method) if has_room else "" for method, has_room in zip(spots.index, room, strict=True)],
            customdata=[label(method) for method in spots.index],
            textposition="top center",
            mode="markers+text",
            marker={
                "size": [14 if is_special else 10 for is_special in special],
                "color": [styles[str(method)].color for method in spots.index],
                "symbol": [styles[str(method)].symbol for method in spots.index],
                "line": {"width": [2.0 if on_front else 0.0 for on_front in spots[f"front_{cost}"]], "color": GREY},
            },
            hovertemplate="%{customdata}: %{y:.3g} at %{x:.3g}<extra></extra>",
            showlegend=False,
            cliponaxis=False,
            **panel_cell,
        )

        figure.update_xaxes(type="log", title=label(cost_name(result, cost)), **panel_cell)

    figure.update_yaxes(title=label(gain_name(result)), row=1, col=1)
    return figure
