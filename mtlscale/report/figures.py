"""The interactive figures of the HTML report, as plotly figures of one data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mtlscale.records import RunRecord
from mtlscale.report import layout
from mtlscale.report.curves import GREY, colors, epoch_frame, over_seeds, trace_frame, traced, varying_weights
from mtlscale.report.plotly_canvas import cell, faint, grid, interval, label, new_plot, numbers, panel_grid, with_legend
from mtlscale.report.searched import searched_figures

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from mtlscale.report.table import Table

MOST_CURVES = 12  # methods with curves and weights; the tables hold all
MOST_PANELS = 6
MOST_LINES = 20  # tasks in a panel of weights
_HEAT = "In the metric's own unit. Blue is better and red worse where paired tests of the task, corrected, find that."


def figures(table: Table, records: Sequence[RunRecord]) -> list[tuple[str, str, Figure]]:
    """(title, what it shows, figure) of everything there is something to draw for."""
    rows, base = table.rows, table.baseline
    shades = colors(list(dict.fromkeys(record.method for record in records)), base)
    score = "average" if rows["average"].notna().any() else table.order
    found: list[tuple[str, str, Figure]] = []
    if score != "mean_rank":
        name, dots = _score_name(table, score), _dots(table, score, shades)
        found.append((name, "Mean and 95 % interval over seeds; small dots are single runs.", dots))
    if rows["delta_i"].notna().any() and score != "delta_i":
        found.append((_score_name(table, "delta_i"), "Mean within each task, then over tasks.", _bars(table, shades)))
    if base is not None and len(table.tasks) > 1:
        found.append((f"Difference to {base} by task", _HEAT, _heat(table, base)))
    if score != "mean_rank":
        cost = _cost(table, score, shades)
        found.append(("Quality and cost", f"{name} against the seconds a whole run takes, its search included.", cost))
    epochs = epoch_frame(records, drawn(table))
    alike, tasks = len(set(table.main_metrics.values())) == 1, table.tasks[:MOST_PANELS]  # unlike ones have no mean
    if epochs["train_loss"].notna().any():
        if alike:
            panels, what = {"": over_seeds(epochs, "train_loss")}, "Mean over tasks and seeds."
        else:
            panels, what = {t: over_seeds(epochs[epochs["task"] == t], "train_loss") for t in tasks}, "Mean over seeds."
        found.append(("Training loss", what, _curves(panels, shades)))
    if epochs["val"].notna().any():
        if alike:
            panels = {"": over_seeds(epochs, "val")}
            what = f"Main metric ({table.main_metrics[tasks[0]]}), mean over tasks and seeds."
        else:
            panels = {f"{t} {table.main_metrics[t]}": over_seeds(epochs[epochs["task"] == t], "val") for t in tasks}
            what = "Main metric of each task, mean over seeds."
        found.append(("Validation", what, _curves(panels, shades)))
    traces = traced(records)[:MOST_PANELS]
    if traces:
        panels = {trace: over_seeds(trace_frame(records, trace), "value") for trace in traces}
        found.append(("Traces", "What objectives recorded, mean over seeds.", _curves(panels, shades)))
    weights = dict(list(varying_weights(epochs).items())[:MOST_PANELS])
    if weights:
        found.append(("Task weights", "Mean over the steps of an epoch and over seeds.", _weights(weights)))
    return [*found, *searched_figures(table, records)]


def drawn(table: Table) -> list[str]:
    """The best methods, and those that the others are compared with."""
    finished = [str(method) for method in table.rows.index[table.rows["finished"] > 0]]
    always = [method for method in (table.baseline, table.reference) if method in finished[MOST_CURVES:]]
    return finished[:MOST_CURVES] + always


def _dots(table: Table, score: str, shades: dict[str, str]) -> Figure:
    rows = table.rows.dropna(subset=score)[::-1]
    figure = new_plot(90 + 30 * len(rows))
    singles = table.runs[table.runs["method"].isin(rows.index)]
    names = {method: label(method) for method in rows.index}
    figure.add_scatter(
        x=singles[score].tolist(),
        y=[names[method] for method in singles["method"]],
        mode="markers",
        marker={"size": 5, "opacity": 0.55, "color": [shades[method] for method in singles["method"]]},
        customdata=singles["seed"].tolist(),
        hovertemplate="%{y}, seed %{customdata}: %{x:.4g}<extra></extra>",
    )
    figure.add_scatter(
        x=rows[score].tolist(),
        y=list(names.values()),
        mode="markers",
        marker={"size": 10, "color": [shades[method] for method in rows.index]},
        error_x=interval(rows[f"{score}_ci"]),
        hovertemplate="%{y}: %{x:.4g}<extra></extra>",
    )
    figure.update_yaxes(categoryorder="array", categoryarray=list(names.values()))
    if table.reference is not None:
        line = {"dash": "dot", "width": 1, "color": GREY}
        figure.add_vline(x=float(table.rows[score][table.reference]), line=line)
    return figure


def _bars(table: Table, shades: dict[str, str]) -> Figure:
    rows = table.rows.dropna(subset="delta_i")[::-1]
    figure = new_plot(90 + 30 * len(rows))
    figure.add_bar(
        x=rows["delta_i"].tolist(),
        y=[label(method) for method in rows.index],
        orientation="h",
        marker={"color": [shades[method] for method in rows.index]},
        error_x=interval(rows["delta_i_ci"]),
        hovertemplate="%{y}: %{x:+.3g} %<extra></extra>",
    )
    figure.update_xaxes(ticksuffix=" %")
    return figure


def _heat(table: Table, against: str) -> Figure:
    rows = table.rows[table.rows["finished"] > 0][::-1]
    gains, scaled = (frame.loc[rows.index] for frame in table.task_gains(against))
    digits = layout.decimals(pd.Series(gains.to_numpy().flatten()), figures=2, least=1)
    figure = new_plot(110 + 30 * len(rows))
    figure.add_heatmap(
        z=grid(scaled.to_numpy()),
        x=[label(task) for task in table.tasks],
        y=[label(method) for method in rows.index],
        customdata=grid(gains.to_numpy()),
        text=[[layout.signed(gain, f"+.{digits}f") for gain in row] for row in gains.to_numpy()],
        texttemplate="%{text}" if len(table.tasks) <= MOST_LINES else None,
        zmin=-1.1,
        zmax=1.1,
        colorscale="RdBu",
        showscale=False,
        xgap=1,
        ygap=1,
        hovertemplate="%{y}, %{x}: %{customdata:+.4g}<extra></extra>",
    )
    return figure


def _cost(table: Table, score: str, shades: dict[str, str]) -> Figure:
    rows = table.rows.dropna(subset=[score, "total_seconds"])
    figure = new_plot(330)
    figure.add_scatter(
        x=rows["total_seconds"].tolist(),
        y=rows[score].tolist(),
        text=[label(method) for method in rows.index],
        textposition="top center",
        mode="markers+text" if len(rows) <= MOST_LINES else "markers",
        marker={"size": 10, "color": [shades[method] for method in rows.index]},
        hovertemplate="%{text}: %{y:.4g} in %{x:.3g} s<extra></extra>",
    )
    figure.update_xaxes(title="seconds per run", rangemode="tozero")
    figure.update_yaxes(title=_score_name(table, score))
    return figure


def _curves(panels: dict[str, pd.DataFrame], shades: dict[str, str]) -> Figure:
    """One line per method in each panel, with a band for the interval over seeds."""
    figure = panel_grid(list(panels))
    for index, lines in enumerate(panels.values()):
        place = cell(index, len(panels))
        for method, rows in lines.groupby("method", sort=False):
            color, epochs = shades[str(method)], rows["epoch"].tolist()
            group = {"legendgroup": label(method), "name": label(method)}
            low, high = numbers(rows["mean"] - rows["ci"]), numbers(rows["mean"] + rows["ci"])
            if None not in low:
                figure.add_scatter(
                    x=epochs + epochs[::-1],
                    y=high + low[::-1],
                    fill="toself",
                    fillcolor=faint(color),
                    line={"width": 0},
                    hoverinfo="skip",
                    showlegend=False,
                    **group,
                    **place,
                )
            figure.add_scatter(
                x=epochs,
                y=rows["mean"].tolist(),
                mode="lines+markers" if len(epochs) == 1 else "lines",
                line={"color": color, "width": 2},
                hovertemplate="%{y:.4g}",
                showlegend=index == 0,
                **group,
                **place,
            )
    return with_legend(figure)


def _weights(weights: dict[str, pd.DataFrame]) -> Figure:
    """A panel per method, a line per task; of many tasks those whose weights move most."""
    figure = panel_grid(list(weights))
    tasks = list(dict.fromkeys(task for values in weights.values() for task in values.columns))
    shades = colors(tasks, None)
    shown: set[str] = set()
    for index, values in enumerate(weights.values()):
        moving = np.ptp(values.to_numpy(), axis=0).argsort()[::-1][:MOST_LINES]
        for task in values.columns[np.sort(moving)]:
            figure.add_scatter(
                x=values.index.tolist(),
                y=numbers(values[task]),
                mode="lines",
                line={"color": shades[task], "width": 2},
                name=label(task),
                legendgroup=label(task),
                showlegend=task not in shown,
                hovertemplate="%{y:.3f}",
                **cell(index, len(weights)),
            )
            shown.add(task)
    return with_legend(figure)


def _score_name(table: Table, score: str) -> str:
    if score == "delta_i":
        return f"Δ over {table.baseline}, %"
    return f"{table.split.capitalize()} {next(iter(table.main_metrics.values()))}"
