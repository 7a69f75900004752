"""The interactive figures of the HTML report, as plotly figures of one data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mtlscale.records import RunRecord
from mtlscale.report.charts.colors import GREY, LineStyles, colors
from mtlscale.report.charts.label_placement import FAR_FLOOR, with_room, without_far_floor
from mtlscale.report.charts.plotly_canvas import (
    at_line,
    by_rows,
    cell,
    faint,
    grid,
    interval,
    label,
    new_plot,
    numbers,
    panel_grid,
    with_legend,
)
from mtlscale.report.formats.number_format import decimals, signed
from mtlscale.report.stats.curves import epoch_frame, over_seeds, trace_frame, traced, varying_weights
from mtlscale.report.stats.pareto import pareto
from mtlscale.report.structures.searched import searched_figures

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from mtlscale.report.tables.table import Table

MOST_CURVES = 12  # methods with curves and weights; the tables hold all
MOST_PANELS = 6
MOST_LINES = 20  # tasks with a line in a panel of weights, or that leave room for numbers in a heat map
MOST_ROWS = 30  # methods with a row
_HEAT = "In the metric's own unit. Blue is better and red worse where paired tests of the task, corrected, find that."


def figures(table: Table, records: Sequence[RunRecord], styles: LineStyles) -> list[tuple[str, str, Figure]]:
    """Return (title, caption, figure) of everything that there is something to draw for, the most important first."""
    rows, base = table.rows, table.baseline
    score = "average" if rows["average"].notna().any() else table.order
    entries: list[tuple[str, str, Figure]] = []
    if score != "mean_rank":
        name, dots = _score_name(table, score), _dots(table, score, styles)
        caption = f"Mean and 95 % interval over seeds; small dots are single runs.{_best_of(table)}"
        entries.append((name, caption, dots))
        cost = _cost(table, score, styles)
        caption = f"{name} against the seconds a whole run takes, its search included; dashed: the Pareto front."
        entries.append(("Quality and cost", caption, cost))

    if rows["delta_i"].notna().any() and score != "delta_i":
        entries.append(
            (
                _score_name(table, "delta_i"),
                f"Mean within each task, then over tasks.{_best_of(table)}",
                _bars(table, styles),
            )
        )
    if base is not None and len(table.tasks) > 1:
        entries.append((f"Difference to {base} by task", f"{_HEAT}{_best_of(table)}", _heat(table, base)))

    epochs = epoch_frame(records, drawn_rows(table))
    # Different metrics have no mean.
    shared_metric, tasks = len(set(table.main_metrics.values())) == 1, table.tasks[:MOST_PANELS]

    if epochs["train_loss"].notna().any():
        if shared_metric:
            panels, caption = {"": over_seeds(epochs, "train_loss")}, "Mean over tasks and seeds."
        else:
            panels, caption = (
                {task: over_seeds(epochs[epochs["task"] == task], "train_loss") for task in tasks},
                "Mean over seeds.",
            )
        entries.append(("Training loss", caption, _curves(panels, styles)))

    if epochs["val"].notna().any():
        if shared_metric:
            panels = {"": over_seeds(epochs, "val")}
            caption = f"Main metric ({table.main_metrics[tasks[0]]}), mean over tasks and seeds."
        else:
            panels = {
                f"{task} {table.main_metrics[task]}": over_seeds(epochs[epochs["task"] == task], "val")
                for task in tasks
            }
            caption = "Main metric of each task, mean over seeds."
        entries.append(("Validation", caption, _curves(panels, styles)))

    traces = traced(records)[:MOST_PANELS]
    if traces:
        panels = {trace: over_seeds(trace_frame(records, trace), "value") for trace in traces}
        entries.append(("Traces", "What objectives recorded, mean over seeds.", _curves(panels, styles)))

    weights = dict(list(varying_weights(epochs).items())[:MOST_PANELS])
    if weights:
        entries.append(("Task weights", "Mean over the steps of an epoch and over seeds.", _weights(weights)))

    return [*entries, *searched_figures(table, records, styles)]


def drawn_rows(table: Table) -> list[str]:
    """Return the best methods, and those that the others are compared with."""
    finished = [str(method) for method in table.rows.index[table.rows["finished"] > 0]]
    always = [method for method in (table.baseline, table.reference) if method in finished[MOST_CURVES:]]
    return finished[:MOST_CURVES] + always


def _best_rows(table: Table, column: str) -> pd.DataFrame:
    """Return the best rows that have a value in the column, and those that the others are compared with.

    The best comes last, which is drawn on top.
    """
    rows = table.rows.dropna(subset=column)
    always = rows.index.isin([table.baseline, table.reference])
    return rows[always | (np.arange(len(rows)) < MOST_ROWS)][::-1]


def _best_of(table: Table) -> str:
    return (
        f" The best {MOST_ROWS} of {len(table.rows)} methods; the tables have all."
        if len(table.rows) > MOST_ROWS
        else ""
    )


def _dots(table: Table, score: str, styles: LineStyles) -> Figure:
    rows = _best_rows(table, score)
    figure = new_plot(70 + 26 * len(rows))
    singles = table.runs[table.runs["method"].isin(rows.index)]
    names = {method: label(method) for method in rows.index}

    figure.add_scatter(
        x=singles[score].tolist(),
        y=[names[method] for method in singles["method"]],
        mode="markers",
        marker={"size": 5, "opacity": 0.55, "color": [styles[method].color for method in singles["method"]]},
        customdata=singles["seed"].tolist(),
        hovertemplate="%{y}, seed %{customdata}: %{x:.4g}<extra></extra>",
        meta="aside",
    )

    figure.add_scatter(
        x=rows[score].tolist(),
        y=list(names.values()),
        mode="markers",
        marker={
            "size": 10,
            "color": [styles[method].color for method in rows.index],
            "symbol": [styles[method].symbol for method in rows.index],
        },
        error_x=interval(rows[f"{score}_ci"]),
        hovertemplate="%{y}: %{x:.4g}<extra></extra>",
    )

    figure.update_yaxes(categoryorder="array", categoryarray=list(names.values()))
    if table.reference is not None:
        at_line(figure, x=float(table.rows[score][table.reference]))
    if (shown_range := without_far_floor(rows[score], rows[f"{score}_ci"])) is not None:
        figure.update_xaxes(range=shown_range)
        _arrow(figure, names[FAR_FLOOR], at_left=rows[score][FAR_FLOOR] < shown_range[0])

    return by_rows(figure, 26)


def _arrow(figure: Figure, row: str, *, at_left: bool) -> None:
    """Mark, in its row, a point that lies beyond the axis."""
    side = {"x": 0.0, "xanchor": "left", "text": "◂"} if at_left else {"x": 1.0, "xanchor": "right", "text": "▸"}
    figure.add_annotation(xref="paper", y=row, showarrow=False, **side)


def _bars(table: Table, styles: LineStyles) -> Figure:
    rows = _best_rows(table, "delta_i")
    figure = new_plot(70 + 26 * len(rows))
    figure.add_bar(
        x=rows["delta_i"].tolist(),
        y=[label(method) for method in rows.index],
        orientation="h",
        marker={"color": [styles[method].color for method in rows.index]},
        error_x=interval(rows["delta_i_ci"]),
        hovertemplate="%{y}: %{x:+.3g} %<extra></extra>",
    )
    figure.update_xaxes(ticksuffix=" %")
    return by_rows(figure, 26)


def _heat(table: Table, against: str) -> Figure:
    rows = _best_rows(table, table.main_column(table.tasks[0]))
    gains, scaled = (frame.loc[rows.index] for frame in table.task_gains(against))
    digits = decimals(pd.Series(gains.to_numpy().flatten()), figures=2, least=1)

    figure = new_plot(90 + 26 * len(rows))
    figure.add_heatmap(
        z=grid(scaled.to_numpy()),
        x=[label(task) for task in table.tasks],
        y=[label(method) for method in rows.index],
        customdata=grid(gains.to_numpy()),
        text=[[signed(gain, f"+.{digits}f") for gain in row] for row in gains.to_numpy()],
        texttemplate="%{text}" if len(table.tasks) <= MOST_LINES else None,
        zmin=-1.1,
        zmax=1.1,
        colorscale="RdBu",
        showscale=False,
        xgap=1,
        ygap=1,
        hovertemplate="%{y}, %{x}: %{customdata:+.4g}<extra></extra>",
    )

    return by_rows(figure, 26)


def _cost(table: Table, score: str, styles: LineStyles) -> Figure:
    rows = table.rows.dropna(subset=[score, "total_seconds"])
    gains = rows[score] * (1.0 if table.higher(score) else -1.0)
    on_front = pareto(rows["total_seconds"].to_numpy(float), gains.to_numpy(float))

    figure = new_plot(360)
    front = rows[on_front].sort_values("total_seconds")
    figure.add_scatter(
        x=front["total_seconds"].tolist(),
        y=front[score].tolist(),
        mode="lines",
        line={"color": GREY, "width": 1, "dash": "dash"},
        hoverinfo="skip",
        meta="aside",
    )

    special = on_front | rows.index.isin([table.baseline, table.reference])
    times = rows["total_seconds"]
    wide = len(times) > 0 and times.min() > 0 and times.max() > 10 * times.min()
    shown_range = without_far_floor(rows[score], rows[f"{score}_ci"])
    heights = rows[score] if shown_range is None else rows[score].clip(*shown_range)
    room = with_room(np.log(times) if wide else times, heights, special)
    names = [label(method) for method in rows.index]

    figure.add_scatter(
        x=rows["total_seconds"].tolist(),
        y=rows[score].tolist(),
        text=[name if has_room else "" for name, has_room in zip(names, room, strict=True)],
        customdata=names,
        textposition="top center",
        mode="markers+text",
        cliponaxis=False,
        marker={
            "size": 10,
            "color": [styles[method].color for method in rows.index],
            "symbol": [styles[method].symbol for method in rows.index],
        },
        hovertemplate="%{customdata}: %{y:.4g} in %{x:.3g} s<extra></extra>",
    )

    figure.update_xaxes(
        title="seconds per run", **({"type": "log", "dtick": "D2"} if wide else {"rangemode": "tozero"})
    )
    figure.update_yaxes(title=_score_name(table, score), range=shown_range)

    return figure


def _curves(panels: dict[str, pd.DataFrame], styles: LineStyles) -> Figure:
    """Draw one line per method in each panel, with a band for the interval over seeds."""
    figure = panel_grid(list(panels))
    for index, lines in enumerate(panels.values()):
        subplot = cell(index, len(panels))

        for method, rows in lines.groupby("method", sort=False):
            look, epochs = styles[str(method)], rows["epoch"].tolist()
            group = {"legendgroup": label(method), "name": label(method)}
            low, high = numbers(rows["mean"] - rows["ci"]), numbers(rows["mean"] + rows["ci"])

            if None not in low:
                figure.add_scatter(
                    x=epochs + epochs[::-1],
                    y=high + low[::-1],
                    fill="toself",
                    fillcolor=faint(look.color),
                    line={"width": 0},
                    hoverinfo="skip",
                    showlegend=False,
                    **group,
                    **subplot,
                )
            figure.add_scatter(
                x=epochs,
                y=rows["mean"].tolist(),
                mode="lines+markers" if len(epochs) == 1 else "lines",
                line={"color": look.color, "width": 2, "dash": look.dash},
                marker={"symbol": look.symbol},
                hovertemplate="%{y:.4g}",
                showlegend=index == 0,
                **group,
                **subplot,
            )

    return with_legend(figure)


def _weights(weights: dict[str, pd.DataFrame]) -> Figure:
    """Draw a panel per method, a line per task; of many tasks those whose weights move most."""
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
