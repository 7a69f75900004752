"""Static charts of the overall leaderboard for files: mean ranks, probabilities, quality and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mtlscale.report.charts.canvas import new_figure, style
from mtlscale.report.charts.colors import GREY, LineStyles, line_styles
from mtlscale.report.formats.number_format import points as in_points
from mtlscale.report.overall.multi_dataset import MultiDatasetResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_METHODS = 60  # in a picture; those with the best ranks
INK = "#1f2328"
CHANCES = {"worse": "#c8443c", "same": "#c9ccd1", "better": "#2f8f4e"}
COSTS = {"total": "seconds", "parameters": "parameters"}
_MARKS = "oD^vP"
_ROW = 0.23  # inches of a name
_LEVEL = 0.1  # inches of a bar that joins methods


def pictures(result: MultiDatasetResult, styles: LineStyles | None = None) -> list[tuple[str, Figure]]:
    """Return (file name without suffix, figure) of each chart that has data.

    Args:
        result: The comparison across data sets.
        styles: The looks of the methods in other charts.
    """
    charts = []
    if not np.isnan(result.critical_difference):
        charts.append(("critical_difference", rank_figure(result)))
    if result.rows["same"].notna().any():
        charts.append(("probabilities", probability_figure(result)))
    if any(drawn_costs(result)):
        charts.append(("pareto", pareto_figure(result, styles)))
    return charts


def rank_figure(result: MultiDatasetResult) -> Figure:
    """Draw Demšar's critical-difference diagram.

    Methods stand at their mean ranks, best at the left, their names at both sides; a bar joins methods that are not
    told apart.
    """
    means = result.ranks.mean()
    shown = means.iloc[:MOST_METHODS]
    bars = levels([[m for m in clique if m in shown.index] for clique in result.cliques], shown)

    half = -(-len(shown) // 2)
    start = 0.2 + _LEVEL * (1 + max((level for level, _, _ in bars), default=-1))
    depth = start + _ROW * half
    low, high = 1.0, float(max(shown.max(), 1.0 + result.critical_difference))

    with style():
        figure = new_figure(10.0, 1.25 + depth)
        panel = figure.subplots()
        panel.set_axis_off()
        panel.set_ylim(depth, -0.75)  # inches below the axis, nearly
        margin = 0.42 * (high - low)
        panel.set_xlim(low - margin, high + margin)

        panel.plot([low, high], [0, 0], color=INK, linewidth=1)
        for tick in _ticks(high):
            panel.plot([tick, tick], [-0.06, 0], color=INK, linewidth=0.8)
            panel.text(tick, -0.1, f"{tick:g}", ha="center", va="bottom", fontsize=8)
        panel.plot([low, low + result.critical_difference], [-0.42, -0.42], color=INK, linewidth=1, marker="|")
        text = f"critical difference {result.critical_difference:.3g}"
        panel.text(low + result.critical_difference / 2, -0.47, text, ha="center", va="bottom", fontsize=8)

        for level, low_end, high_end in bars:
            y, reach = 0.14 + _LEVEL * level, 0.004 * (high - low)
            panel.plot(
                [low_end - reach, high_end + reach], [y, y], color="#44608a", linewidth=3, solid_capstyle="round"
            )

        for index, (method, mean) in enumerate(shown.items()):
            at_left = index < half
            row = index if at_left else len(shown) - 1 - index
            y, edge = start + _ROW * (row + 0.5), low - 0.02 * margin if at_left else high + 0.02 * margin
            panel.plot([mean, mean, edge], [0, y, y], color="#7d8590", linewidth=0.7)
            name, weight = str(method), "bold" if method == result.reference else "normal"
            text = f"{name}  {mean:.2f}" if at_left else f"{mean:.2f}  {name}"
            text_x = edge - 0.02 * margin if at_left else edge + 0.02 * margin
            panel.text(text_x, y, text, ha="right" if at_left else "left", va="center", fontsize=8, fontweight=weight)

        panel.set_title(_rank_title(result, len(means) - len(shown)))
    return figure


def probability_figure(result: MultiDatasetResult) -> Figure:
    """Draw each method's probabilities of being worse than the reference, equivalent and better."""
    probabilities = chances(result)[::-1]
    with style():
        figure = new_figure(8.0, 1.1 + 0.26 * len(probabilities))
        panel = figure.subplots()

        start = np.zeros(len(probabilities))
        for name, color in CHANCES.items():
            label = f"within {in_points(result.rope)}" if name == "same" else name
            panel.barh(
                np.arange(len(probabilities)), probabilities[name], left=start, color=color, height=0.8, label=label
            )
            for row, (value, bar_start) in enumerate(zip(probabilities[name], start, strict=True)):
                if value >= 0.08:
                    ink = INK if name == "same" else "white"
                    middle = bar_start + value / 2
                    panel.text(middle, row, f"{value:.2f}", ha="center", va="center", color=ink, fontsize=7.5)
            start = start + probabilities[name].to_numpy()

        panel.set_yticks(np.arange(len(probabilities)), [str(method) for method in probabilities.index])
        panel.set_ylim(-0.6, len(probabilities) - 0.4)
        panel.set_xlim(0, 1)
        panel.grid(visible=False)
        panel.set_title(f"Probability of being worse or better than {result.reference}")

        figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure


def pareto_figure(result: MultiDatasetResult, styles: LineStyles | None = None) -> Figure:
    """Draw gain against cost, methods by the numbers of their ranks; the Pareto front is ringed and joined."""
    costs, points = drawn_costs(result), result.trade.iloc[:MOST_METHODS]
    styles = styles or line_styles([str(method) for method in result.rows.index], result.baseline)

    columns = 1 + (len(points) - 1) // 24
    with style():
        figure = new_figure(4.4 * len(costs) + 2.1 * columns, max(4.0, 0.19 * min(len(points), 24)))
        panels = figure.subplots(1, len(costs), squeeze=False, sharey=True)[0]
        for panel, cost in zip(panels, costs, strict=True):
            _trade_panel(panel, result, points, cost, styles)

        panels[0].set_ylabel(gain_name(result))
        panels[0].set_title("Quality and cost over data sets (ringed, dashed: the Pareto front)")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=8, ncols=columns)
    return figure


def _trade_panel(panel: Axes, result: MultiDatasetResult, points: pd.DataFrame, cost: str, styles: LineStyles) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    front = points[points[f"front_{cost}"]].sort_values(cost)
    panel.plot(front[cost], front["gain"], color=GREY, linewidth=1.1, linestyle="--", zorder=1)

    for index, (method, row) in enumerate(points.iterrows()):
        special = method in (result.baseline, result.reference)
        panel.plot(
            row[cost],
            row["gain"],
            "s" if special else _MARKS[index // 15 % len(_MARKS)],
            color=styles[str(method)].color,
            markersize=8 if special else 6,
            markeredgecolor=INK if row[f"front_{cost}"] else "none",
            label=f"{index + 1}  {method}",
        )
        if np.isfinite(row[cost]) and np.isfinite(row["gain"]):
            position = (row[cost], row["gain"])
            panel.annotate(str(index + 1), position, textcoords="offset points", xytext=(4, 3), fontsize=7)

    if points[cost].max() > 4 * points[cost].min():  # narrower, a linear axis has more ticks
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter(NullFormatter())

    panel.margins(x=0.08)
    panel.set_xlabel(cost_name(result, cost))


def levels(cliques: list[list[str]], means: pd.Series[float]) -> list[tuple[int, float, float]]:
    """Return (level, from, to) of a bar for each clique, such that no two bars of a level touch.

    A clique of a single method has no bar.
    """
    ends: list[float] = []
    bars = []
    for clique in cliques:
        if len(clique) < 2:
            continue

        low, high = float(means[clique].min()), float(means[clique].max())
        level = next((number for number, end in enumerate(ends) if end < low), len(ends))
        ends[level : level + 1] = [high]
        bars.append((level, low, high))

    return bars


def chances(result: MultiDatasetResult) -> pd.DataFrame:
    """Return `worse`, `same` and `better` of the methods that have them, likeliest better first."""
    probabilities = result.rows[list(CHANCES)].dropna()
    order = (probabilities["better"] - probabilities["worse"]).sort_values(ascending=False, kind="stable").index
    return probabilities.loc[order].iloc[:MOST_METHODS]


def drawn_costs(result: MultiDatasetResult) -> list[str]:
    """Return the costs that differ between methods with a gain."""
    return [cost for cost in COSTS if result.trade.dropna(subset=["gain", cost])[cost].nunique() > 1]


def gain_name(result: MultiDatasetResult) -> str:
    """Return the axis title of gains."""
    if result.trade["gain"].equals(-result.ranks.mean().reindex(result.trade.index)):
        return "mean rank, negative"
    return {"delta_i": f"Δ over {result.baseline}, %", "average": f"points over {result.reference}"}[result.quality]


def cost_name(result: MultiDatasetResult, cost: str) -> str:
    """Return the axis title of a cost."""
    cost_text = {"total": "seconds of all phases", "parameters": "parameters"}[cost]
    return f"{cost_text}, {result.reference} = 1" if result.reference in result.trade.index else cost_text


def _rank_title(result: MultiDatasetResult, hidden: int) -> str:
    test = result.friedman
    verdict = "joined: not told apart" if test.rejects else "they differ no more than by chance"
    hidden_note = f"; {hidden} methods with worse ranks left out" if hidden else ""
    return f"Mean ranks over {test.datasets} data sets, 1 is best ({verdict}, Friedman p = {test.p:.2g}{hidden_note})"


def _ticks(high: float) -> list[float]:
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if high / step <= 15)
    return [1.0, *(float(tick) for tick in range(max(2, step), int(np.floor(high)) + 1, step))]
