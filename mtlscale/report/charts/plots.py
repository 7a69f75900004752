"""Static charts of results as files: the leaderboard for a README, curves, weights, radar charts, traces.

Every function draws the records of one data set and returns a matplotlib figure, which `save` writes as PNG or SVG.
Figures are made without pyplot: no global state, no display.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mtlscale.config import UserError
from mtlscale.records import RunRecord
from mtlscale.report.charts.canvas import MOST_LINES, new_figure, style
from mtlscale.report.charts.colors import GREY, LineStyles, line_styles, page_looks
from mtlscale.report.charts.label_placement import FAR_FLOOR, without_far_floor
from mtlscale.report.formats.number_format import decimals, signed
from mtlscale.report.stats.curves import epoch_frame, over_seeds, trace_frame, traced, varying_weights
from mtlscale.report.stats.frames import by_dataset, newest
from mtlscale.report.tables.caveats import colour_key, legend
from mtlscale.report.tables.takeaway import takeaway

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mtlscale.report.tables.leaderboard import Leaderboard
    from mtlscale.report.tables.table import Table

MOST_ROWS = 30  # methods in a picture
MOST_INCHES = 26.0  # of height: 3,900 pixels
FEWEST_ROWS = 4  # of each data set, where there are so many that rows get scarce
MOST_CURVES = 24  # methods with a line
MOST_WEIGHTS = 24  # methods with a panel of weights
_SIGN_COLORS = {1: "#2f8f4e", -1: "#c8443c"}
_PLAIN = "#44608a"


def pictures(records: Sequence[RunRecord], board: Leaderboard) -> Iterator[tuple[str, Figure]]:
    """Yield (file name without suffix, figure) of every chart besides the leaderboard.

    These are weights that move, the variance over tasks of their losses, a radar chart, every traced number and matrix,
    learned network structure, and the studies over all data sets.
    """
    from mtlscale.report.charts.heatmaps import heat_figure, matrices
    from mtlscale.report.structures.searched import searched_pictures
    from mtlscale.report.studies.studies import studies

    shown = page_looks(records, board.tables.values())
    for number, (dataset, runs) in enumerate(by_dataset(newest(records)).items(), 1):
        table = board.tables[dataset]
        suffix = "" if len(board.tables) == 1 else f"_{number}_{re.sub(r'[^0-9A-Za-z.-]+', '_', dataset)}"
        one_unit = len(set(table.main_metrics.values())) == 1  # losses and metrics of one unit
        epochs = epoch_frame(runs, _methods(runs))

        if varying_weights(epochs):
            yield f"weights{suffix}", weight_figure(runs)
        if one_unit and len(table.tasks) > 1 and epochs["train_loss"].notna().any():
            yield f"loss_variance{suffix}", loss_variance_figure(runs, table.baseline, shown)
        if one_unit and 3 <= len(table.tasks) <= 2 * MOST_LINES and len(table.runs):
            yield f"radar{suffix}", radar_figure(table, shown)
        for trace in traced(runs):
            yield f"trace_{trace}{suffix}", trace_figure(runs, trace, table.baseline, shown)
        for trace in matrices(runs):
            yield f"heatmap_{trace}{suffix}", heat_figure(runs, trace)

        for name, figure in searched_pictures(table, runs, shown):
            yield f"{name}{suffix}", figure

    for study in studies(records, board):
        yield study.name, study.draw()


def leaderboard_figure(board: Leaderboard) -> Figure:
    """Draw every data set's methods, best on top: score with interval and single seeds, and the gain on each task."""
    tables = list(board.tables.values())
    least_inches = 1.5 + 0.34 * FEWEST_ROWS
    shown = tables[: int(MOST_INCHES // least_inches)]
    rows = _rows_each([min(len(table.rows), MOST_ROWS) for table in shown])
    heights = [1.5 + 0.34 * count for count in rows]

    with style():
        figure = new_figure(11.0, sum(heights))
        parts = figure.subfigures(len(shown), 1, height_ratios=heights, squeeze=False)
        for table, part, count in zip(shown, parts[:, 0], rows, strict=True):
            is_last = table is shown[-1] and len(tables) > len(shown)
            _draw_table(part, table, count, f" · {len(tables) - len(shown)} more data sets" if is_last else "")
    return figure


def _rows_each(counts: Sequence[int]) -> list[int]:
    """Return each data set's number of rows: all, or as many as the longest may have for all to fit the chart."""
    for limit in range(MOST_ROWS, FEWEST_ROWS, -1):
        rows = [min(count, limit) for count in counts]
        if sum(1.5 + 0.34 * count for count in rows) <= MOST_INCHES:
            return rows
    return [min(count, FEWEST_ROWS) for count in counts]


def curve_figure(
    records: Sequence[RunRecord], quantity: str = "val", baseline: str | None = "stl", styles: LineStyles | None = None
) -> Figure:
    """Draw a quantity by epoch: mean over tasks, interval over seeds.

    Args:
        records: The records of one data set.
        quantity: `train_loss`, or `val`, the main metric on validation.
        baseline: The method with the look of the baseline.
        styles: The looks of the methods in other charts.

    Raises:
        UserError: The tasks have different main metrics.
    """
    if len({metric for record in records for metric in record.main_metrics.values()}) > 1:
        raise UserError("the tasks have different main metrics, of which there is no mean to draw")
    metrics = ", ".join(dict.fromkeys(metric for record in records for metric in record.main_metrics.values()))
    label = "training loss" if quantity == "train_loss" else f"validation {metrics}"
    return _curves(records, quantity, "mean", f"{label}, mean over tasks", baseline, styles)


def loss_variance_figure(
    records: Sequence[RunRecord], baseline: str | None = "stl", styles: LineStyles | None = None
) -> Figure:
    """Draw the variance over tasks of the training losses by epoch (GetMTL's task variance)."""
    label = "variance over tasks of the training losses"
    return _curves(records, "train_loss", "variance", label, baseline, styles, log=True)


def weight_figure(records: Sequence[RunRecord]) -> Figure:
    """Draw each task's mean weight by epoch, one panel per method whose weights move."""
    all_weights = varying_weights(epoch_frame(records, _methods(records)))
    weights = dict(list(all_weights.items())[:MOST_WEIGHTS])
    columns = min(3, max(1, len(weights)))
    rows = -(-max(1, len(weights)) // columns)

    with style():
        figure = new_figure(3.6 * columns + 1.4, 2.6 * rows)
        axes = figure.subplots(rows, columns, squeeze=False).flatten()
        for panel in axes[max(1, len(weights)) :]:
            panel.remove()

        if not weights:
            _say_nothing(axes[0], "no method moved its weights")
        for panel, (method, values) in zip(axes, weights.items(), strict=False):
            moving = np.ptp(values.to_numpy(), axis=0).argsort()[::-1][:MOST_LINES]
            for index in sorted(moving):
                panel.plot(values.index, values.iloc[:, index], label=str(values.columns[index]))
            panel.set_title(method)
            _epochs(panel)
            panel.axhline(1 / values.shape[1], color=GREY, linewidth=0.8, linestyle=":")

        if len(all_weights) > len(weights):
            figure.suptitle(
                f"the first {len(weights)} of {len(all_weights)} methods whose weights move", x=0.01, ha="left"
            )
        if weights:
            axes[0].set_ylabel("weight")
            handles, labels = axes[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside right upper", frameon=False)
    return figure


def radar_figure(table: Table, styles: LineStyles | None = None) -> Figure:
    """Draw a radar chart of the main metric per task, one line per method; smaller is better.

    Accuracies are drawn as error rates, as in AAMTRL's charts.
    """
    values, label = _errors(table)
    angles = np.linspace(0, 2 * np.pi, len(table.tasks), endpoint=False)
    styles = styles or line_styles(list(table.rows.index), table.baseline)

    with style():
        figure = new_figure(6.6 + 0.16 * max(map(len, table.tasks)), 5.4)
        panel: Any = figure.subplots(subplot_kw={"projection": "polar"})
        for method in values.dropna().index[:MOST_LINES]:
            ring = values.loc[method].to_numpy()
            look = styles[str(method)]
            panel.plot(
                np.append(angles, angles[:1]),
                np.append(ring, ring[:1]),
                label=method,
                color=look.color,
                linestyle=look.line,
            )

        panel.set_theta_offset(np.pi / 2)
        panel.set_theta_direction(-1)
        # Ticks' own labels would be centred on their place, across the chart.
        panel.set_xticks(angles, [""] * len(angles))

        edge = panel.get_rmax()
        for angle, task, side in zip(angles, table.tasks, np.sin(angles).round(6), strict=True):
            panel.text(angle, 1.05 * edge, task, ha={0: "center", 1: "left", -1: "right"}[np.sign(side)], va="center")

        panel.set_rmax(edge)
        panel.set_title(f"{table.dataset}: {table.split} {label}", pad=18)
        figure.legend(loc="outside right upper", frameon=False)
    return figure


def trace_figure(
    records: Sequence[RunRecord], trace: str, baseline: str | None = "stl", styles: LineStyles | None = None
) -> Figure:
    """Draw a recorded number of objectives or balancers (`R_mean`, `lambda`, …) by epoch: mean, interval over seeds."""
    lines = over_seeds(trace_frame(records, trace), "value")
    return _draw_lines(lines, trace, _methods(records), baseline, styles)


def _draw_table(part: Any, table: Table, limit: int, note: str) -> None:
    rows = table.rows.iloc[:limit][::-1]
    hidden = len(table.rows) - len(rows)
    hidden_note = (f" · {hidden} more methods" if hidden else "") + note
    part.suptitle(f"{table.dataset}{hidden_note}", x=0.01, ha="left", fontweight="bold", fontsize=12)
    text = f"{takeaway(table)}\n{legend(table)} {colour_key(table)}"
    part.supxlabel(text, x=0.01, ha="left", fontsize=7.5, color="#6b7280", wrap=True)
    dots, heat = part.subplots(1, 2, width_ratios=[1.0, 1.25])
    _dots(dots, table, rows)
    _heat(heat, table, rows)


def _dots(panel: Axes, table: Table, rows: pd.DataFrame) -> None:
    """Draw each method's score with its interval, single seeds as faint dots, and the mean in figures at the right."""
    column = "average" if rows["average"].notna().any() else table.order
    if not rows[column].notna().any():
        _say_nothing(panel, "no finished run")
        return

    digits, signs = decimals(rows[column]), table.signs([column], table.reference)[column].loc[rows.index]
    heights = np.arange(len(rows))
    for height, sign, (method, row) in zip(heights, signs, rows.iterrows(), strict=True):
        color = _SIGN_COLORS.get(sign, GREY if method == table.baseline else _PLAIN)
        if column in table.runs:
            seeds = table.runs.loc[table.runs["method"] == method, column]
            panel.scatter(seeds, np.full(len(seeds), height), s=9, color=color, alpha=0.35, linewidths=0)

        width = row.get(f"{column}_ci", np.nan)
        panel.errorbar(row[column], height, xerr=None if np.isnan(width) else width, fmt="o", color=color, capsize=2.5)

        text = "no finished run" if np.isnan(row[column]) else f"{row[column]:.{digits}f}"
        text += "" if np.isnan(width) else f" ± {width:.{digits}f}"
        if 0 < row["finished"] < row["planned"]:
            text += f" ({row['finished']:.0f}/{row['planned']:.0f})"
        text_options: dict[str, Any] = {
            "xycoords": ("axes fraction", "data"),
            "xytext": (4, 0),
            "textcoords": "offset points",
        }
        panel.annotate(text, (1.0, height), va="center", **text_options)

    if table.reference is not None:
        panel.axvline(float(table.rows[column][table.reference]), color=GREY, linewidth=0.8, linestyle="--", zorder=0)
    _without_far_floor(panel, rows[column], rows.get(f"{column}_ci", rows[column] * np.nan).fillna(0.0))

    panel.set_yticks(heights, [table.name(method) for method in rows.index])
    panel.set_ylim(-0.6, len(rows) - 0.4)
    panel.grid(axis="y", visible=False)

    metrics = "/".join(dict.fromkeys(table.main_metrics.values()))
    names = {"average": f"{table.split} {metrics}, mean over tasks", "delta_i": f"Δ over {table.baseline}, %"}
    panel.set_title(names.get(column, "mean rank"))


def _without_far_floor(panel: Axes, scores: pd.Series[float], widths: pd.Series[float]) -> None:
    """Leave out a constant predictor that is far off: an arrow stands for it."""
    limits = without_far_floor(scores, widths)
    if limits is None:
        return
    panel.set_xlim(*limits)
    side, arrow = (0.01, "◂") if scores[FAR_FLOOR] < limits[0] else (0.99, "▸")
    panel.text(side, list(scores.index).index(FAR_FLOOR), arrow, transform=panel.get_yaxis_transform(), va="center")


def _heat(panel: Axes, table: Table, rows: pd.DataFrame) -> None:
    """Draw each method's gain on each task over the baseline in the metric's own unit; positive is better."""
    against = table.baseline or table.reference
    if against is None or not table.tasks:
        _say_nothing(panel, "no row to compare the tasks with")
        return

    from matplotlib.colors import TwoSlopeNorm

    gains, scaled = (frame.loc[rows.index].to_numpy() for frame in table.task_gains(against))
    panel.imshow(scaled, aspect="auto", cmap="RdBu", norm=TwoSlopeNorm(0, -1.15, 1.15), origin="lower")

    panel.set_yticks([])
    panel.set_ylim(-0.6, len(rows) - 0.4)
    panel.grid(visible=False)
    for side in panel.spines.values():
        side.set_visible(False)
    panel.tick_params(length=0)
    panel.set_title(f"difference to {against} by task (blue, red: better, worse, by the test)")

    count = len(table.tasks)
    if count > 2 * MOST_LINES:
        panel.set_xticks([])
        panel.set_xlabel(f"{count} tasks")
        return

    rotated = max(len(task) for task in table.tasks) * count > 70
    panel.set_xticks(np.arange(count), table.tasks, rotation=40 if rotated else 0, ha="right" if rotated else "center")

    if count > MOST_LINES:
        return

    digits = decimals(pd.Series(gains.flatten()), figures=2, least=1)
    for (row, column), gain in np.ndenumerate(gains):
        if not np.isnan(gain):
            ink = "white" if abs(scaled[row, column]) > 0.75 else "#1f2328"
            text = signed(gain, f"+.{digits}f")
            panel.text(column, row, text, ha="center", va="center", fontsize=7.5, color=ink)


def _curves(
    records: Sequence[RunRecord],
    value: str,
    reduce: str,
    label: str,
    baseline: str | None,
    styles: LineStyles | None,
    log: bool = False,
) -> Figure:
    methods = _methods(records)
    return _draw_lines(over_seeds(epoch_frame(records, methods), value, reduce), label, methods, baseline, styles, log)


def _draw_lines(
    lines: pd.DataFrame,
    label: str,
    methods: Sequence[str],
    baseline: str | None,
    styles: LineStyles | None,
    log: bool = False,
) -> Figure:
    """Draw one line per method over epochs, with a band for the interval over seeds."""
    styles = styles or line_styles(methods, baseline if baseline in methods else None)

    with style():
        figure = new_figure(7.0, 3.6)
        panel = figure.subplots()
        line_methods = list(dict.fromkeys(lines["method"]))
        hidden = len(line_methods) - MOST_CURVES

        for method, rows in lines[lines["method"].isin(line_methods[:MOST_CURVES])].groupby("method", sort=False):
            look = styles[str(method)]
            dot = look.marker if len(rows) == 1 else None  # one epoch makes no line
            panel.plot(
                rows["epoch"], rows["mean"], label=str(method), color=look.color, linestyle=look.line, marker=dot
            )
            if not log:  # an interval may reach below zero
                low, high = rows["mean"] - rows["ci"], rows["mean"] + rows["ci"]
                panel.fill_between(rows["epoch"], low, high, color=look.color, alpha=0.12, linewidth=0)

        if lines.empty:
            _say_nothing(panel, "nothing recorded")
        else:
            if log and (lines["mean"] > 0).any():
                panel.set_yscale("log")
                panel.yaxis.set_major_formatter("{x:g}")
            panel.set_title(f"{label} · {hidden} more methods" if hidden > 0 else label)
            _epochs(panel)
            figure.legend(loc="outside right upper", frameon=False, fontsize=8 if len(line_methods) > 16 else None)
    return figure


def _errors(table: Table) -> tuple[pd.DataFrame, str]:
    """Return [methods, tasks] values where smaller is better, and their name."""
    values = table.rows[[table.main_column(task) for task in table.tasks]].set_axis(list(table.tasks), axis=1)
    metrics = set(table.main_metrics.values())
    if metrics == {"accuracy"}:
        return 100.0 - values, "error in %"
    return values, ", ".join(sorted(metrics))


def _methods(records: Sequence[RunRecord]) -> list[str]:
    return list(dict.fromkeys(record.method for record in records))


def _epochs(panel: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    panel.set_xlabel("epoch")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))


def _say_nothing(panel: Axes, why: str) -> None:
    panel.set_axis_off()
    panel.text(0.5, 0.5, why, ha="center", va="center", transform=panel.transAxes, color="#6b7280")
