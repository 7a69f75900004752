"""Learning curves: what more training samples do for each method, where an experiment has several shares of a set."""

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
from mtlscale.report.canvas import MOST_LINES, new_figure, style
from mtlscale.report.colors import GREY, Look, Looks, looks
from mtlscale.report.facts import Facts
from mtlscale.report.frames import by_dataset, newest
from mtlscale.report.plotly_canvas import cell, lines_with_intervals
from mtlscale.report.statistics import half_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

    from mtlscale.report.table import Table

SHARE = "train_share"  # of the training samples, in the data set's part of a run's spec
OVER = "training samples, %"
GAIN = "gain of"  # how the titles of panels of gains begin


@dataclass(frozen=True)
class LearningCurves:
    """What each method reaches with each share of a set. panels: what is measured -> method -> rows of `x` (percent),
    `value`, `ci`, by x."""

    shares: Mapping[str, float]  # of the training samples, by data set, the largest last
    baseline: str | None
    panels: Mapping[str, Mapping[str, pd.DataFrame]]
    task: str = ""  # whose samples those are a share of; "": of all tasks'

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
    """One for each set of which there are several shares: the mean of the tasks' main metric, where they have one in
    common, and Δ, where there is a baseline. Where the shares are of one task alone, that task's metric comes first,
    and what it gains on the baseline of the same seed."""
    for task, shares in _shares(records):
        if len(set(shares.values())) < 2:
            continue
        ordered = dict(sorted(shares.items(), key=lambda item: item[1]))
        of = {dataset: tables[dataset] for dataset in ordered}
        largest = next(reversed(of))
        panels: dict[str, dict[str, pd.DataFrame]] = {}
        if task:
            metric = of[largest].main_metrics.get(task, "")
            same = all(table.main_metrics.get(task) == metric for table in of.values())
            if same and (lines := _lines(of, ordered, f"{task}.{metric}")):
                panels[f"{of[largest].split} {metric} of {task}"] = lines
            if same and (lines := _gains(of, ordered, task, metric)):
                panels[f"{GAIN} {task} over {of[largest].baseline}, {metric}"] = lines
        metrics = {metric for table in of.values() for metric in table.main_metrics.values()}
        if len(metrics) == 1 and (lines := _lines(of, ordered, "average")):
            panels[f"{of[largest].split} {metrics.pop()}, mean over tasks"] = lines
        baselines = {table.baseline for table in of.values()}
        baseline = baselines.pop() if len(baselines) == 1 else None
        if baseline is not None and (lines := _lines(of, ordered, "delta_i")):
            panels[f"Δ over {baseline}, %"] = {method: rows for method, rows in lines.items() if method != baseline}
        if panels:
            yield LearningCurves(ordered, baseline, panels, task)


def _shares(records: Sequence[RunRecord]) -> Iterator[tuple[str, dict[str, float]]]:
    """Data set -> share, of those that differ in their share alone, and the task whose it is: "" for all tasks. Sets
    without any belong to each; shares of several tasks at once are on no line."""
    groups: dict[str, dict[str, dict[str, float]]] = {}
    for dataset, runs in by_dataset(newest(records)).items():
        spec = dict(runs[0].spec.get("dataset", {}))
        told = spec.pop(SHARE, 1.0)
        shares = dict(told) if isinstance(told, Mapping) else {"": float(told)}
        if len(shares) == 1:
            [(task, share)] = shares.items()
            its = groups.setdefault(json.dumps(spec, sort_keys=True, default=str), {})
            its.setdefault(task, {})[dataset] = float(share)
    for its in groups.values():
        whole = {dataset: share for dataset, share in its.get("", {}).items() if share == 1}
        for task, shares in its.items():
            yield task, {**shares, **whole}


def _lines(tables: Mapping[str, Table], shares: Mapping[str, float], column: str) -> dict[str, pd.DataFrame]:
    """Method -> its rows, in the order of the largest share's table."""
    frames = {dataset: table.rows[[column, f"{column}_ci"]].dropna(subset=column) for dataset, table in tables.items()}
    methods = dict.fromkeys(method for frame in list(frames.values())[::-1] for method in frame.index)
    found = {}
    for method in methods:
        rows = [
            (100.0 * shares[dataset], *frame.loc[method].tolist())
            for dataset, frame in frames.items()
            if method in frame.index
        ]
        if len(rows) > 1:
            found[str(method)] = pd.DataFrame(rows, columns=["x", "value", "ci"])
    return found


def _gains(tables: Mapping[str, Table], shares: Mapping[str, float], task: str, metric: str) -> dict[str, pd.DataFrame]:
    """Method -> what a task gains on the baseline of the same seed, positive is better; the mean over seeds."""
    found: dict[str, list[tuple[float, float, float]]] = {}
    sign = 1.0 if higher_is_better(metric) else -1.0
    for dataset, table in tables.items():
        scores = table.runs.pivot_table(f"{task}.{metric}", "seed", "method", sort=False)
        if table.baseline is None or table.baseline not in scores:
            return {}
        for method in scores.columns.drop(table.baseline):
            gains = sign * (scores[method] - scores[table.baseline]).dropna()
            if len(gains):
                width = float(half_width(gains.std(), len(gains)))
                found.setdefault(str(method), []).append((100.0 * shares[dataset], float(gains.mean()), width))
    return {method: pd.DataFrame(rows, columns=["x", "value", "ci"]) for method, rows in found.items() if len(rows) > 1}


def learning_tables(curves: LearningCurves) -> tuple[Facts, ...]:
    """The same in figures: a row per method, a column per share."""
    what = "Mean over seeds, with half the 95 % interval, by the share of the training samples."
    found = []
    for title, lines in curves.panels.items():
        values = sorted({x for rows in lines.values() for x in rows["x"]})
        rows = []
        for method, frame in lines.items():
            told = {x: _text(value, ci) for x, value, ci in frame.itertuples(index=False)}
            rows.append((method, *(told.get(value, "–") for value in values)))
        found.append(Facts(title, what, ("method", *(f"{value:g} %" for value in values)), tuple(rows)))
    return tuple(found)


def learning_figure(curves: LearningCurves, shown: Looks | None = None) -> Drawing:
    """A panel for each measure, a line with its intervals for each method, over the share on a logarithmic axis."""
    seen = _looks(curves, shown or {})
    with style():
        figure = new_figure(1.8 + 4.2 * len(curves.panels), 3.8)
        axes = figure.subplots(1, len(curves.panels), squeeze=False)[0]
        for axis, (title, lines) in zip(axes, curves.panels.items(), strict=True):
            for method, rows in _drawn(lines).items():
                widths = rows["ci"].fillna(0.0)
                look = seen[method]
                shape = {"color": look.color, "marker": look.marker, "linestyle": look.line}
                axis.errorbar(rows["x"], rows["value"], yerr=widths, label=method, capsize=2.5, **shape)
            axis.set_xscale("log")
            ticks = sorted({x for rows in lines.values() for x in rows["x"]})
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axis.set_xticks([], minor=True)
            axis.set_xlabel(OVER)
            axis.set_title(title)
            if title.startswith(("Δ", GAIN)):
                axis.axhline(0.0, color=GREY, linewidth=0.8, linestyle="--", zorder=0)
        handles = {text: one for axis in axes for one, text in zip(*axis.get_legend_handles_labels(), strict=True)}
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", frameon=False, ncols=5)
    return figure


def learning_plot(curves: LearningCurves, shown: Looks | None = None) -> Figure:
    """The same for the page."""
    panels = {title: _drawn(lines) for title, lines in curves.panels.items()}
    figure = lines_with_intervals(panels, "value", _looks(curves, shown or {}), OVER)
    for index, lines in enumerate(curves.panels.values()):
        ticks = sorted({x for rows in lines.values() for x in rows["x"]})
        place = cell(index, len(panels))
        figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks], **place)
    return figure


def sentences(curves: LearningCurves, tables: Mapping[str, Table]) -> Iterator[str]:
    """For each share, which methods the corrected tests tell apart from the reference."""
    for dataset in curves.shares:
        rows = tables[dataset].rows
        told = [
            f"{', '.join(map(str, rows.index[rows['verdict'] == word]))} {word}"
            for word in ("better", "worse")
            if (rows["verdict"] == word).any()
        ]
        yield f"{dataset}: {'; '.join(told) or 'no method can be told apart'} (against {tables[dataset].reference})."


def _looks(curves: LearningCurves, shown: Looks) -> dict[str, Look]:
    return {**looks(curves.methods, curves.baseline), **shown}


def _text(value: float, ci: float) -> str:
    return f"{value:.2f}" if np.isnan(ci) else f"{value:.2f} ± {ci:.2f}"


def _drawn(lines: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Without the floor that would flatten all others, and not more than a picture can carry."""
    found = {method: rows for method, rows in lines.items() if method != "constant"}
    return dict(list(found.items())[:MOST_LINES])
