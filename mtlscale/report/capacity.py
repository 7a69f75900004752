"""How wide what is shared should be: scores over data sets that differ in one size of the encoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mtlscale.records import RunRecord
from mtlscale.report.canvas import new_figure, style
from mtlscale.report.colors import Looks, looks
from mtlscale.report.frames import by_dataset
from mtlscale.report.layout import signed
from mtlscale.report.plotly_canvas import interval, label, new_plot, numbers, with_legend
from mtlscale.report.statistics import half_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

FEWEST = 3  # sizes
ALL = ""  # of a row: the mean over tasks


@dataclass(frozen=True)
class Capacity:
    """One row per method, size, seed and task (`ALL`: their mean): `val` and `test`, in units of `metric`.

    baseline: the method whose tasks share nothing, so that each may have a size of its own.
    """

    knob: str  # the size
    metric: str
    higher: bool
    baseline: str
    tasks: tuple[str, ...]
    frame: pd.DataFrame


def capacity(records: Sequence[RunRecord], baseline: str) -> Capacity | None:
    """None where the data sets of the records are not the same samples with encoders of several sizes."""
    done = [record for record in records if record.status == "finished" and record.metrics.get("test")]
    encoders = {name: runs[0].spec.get("encoder", {}) for name, runs in by_dataset(done).items()}
    varying = [
        knob
        for knob in dict.fromkeys(knob for encoder in encoders.values() for knob in encoder)
        if len({str(encoder.get(knob)) for encoder in encoders.values()}) > 1
    ]
    alike = len({record.fingerprint for record in done}) == 1 and len(varying) == 1
    metrics = {record.shared_metric for record in done}
    if not alike or len(metrics) != 1 or (metric := metrics.pop()) is None:
        return None
    sizes = {name: _size(encoder.get(varying[0])) for name, encoder in encoders.items()}
    if None in sizes.values() or len(set(sizes.values())) < FEWEST or baseline not in {r.method for r in done}:
        return None
    tasks, rows = tuple(done[0].main_metrics), []
    for record in done:
        values = {split: [record.metrics[split][task][metric] for task in tasks] for split in ("val", "test")}
        key = record.method, sizes[record.dataset], record.seed
        rows += [(*key, task, val, test) for task, val, test in zip(tasks, values["val"], values["test"], strict=True)]
        rows.append((*key, ALL, float(np.mean(values["val"])), float(np.mean(values["test"]))))
    frame = pd.DataFrame(rows, columns=["method", "size", "seed", "task", "val", "test"])
    return Capacity(varying[0], metric, done[0].higher_is_better[metric], baseline, tasks, frame)


def _size(value: Any) -> int | None:
    """Of a knob: a number, or a list of one."""
    of = value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
    return of if isinstance(of, int) and not isinstance(of, bool) else None


def best_size(of: Capacity, method: str, task: str = ALL) -> int:
    """The size with the best mean over seeds on validation; of equal ones the smallest."""
    rows = of.frame[(of.frame["method"] == method) & (of.frame["task"] == task)]
    return _best(rows.groupby("size")["val"].mean() * (1.0 if of.higher else -1.0))


def _best(by_size: pd.Series[float]) -> int:
    return int(by_size.index.to_numpy()[by_size.to_numpy().argmax()])


def at(of: Capacity, method: str, size: int, task: str = ALL) -> float:
    """Mean over seeds on test."""
    rows = of.frame[(of.frame["method"] == method) & (of.frame["size"] == size) & (of.frame["task"] == task)]
    return float(rows["test"].mean())


def methods(of: Capacity) -> list[str]:
    return [str(method) for method in dict.fromkeys(of.frame["method"])]


def capacity_rows(of: Capacity) -> Iterator[tuple[str, ...]]:
    """A row per task, and one of all: of each method the size and, there, the score on test. The baseline's sizes are
    the tasks' own, and their sum stands in the last row; the others have one for all tasks."""
    chosen = {
        method: {task: best_size(of, method, task if method == of.baseline else ALL) for task in of.tasks}
        for method in methods(of)
    }
    for task in of.tasks:
        yield (
            task,
            *(
                text
                for method in methods(of)
                for text in (str(chosen[method][task]), f"{at(of, method, chosen[method][task], task):.2f}")
            ),
        )
    last = ["all"]
    for method in methods(of):
        sizes = chosen[method]
        total = sum(sizes.values()) if method == of.baseline else sizes[of.tasks[0]]
        last += [str(total), f"{np.mean([at(of, method, sizes[task], task) for task in of.tasks]):.2f}"]
    yield tuple(last)


def gains(of: Capacity, method: str) -> pd.Series[float]:
    """By size, the mean over seeds on validation of what the method is better than the baseline of that size."""
    rows = of.frame[of.frame["task"] == ALL].pivot_table(index=["size", "seed"], columns="method", values="val")
    difference = (rows[method] - rows[of.baseline]).dropna()
    return (difference if of.higher else -difference).groupby("size").mean()


def sentence(of: Capacity, method: str) -> str:
    """What came out for one method that has one size for all tasks."""
    total = sum(best_size(of, of.baseline, task) for task in of.tasks)
    best, gain = best_size(of, method), gains(of, method)
    text = (
        f"{method} is best with {of.knob} {best} for all tasks ({at(of, method, best):.2f} on test); the best sizes of "
        f"{of.baseline}, one for each task, add up to {total}"
    )
    if len(gain):
        most = f"{_best(gain)} ({signed(float(gain.max()), '+.2f')} on validation)"
        text += f"; its gain over {of.baseline} of the same size is largest with {most}"
    return f"{text}."


def curves(of: Capacity) -> pd.DataFrame:
    """By method and size, `mean` over seeds on test of the tasks' mean, and half its interval `ci`."""
    grouped = of.frame[of.frame["task"] == ALL].groupby(["method", "size"], sort=False)["test"]
    found = grouped.agg(["mean", "std", "count"]).reset_index().sort_values("size", kind="stable")
    return found.assign(ci=half_width(found["std"], found["count"]))


def capacity_figure(of: Capacity, shown: Looks | None = None) -> Drawing:
    """A line per method over the sizes; ringed: the size that validation chooses for all tasks."""
    shown, found = shown or looks(methods(of), of.baseline), curves(of)
    with style():
        figure = new_figure(7.0, 3.8)
        panel = figure.subplots()
        panel.set_xscale("log")
        for method in methods(of):
            rows = found[found["method"] == method]
            look = shown[method]
            panel.errorbar(
                rows["size"], rows["mean"], yerr=rows["ci"].fillna(0.0), color=look.color, marker=look.marker,
                linestyle=look.line, markersize=4, linewidth=1.3, capsize=2.5, elinewidth=0.8, label=method,
            )  # fmt: skip
            best = best_size(of, method)
            panel.scatter([best], [at(of, method, best)], s=90, facecolors="none", edgecolors=look.color, zorder=4)
        sizes = sorted(set(found["size"]))
        panel.set_xticks(sizes, [str(size) for size in sizes])
        panel.minorticks_off()
        panel.set_xlabel(of.knob)
        panel.set_title(f"test {of.metric}, mean over tasks, by size (ringed: chosen on validation)")
        figure.legend(loc="outside right upper", frameon=False)
    return figure


def capacity_plot(of: Capacity, shown: Looks | None = None) -> Figure:
    """The same for the page."""
    shown, found = shown or looks(methods(of), of.baseline), curves(of)
    figure = new_plot(320)
    for method in methods(of):
        rows = found[found["method"] == method]
        figure.add_scatter(
            x=rows["size"].tolist(),
            y=numbers(rows["mean"]),
            error_y=interval(rows["ci"]),
            mode="lines+markers",
            line={"color": shown[method].color, "width": 2, "dash": shown[method].dash},
            marker={"symbol": shown[method].symbol},
            name=label(method),
            showlegend=True,
            hovertemplate="%{y:.4g}",
        )
    figure.update_xaxes(title=label(of.knob), type="log")
    figure.update_yaxes(title=label(of.metric))
    return with_legend(figure)
