"""The best size of what is shared: scores over data sets that differ in one size of the encoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mtlscale.records import RunRecord
from mtlscale.report.charts.canvas import new_figure, style
from mtlscale.report.charts.colors import LineStyles, line_styles
from mtlscale.report.charts.plotly_canvas import interval, label, new_plot, numbers, with_legend
from mtlscale.report.formats.number_format import signed
from mtlscale.report.stats.frames import by_dataset
from mtlscale.report.stats.statistics import half_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

FEWEST = 3  # sizes
ALL = ""  # the task of rows that hold the mean over tasks


@dataclass(frozen=True)
class Capacity:
    """Scores over the sizes of the encoder.

    `frame` has one row per method, size, seed and task (`ALL`: their mean), with `val` and `test` in units of `metric`.
    `baseline` is the method whose tasks share nothing, so that each may have a size of its own.
    """

    knob: str  # the encoder's option that is the size
    metric: str
    higher: bool
    baseline: str
    tasks: tuple[str, ...]
    frame: pd.DataFrame


def capacity(records: Sequence[RunRecord], baseline: str) -> Capacity | None:
    """Collect the scores of finished runs by size.

    Return None where the data sets of the records are not the same samples with encoders of several sizes.
    """
    finished = [record for record in records if record.status == "finished" and record.metrics.get("test")]

    encoders = {name: runs[0].spec.get("encoder", {}) for name, runs in by_dataset(finished).items()}
    varying = [
        knob
        for knob in dict.fromkeys(knob for encoder in encoders.values() for knob in encoder)
        if len({str(encoder.get(knob)) for encoder in encoders.values()}) > 1
    ]

    comparable = len({record.fingerprint for record in finished}) == 1 and len(varying) == 1
    metrics = {record.shared_metric for record in finished}
    if not comparable or len(metrics) != 1 or (metric := metrics.pop()) is None:
        return None

    sizes = {name: _size(encoder.get(varying[0])) for name, encoder in encoders.items()}
    if None in sizes.values() or len(set(sizes.values())) < FEWEST or baseline not in {r.method for r in finished}:
        return None

    tasks, rows = tuple(finished[0].main_metrics), []
    for record in finished:
        values = {split: [record.metrics[split][task][metric] for task in tasks] for split in ("val", "test")}
        key = record.method, sizes[record.dataset], record.seed
        rows += [(*key, task, val, test) for task, val, test in zip(tasks, values["val"], values["test"], strict=True)]
        rows.append((*key, ALL, float(np.mean(values["val"])), float(np.mean(values["test"]))))

    frame = pd.DataFrame(rows, columns=["method", "size", "seed", "task", "val", "test"])
    return Capacity(varying[0], metric, finished[0].higher_is_better[metric], baseline, tasks, frame)


def _size(value: Any) -> int | None:
    """Return the number that a knob holds, alone or as the only entry of a list; None for anything else."""
    number = value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def best_size(capacity: Capacity, method: str, task: str = ALL) -> int:
    """Return the size with the best mean over seeds on validation; of equal ones the smallest."""
    rows = capacity.frame[(capacity.frame["method"] == method) & (capacity.frame["task"] == task)]
    return _best(rows.groupby("size")["val"].mean() * (1.0 if capacity.higher else -1.0))


def _best(by_size: pd.Series[float]) -> int:
    return int(by_size.index.to_numpy()[by_size.to_numpy().argmax()])


def at(capacity: Capacity, method: str, size: int, task: str = ALL) -> float:
    """Return the mean over seeds on test."""
    rows = capacity.frame[
        (capacity.frame["method"] == method) & (capacity.frame["size"] == size) & (capacity.frame["task"] == task)
    ]
    return float(rows["test"].mean())


def methods(capacity: Capacity) -> list[str]:
    """Return the methods in order of first appearance."""
    return [str(method) for method in dict.fromkeys(capacity.frame["method"])]


def capacity_rows(capacity: Capacity) -> Iterator[tuple[str, ...]]:
    """Yield a row per task and one of all: each method's chosen size, and its score on test with that size.

    The baseline's sizes are the tasks' own, and the last row has their sum; the other methods have one for all tasks.
    """
    best_sizes = {
        method: {
            task: best_size(capacity, method, task if method == capacity.baseline else ALL) for task in capacity.tasks
        }
        for method in methods(capacity)
    }

    for task in capacity.tasks:
        yield (
            task,
            *(
                text
                for method in methods(capacity)
                for text in (
                    str(best_sizes[method][task]),
                    f"{at(capacity, method, best_sizes[method][task], task):.2f}",
                )
            ),
        )

    total_row = ["all"]
    for method in methods(capacity):
        sizes = best_sizes[method]
        total = sum(sizes.values()) if method == capacity.baseline else sizes[capacity.tasks[0]]
        total_row += [
            str(total),
            f"{np.mean([at(capacity, method, sizes[task], task) for task in capacity.tasks]):.2f}",
        ]

    yield tuple(total_row)


def gains(capacity: Capacity, method: str) -> pd.Series[float]:
    """Return, by size, how much better the method is than the baseline of the same size.

    It is the mean over seeds on validation.
    """
    rows = capacity.frame[capacity.frame["task"] == ALL].pivot_table(
        index=["size", "seed"], columns="method", values="val"
    )
    difference = (rows[method] - rows[capacity.baseline]).dropna()
    return (difference if capacity.higher else -difference).groupby("size").mean()


def sentence(capacity: Capacity, method: str) -> str:
    """Describe the result of one method that has one size for all tasks."""
    total = sum(best_size(capacity, capacity.baseline, task) for task in capacity.tasks)
    best, gain = best_size(capacity, method), gains(capacity, method)

    text = (
        f"{method} is best with {capacity.knob} {best} for all tasks ({at(capacity, method, best):.2f} on test); the "
        f"best sizes of {capacity.baseline}, one for each task, add up to {total}"
    )

    if len(gain):
        most = f"{_best(gain)} ({signed(float(gain.max()), '+.2f')} on validation)"
        text += f"; its gain over {capacity.baseline} of the same size is largest with {most}"
    return f"{text}."


def curves(capacity: Capacity) -> pd.DataFrame:
    """Return, by method and size, `mean` and `ci` of the tasks' mean on test.

    `mean` is over seeds, and `ci` half its 95 % interval.
    """
    grouped = capacity.frame[capacity.frame["task"] == ALL].groupby(["method", "size"], sort=False)["test"]
    summary = grouped.agg(["mean", "std", "count"]).reset_index().sort_values("size", kind="stable")
    return summary.assign(ci=half_width(summary["std"], summary["count"]))


def capacity_figure(capacity: Capacity, styles: LineStyles | None = None) -> Drawing:
    """Draw a line per method over the sizes; ringed: the size that validation chooses for all tasks."""
    styles, summary = styles or line_styles(methods(capacity), capacity.baseline), curves(capacity)

    with style():
        figure = new_figure(7.0, 3.8)
        panel = figure.subplots()
        panel.set_xscale("log")

        for method in methods(capacity):
            rows = summary[summary["method"] == method]
            look = styles[method]
            panel.errorbar(
                rows["size"], rows["mean"], yerr=rows["ci"].fillna(0.0), color=look.color, marker=look.marker,
                linestyle=look.line, markersize=4, linewidth=1.3, capsize=2.5, elinewidth=0.8, label=method,
            )  # fmt: skip
            best = best_size(capacity, method)
            panel.scatter(
                [best], [at(capacity, method, best)], s=90, facecolors="none", edgecolors=look.color, zorder=4
            )

        sizes = sorted(set(summary["size"]))
        panel.set_xticks(sizes, [str(size) for size in sizes])
        panel.minorticks_off()
        panel.set_xlabel(capacity.knob)
        panel.set_title(f"test {capacity.metric}, mean over tasks, by size (ringed: chosen on validation)")
        figure.legend(loc="outside right upper", frameon=False)

    return figure


def capacity_plot(capacity: Capacity, styles: LineStyles | None = None) -> Figure:
    """Draw the same as a plotly figure for the page."""
    styles, summary = styles or line_styles(methods(capacity), capacity.baseline), curves(capacity)

    figure = new_plot(320)
    for method in methods(capacity):
        rows = summary[summary["method"] == method]
        figure.add_scatter(
            x=rows["size"].tolist(),
            y=numbers(rows["mean"]),
            error_y=interval(rows["ci"]),
            mode="lines+markers",
            line={"color": styles[method].color, "width": 2, "dash": styles[method].dash},
            marker={"symbol": styles[method].symbol},
            name=label(method),
            showlegend=True,
            hovertemplate="%{y:.4g}",
        )

    figure.update_xaxes(title=label(capacity.knob), type="log")
    figure.update_yaxes(title=label(capacity.metric))
    return with_legend(figure)
