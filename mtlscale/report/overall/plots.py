"""Charts of the overall leaderboard: mean ranks, probabilities, quality and cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, cast

import numpy as np
import pandas as pd

from mtlscale.report.cells.number_format import points as in_points
from mtlscale.report.charts.chart import INK, Axis, Bars, Chart, ChartText, Dots, Line, Mark, Panel
from mtlscale.report.charts.colors import LineStyle, LineStyles
from mtlscale.report.charts.trade_off import trade_off
from mtlscale.report.overall.multi_dataset import Overall

MOST_METHODS = 60  # in a picture; those with the best ranks
CHANCES = {"worse": "#c8443c", "same": "#c9ccd1", "better": "#2f8f4e"}
COSTS = {"total": "seconds", "parameters": "parameters"}
_ROW = 0.23  # inches of a name
_LEVEL = 0.1  # inches of a bar that joins methods


def charts(result: Overall, styles: LineStyles) -> Iterator[Chart]:
    """Yield each chart that has data: those with a title are for pages, those with a file name for files.

    Args:
        result: The comparison across data sets.
        styles: The looks of the methods in all charts.
    """
    if len(result.ranks):
        yield rank_chart(result, styles)
    if not np.isnan(result.critical_difference):
        yield rank_diagram(result)
    if result.rows["same"].notna().any():
        yield probability_chart(result)
    if drawn_costs(result):
        yield pareto_chart(result, styles)


def rank_chart(result: Overall, styles: LineStyles) -> Chart:
    """Return the mean ranks with bars as wide as the critical difference, and the ranks on single data sets."""
    note = f"Over {len(result.ranks)} data sets, 1 is best; small dots are single data sets."
    if not np.isnan(result.critical_difference):
        note += f" Bars are a critical difference ({result.critical_difference:.3g}) wide: methods are told "
        note += "apart where they do not overlap."
        if not result.friedman.rejects:
            note += f" But ranks differ no more than by chance (Friedman p = {result.friedman.p:.2g})."

    means = result.ranks.mean()[::-1]
    names = [str(method) for method in means.index]
    singles = cast("pd.Series[float]", result.ranks.stack())
    single_methods = [str(method) for _, method in singles.index]
    dots = Dots(
        x=singles, y=single_methods, looks=[LineStyle(styles[method].color) for method in single_methods], size=3.5,
        names=[str(dataset) for dataset, _ in singles.index], opacity=0.45, aside=True, hover="{y}, {name}: {x:.3g}",
    )  # fmt: skip
    half = result.critical_difference / 2
    mean_dots = Dots(
        x=means, y=names, looks=[styles[name] for name in names], hover="{y}: {x:.3f}",
        x_error=None if np.isnan(half) else [half] * len(names),
    )  # fmt: skip
    panel = Panel(marks=[dots, mean_dots], x=Axis(title="mean rank"), y=Axis(names=names))
    return Chart(panels=[panel], title="Mean ranks", note=note, height=1.3 + 0.31 * len(names))


def rank_diagram(result: Overall) -> Chart:
    """Return Demšar's critical-difference diagram.

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
    margin = 0.42 * (high - low)

    marks: list[Mark] = [Line(x=[low, high], y=[0, 0], look=LineStyle(INK), width=1, hover="")]
    for tick in _ticks(high):
        marks.append(Line(x=[tick, tick], y=[-0.06, 0], look=LineStyle(INK), width=0.8, hover=""))
        marks.append(ChartText(x=tick, y=-0.18, text=f"{tick:g}"))
    difference = result.critical_difference
    marks.append(Line(x=[low, low + difference], y=[-0.42] * 2, look=LineStyle(INK, symbol="line-ns"), markers=True,
                      width=1, hover=""))  # fmt: skip
    marks.append(ChartText(x=low + difference / 2, y=-0.55, text=f"critical difference {difference:.3g}"))

    for level, low_end, high_end in bars:
        y, reach = 0.14 + _LEVEL * level, 0.004 * (high - low)
        marks.append(
            Line(x=[low_end - reach, high_end + reach], y=[y, y], look=LineStyle("#44608a"), width=3, hover="")
        )

    for index, (method, mean) in enumerate(shown.items()):
        at_left = index < half
        row = index if at_left else len(shown) - 1 - index
        y, edge = start + _ROW * (row + 0.5), low - 0.02 * margin if at_left else high + 0.02 * margin
        marks.append(Line(x=[mean, mean, edge], y=[0, y, y], look=LineStyle("#7d8590"), width=0.7, hover=""))
        name = f"{method}  {mean:.2f}" if at_left else f"{mean:.2f}  {method}"
        x = edge - 0.02 * margin if at_left else edge + 0.02 * margin
        anchor: Literal["left", "right"] = "right" if at_left else "left"
        marks.append(ChartText(x=x, y=y, text=name, anchor=anchor, bold=method == result.reference))

    hidden = Axis(visible=False, grid=False)
    panel = Panel(
        marks=marks,
        title=_rank_title(result, len(means) - len(shown)),
        x=replace(hidden, limits=(low - margin, high + margin)),
        y=replace(hidden, limits=(-0.75, depth), reverse=True),  # inches below the axis, nearly
    )
    return Chart(panels=[panel], file="critical_difference", width=10.0, height=1.25 + depth)


def probability_chart(result: Overall) -> Chart:
    """Return each method's probabilities of being worse than the reference, equivalent and better."""
    probabilities = chances(result)[::-1]
    names = [str(method) for method in probabilities.index]
    rope = in_points(result.rope)

    bars, base = [], np.zeros(len(names))
    for kind, color in CHANCES.items():
        values = probabilities[kind].to_numpy()
        texts = [f"{value:.2f}" if value >= 0.08 else "" for value in values]
        name = f"within {rope}" if kind == "same" else kind
        hover = f"{{at}}, {'equivalent' if kind == 'same' else kind}: {{length:.3f}}"
        bars.append(
            Bars(at=names, length=values, base=base, name=name, colors=color, lying=True, texts=texts, hover=hover)
        )
        base = base + values

    x, y = Axis(title="probability", limits=(0.0, 1.0), grid=False), Axis(names=names)
    return Chart(
        panels=[Panel(marks=bars, x=x, y=y)],
        title="Probability of being better",
        note=f"Against {result.reference}: worse by more than {rope} (left), within {rope} (grey), better by more "
        "(right). Bayesian signed-rank test over data sets.",
        file="probabilities",
        width=9.5,
        height=1.7 + 0.28 * len(names),
        legend="right",
    )


def pareto_chart(result: Overall, styles: LineStyles) -> Chart:
    """Return gain against cost; the Pareto front is ringed and joined."""
    costs = drawn_costs(result)
    return Chart(
        panels=[_trade_panel(result, cost, styles, is_first=cost == costs[0]) for cost in costs],
        title="Quality and cost over data sets",
        note="Ringed, with a dashed line: no method gains more at as low a cost. Means over data sets.",
        file="pareto",
        columns=2,
        width=4.4 * len(costs) + 2.1 * (1 + (len(result.trade) - 1) // 24),
        height=5.0,
        legend="right",
    )


def _trade_panel(result: Overall, cost: str, styles: LineStyles, *, is_first: bool) -> Panel:
    points = result.trade.iloc[:MOST_METHODS].dropna(subset=["gain", cost])
    return trade_off(
        points.rename(columns={cost: "x", "gain": "y", f"front_{cost}": "front"})[["x", "y", "front"]],
        styles,
        Axis(title=cost_name(result, cost), log=bool(points[cost].max() > 4 * points[cost].min())),
        Axis(title=gain_name(result) if is_first else ""),
        special=points.index.isin([result.baseline, result.reference]),
        hover="{name}: {y:.3g} at {x:.3g}",
    )


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


def chances(result: Overall) -> pd.DataFrame:
    """Return `worse`, `same` and `better` of the methods that have them, likeliest better first."""
    probabilities = result.rows[list(CHANCES)].dropna()
    order = (probabilities["better"] - probabilities["worse"]).sort_values(ascending=False, kind="stable").index
    return probabilities.loc[order].iloc[:MOST_METHODS]


def drawn_costs(result: Overall) -> list[str]:
    """Return the costs that differ between methods with a gain."""
    return [cost for cost in COSTS if result.trade.dropna(subset=["gain", cost])[cost].nunique() > 1]


def gain_name(result: Overall) -> str:
    """Return the axis title of gains."""
    if result.trade["gain"].equals(-result.ranks.mean().reindex(result.trade.index)):
        return "mean rank, negative"
    return {"delta_i": f"Δ over {result.baseline}, %", "average": f"points over {result.reference}"}[result.quality]


def cost_name(result: Overall, cost: str) -> str:
    """Return the axis title of a cost."""
    cost_text = {"total": "seconds of all phases", "parameters": "parameters"}[cost]
    return f"{cost_text}, {result.reference} = 1" if result.reference in result.trade.index else cost_text


def _rank_title(result: Overall, hidden: int) -> str:
    test = result.friedman
    verdict = "joined: not told apart" if test.rejects else "they differ no more than by chance"
    hidden_note = f"; {hidden} methods with worse ranks left out" if hidden else ""
    return f"Mean ranks over {test.datasets} data sets, 1 is best ({verdict}, Friedman p = {test.p:.2g}{hidden_note})"


def _ticks(high: float) -> list[float]:
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if high / step <= 15)
    return [1.0, *(float(tick) for tick in range(max(2, step), int(np.floor(high)) + 1, step))]
