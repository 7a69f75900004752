"""Learning curves: scores over the share of training samples, where an experiment has several shares of a set."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mtlscale.metrics import higher_is_better
from mtlscale.records import RunRecord
from mtlscale.report.charts.canvas import MOST_LINES, new_figure, style
from mtlscale.report.charts.colors import GREY, LineStyle, LineStyles, line_styles
from mtlscale.report.charts.plotly_canvas import cell, lines_with_intervals
from mtlscale.report.formats.sheet import Sheet, text_sheet
from mtlscale.report.stats.frames import by_dataset, newest
from mtlscale.report.stats.statistics import half_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

    from mtlscale.report.tables.table import Table

FRACTION_KEY = "train_share"  # the share of the training samples, in the data set's part of a run's spec
AXIS_TITLE = "training samples, %"
GAIN = "gain of"  # the beginning of the titles of panels of gains


@dataclass(frozen=True)
class LearningCurves:
    """The scores of each method with each share of a data set.

    `panels`: title, which says what is measured -> method -> rows of `x` (percent), `value`, `ci`, by x.
    """

    shares: Mapping[str, float]  # data set -> its share of the training samples, the largest last
    baseline: str | None
    panels: Mapping[str, Mapping[str, pd.DataFrame]]
    task: str = ""  # the task whose samples the shares are of, "" for all tasks

    @property
    def dataset(self) -> str:
        return next(reversed(list(self.shares)))

    @property
    def title(self) -> str:
        return f"Learning curves on {self.dataset}" + (f", shares of {self.task} alone" if self.task else "")

    @property
    def file(self) -> str:
        name = f"{self.dataset} {self.task}" if self.task else self.dataset
        return f"learning_curves_{re.sub(r'[^0-9A-Za-z.-]+', '_', name)}"

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(method for lines in self.panels.values() for method in lines))


def learning_curves(records: Sequence[RunRecord], tables: Mapping[str, Table]) -> Iterator[LearningCurves]:
    """Yield learning curves for each set of which there are several shares.

    They show the mean of the tasks' main metric, where they have one in common, and Δ, where there is a baseline. Where
    the shares are of one task alone, that task's metric comes first, and its gain over the baseline of the same seed.
    """
    for task, shares in _shares(records):
        if len(set(shares.values())) < 2:
            continue

        ordered = dict(sorted(shares.items(), key=lambda item: item[1]))
        ordered_tables = {dataset: tables[dataset] for dataset in ordered}
        largest = next(reversed(ordered_tables))

        panels: dict[str, dict[str, pd.DataFrame]] = {}
        if task:
            metric = ordered_tables[largest].main_metrics.get(task, "")
            same_metric = all(table.main_metrics.get(task) == metric for table in ordered_tables.values())
            if same_metric and (lines := _method_rows(ordered_tables, ordered, f"{task}.{metric}")):
                panels[f"{ordered_tables[largest].split} {metric} of {task}"] = lines
            if same_metric and (lines := _gains(ordered_tables, ordered, task, metric)):
                panels[f"{GAIN} {task} over {ordered_tables[largest].baseline}, {metric}"] = lines

        metrics = {metric for table in ordered_tables.values() for metric in table.main_metrics.values()}
        if len(metrics) == 1 and (lines := _method_rows(ordered_tables, ordered, "average")):
            panels[f"{ordered_tables[largest].split} {metrics.pop()}, mean over tasks"] = lines

        baselines = {table.baseline for table in ordered_tables.values()}
        baseline = baselines.pop() if len(baselines) == 1 else None
        if baseline is not None and (lines := _method_rows(ordered_tables, ordered, "delta_i")):
            panels[f"Δ over {baseline}, %"] = {method: rows for method, rows in lines.items() if method != baseline}

        if panels:
            yield LearningCurves(ordered, baseline, panels, task)


def _shares(records: Sequence[RunRecord]) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each task with the shares (data set -> share) of data sets that differ in its share alone; "" is all tasks.

    Complete sets belong to each. Shares of several tasks at once are on no line.
    """
    groups: dict[str, dict[str, dict[str, float]]] = {}
    for dataset, runs in by_dataset(newest(records)).items():
        spec = dict(runs[0].spec.get("dataset", {}))
        declared = spec.pop(FRACTION_KEY, 1.0)
        shares = dict(declared) if isinstance(declared, Mapping) else {"": float(declared)}
        if len(shares) == 1:
            [(task, share)] = shares.items()
            shares_by_task = groups.setdefault(json.dumps(spec, sort_keys=True, default=str), {})
            shares_by_task.setdefault(task, {})[dataset] = float(share)

    for shares_by_task in groups.values():
        complete = {dataset: share for dataset, share in shares_by_task.get("", {}).items() if share == 1}
        for task, shares in shares_by_task.items():
            yield task, {**shares, **complete}


def _method_rows(tables: Mapping[str, Table], shares: Mapping[str, float], column: str) -> dict[str, pd.DataFrame]:
    """Return method -> its rows, in the order of the largest share's table."""
    frames = {dataset: table.rows[[column, f"{column}_ci"]].dropna(subset=column) for dataset, table in tables.items()}
    methods = dict.fromkeys(method for frame in list(frames.values())[::-1] for method in frame.index)
    lines = {}
    for method in methods:
        rows = [
            (100.0 * shares[dataset], *frame.loc[method].tolist())
            for dataset, frame in frames.items()
            if method in frame.index
        ]
        if len(rows) > 1:
            lines[str(method)] = pd.DataFrame(rows, columns=["x", "value", "ci"])
    return lines


def _gains(tables: Mapping[str, Table], shares: Mapping[str, float], task: str, metric: str) -> dict[str, pd.DataFrame]:
    """Return method -> the gain of a task over the baseline of the same seed, positive is better.

    It is the mean over seeds.
    """
    rows_of: dict[str, list[tuple[float, float, float]]] = {}
    sign = 1.0 if higher_is_better(metric) else -1.0
    for dataset, table in tables.items():
        scores = table.runs.pivot_table(f"{task}.{metric}", "seed", "method", sort=False)
        if table.baseline is None or table.baseline not in scores:
            return {}
        for method in scores.columns.drop(table.baseline):
            gains = sign * (scores[method] - scores[table.baseline]).dropna()
            if len(gains):
                width = float(half_width(gains.std(), len(gains)))
                rows_of.setdefault(str(method), []).append((100.0 * shares[dataset], float(gains.mean()), width))

    return {
        method: pd.DataFrame(rows, columns=["x", "value", "ci"]) for method, rows in rows_of.items() if len(rows) > 1
    }


def learning_tables(curves: LearningCurves) -> tuple[Sheet, ...]:
    """Tabulate the curves: a row per method, a column per share."""
    caption = "Mean over seeds, with half the 95 % interval, by the share of the training samples."
    tables = []
    for title, lines in curves.panels.items():
        values = sorted({x for rows in lines.values() for x in rows["x"]})
        rows = []
        for method, frame in lines.items():
            texts = {x: _text(value, ci) for x, value, ci in frame.itertuples(index=False)}
            rows.append((method, *(texts.get(value, "–") for value in values)))
        tables.append(text_sheet(title, caption, ("method", *(f"{value:g} %" for value in values)), tuple(rows)))
    return tuple(tables)


def learning_figure(curves: LearningCurves, styles: LineStyles | None = None) -> Drawing:
    """Draw a panel for each measure, over the share on a logarithmic axis.

    Each method has a line with its intervals.
    """
    method_looks = _learning_styles(curves, styles or {})

    with style():
        figure = new_figure(1.8 + 4.2 * len(curves.panels), 3.8)
        axes = figure.subplots(1, len(curves.panels), squeeze=False)[0]
        for axis, (title, lines) in zip(axes, curves.panels.items(), strict=True):
            for method, rows in _drawn_lines(lines).items():
                widths = rows["ci"].fillna(0.0)
                look = method_looks[method]
                line_style = {"color": look.color, "marker": look.marker, "linestyle": look.line}
                axis.errorbar(rows["x"], rows["value"], yerr=widths, label=method, capsize=2.5, **line_style)

            axis.set_xscale("log")
            ticks = sorted({x for rows in lines.values() for x in rows["x"]})
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axis.set_xticks([], minor=True)
            axis.set_xlabel(AXIS_TITLE)
            axis.set_title(title)
            if title.startswith(("Δ", GAIN)):
                axis.axhline(0.0, color=GREY, linewidth=0.8, linestyle="--", zorder=0)

        handles = {
            text: handle for axis in axes for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", frameon=False, ncols=5)

    return figure


def learning_plot(curves: LearningCurves, styles: LineStyles | None = None) -> Figure:
    """Draw the same as a plotly figure for the page."""
    panels = {title: _drawn_lines(lines) for title, lines in curves.panels.items()}
    figure = lines_with_intervals(panels, "value", _learning_styles(curves, styles or {}), AXIS_TITLE)
    for index, lines in enumerate(curves.panels.values()):
        ticks = sorted({x for rows in lines.values() for x in rows["x"]})
        subplot = cell(index, len(panels))
        figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks], **subplot)
    return figure


def sentences(curves: LearningCurves, tables: Mapping[str, Table]) -> Iterator[str]:
    """Name, for each share, the methods that the corrected tests tell apart from the reference."""
    for dataset in curves.shares:
        rows = tables[dataset].rows
        groups = [
            f"{', '.join(map(str, rows.index[rows['verdict'] == word]))} {word}"
            for word in ("better", "worse")
            if (rows["verdict"] == word).any()
        ]
        yield f"{dataset}: {'; '.join(groups) or 'no method can be told apart'} (against {tables[dataset].reference})."


def _learning_styles(curves: LearningCurves, styles: LineStyles) -> dict[str, LineStyle]:
    return {**line_styles(curves.methods, curves.baseline), **styles}


def _text(value: float, ci: float) -> str:
    return f"{value:.2f}" if np.isnan(ci) else f"{value:.2f} ± {ci:.2f}"


def _drawn_lines(lines: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the lines to draw, no more than a picture can carry.

    The floor is left out, as it would flatten all others.
    """
    drawable = {method: rows for method, rows in lines.items() if method != "constant"}
    return dict(list(drawable.items())[:MOST_LINES])
