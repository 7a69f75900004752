"""The best size of what is shared: scores over data sets that differ in one size of the encoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from mtlscale.records import RunRecord
from mtlscale.report.cells.number_format import signed
from mtlscale.report.cells.sheet import text_sheet
from mtlscale.report.charts.colors import LineStyles
from mtlscale.report.report_section import HTML, REPORT, ReportSection
from mtlscale.report.sections.registry import View, section
from mtlscale.report.sensitivity import FEWEST, Sensitivity, frame
from mtlscale.report.stats.frames import by_dataset
from mtlscale.report.stats.statistics import half_width
from mtlscale.report.stats.ties import tied

ALL = ""  # the task of rows that hold the mean over tasks


@section("capacity", order=30, formats=(REPORT, HTML))
def capacity_section(view: View) -> Iterator[ReportSection]:
    """Yield the study where there are several sizes."""
    if view.baseline is not None and (sizes := capacity(view.records, view.baseline)) is not None:
        yield capacity_study(sizes, view.looks)


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

    @property
    def sign(self) -> float:
        return 1.0 if self.higher else -1.0

    @cached_property
    def means(self) -> pd.DataFrame:
        """The means over seeds, by method, task and size."""
        return self.frame.groupby(["method", "task", "size"])[["val", "test"]].mean()


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
    values: pd.Series[float] = tied(capacity.sign * capacity.means["val"].xs((method, task)))
    return int(str(values.idxmax()))


def at(capacity: Capacity, method: str, size: int, task: str = ALL) -> float:
    """Return the mean over seeds on test."""
    return float(capacity.means["test"][method, task, size])


def capacity_rows(capacity: Capacity) -> Iterator[tuple[str, ...]]:
    """Yield a row per task and one of all: each method's chosen size, and its score on test with that size.

    The baseline's sizes are the tasks' own, and the last row has their sum; the other methods have one for all tasks.
    """
    methods = list(dict.fromkeys(capacity.frame["method"]))
    pairs = [(method, task) for method in methods for task in capacity.tasks]
    sizes = {pair: best_size(capacity, pair[0], pair[1] if pair[0] == capacity.baseline else ALL) for pair in pairs}
    scores = {(method, task): at(capacity, method, sizes[method, task], task) for method, task in pairs}

    for task in capacity.tasks:
        texts = ((str(sizes[method, task]), f"{scores[method, task]:.2f}") for method in methods)
        yield task, *(text for pair_texts in texts for text in pair_texts)

    total_row = ["all"]
    for method in methods:
        counted_tasks = capacity.tasks if method == capacity.baseline else capacity.tasks[:1]
        mean = np.mean([scores[method, task] for task in capacity.tasks])
        total_row += [str(sum(sizes[method, task] for task in counted_tasks)), f"{mean:.2f}"]
    yield tuple(total_row)


def gains(capacity: Capacity, method: str) -> pd.Series[float]:
    """Return, by size, how much better the method is than the baseline of the same size.

    It is the mean over seeds on validation.
    """
    rows = capacity.frame[capacity.frame["task"] == ALL].pivot_table(
        index=["size", "seed"], columns="method", values="val"
    )
    return (capacity.sign * (rows[method] - rows[capacity.baseline])).dropna().groupby("size").mean()


def sentence(capacity: Capacity, method: str) -> str:
    """Describe the result of one method that has one size for all tasks."""
    total = sum(best_size(capacity, capacity.baseline, task) for task in capacity.tasks)
    best, gain = best_size(capacity, method), gains(capacity, method)

    text = (
        f"{method} is best with {capacity.knob} {best} for all tasks ({at(capacity, method, best):.2f} on test); the "
        f"best sizes of {capacity.baseline}, one for each task, add up to {total}"
    )

    if len(gain):
        most = f"{gain.idxmax()} ({signed(float(gain.max()), '+.2f')} on validation)"
        text += f"; its gain over {capacity.baseline} of the same size is largest with {most}"
    return f"{text}."


def capacity_study(capacity: Capacity, styles: LineStyles) -> ReportSection:
    """Return the study: test over the sizes, ringed the size that validation chooses for all tasks."""
    grouped = capacity.frame[capacity.frame["task"] == ALL].groupby(["method", "size"], sort=False)["test"]
    summary = grouped.agg(["mean", "std", "count"]).reset_index()
    summary["ci"] = half_width(summary["std"], summary["count"])
    lines = {
        str(method): frame(rows[["size", "mean", "ci"]].to_numpy(dtype=float))
        for method, rows in summary.groupby("method", sort=False)
    }

    captions = [f"{method}: {caption}" for method in lines for caption in (capacity.knob, capacity.metric)]
    explanation = (
        f"The size with the best {capacity.metric} on validation, and what it reaches on test, mean over seeds."
    )
    return Sensitivity(
        file="capacity",
        title="Capacity",
        over=capacity.knob,
        panels={f"test {capacity.metric}, mean over tasks (ringed: chosen on validation)": lines},
        sentences=[sentence(capacity, method) for method in lines if method != capacity.baseline],
        tables=[text_sheet("Best sizes", explanation, ("task", *captions), tuple(capacity_rows(capacity)))],
        measured=capacity.metric,
        log=True,
        chosen={method: [best_size(capacity, method)] for method in lines},
        baseline=capacity.baseline,
    ).study(styles)
