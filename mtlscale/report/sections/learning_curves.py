"""Learning curves: scores over the share of training samples, where an experiment has several shares of a set."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from mtlscale.records import RunRecord
from mtlscale.report.cells.number_format import file_name
from mtlscale.report.report_section import HTML, REPORT, ReportSection
from mtlscale.report.sections.registry import View, section
from mtlscale.report.sensitivity import Lines, Sensitivity, frame, value_table
from mtlscale.report.stats.frames import by_dataset, newest
from mtlscale.report.stats.statistics import half_width

if TYPE_CHECKING:
    from mtlscale.report.tables.table import Table

FRACTION_KEY = "train_share"  # the share of the training samples, in the data set's part of a run's spec
AXIS_TITLE = "training samples, %"
GAIN = "gain of"  # the beginning of the titles of panels of gains


@section("learning_curves", order=40, formats=(REPORT, HTML))
def learning_section(view: View) -> Iterator[ReportSection]:
    """Yield the curves of each data set with several fractions."""
    return (curves.study(view.looks) for curves in learning_curves(view.records, view.tables))


def learning_curves(records: Sequence[RunRecord], tables: Mapping[str, Table]) -> Iterator[Sensitivity]:
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
            yield _curves(ordered, tables, panels, task, baseline)


def _shares(records: Sequence[RunRecord]) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each task with the shares (data set -> share) that differ in its share alone; "" is all tasks."""
    # Complete sets belong to each. Shares of several tasks at once are on no line.
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
            lines[str(method)] = frame(rows)
    return lines


def _gains(tables: Mapping[str, Table], shares: Mapping[str, float], task: str, metric: str) -> dict[str, pd.DataFrame]:
    """Return method -> the mean gain of a task over the baseline of the same seed, positive is better."""
    rows_of: dict[str, list[tuple[float, float, float]]] = {}
    for dataset, table in tables.items():
        scores = table.runs.pivot_table(f"{task}.{metric}", "seed", "method", sort=False)
        if table.baseline is None or table.baseline not in scores:
            return {}
        for method in scores.columns.drop(table.baseline):
            sign = 1.0 if table.higher(metric) else -1.0
            gains = sign * (scores[method] - scores[table.baseline]).dropna()
            if len(gains):
                width = float(half_width(gains.std(), len(gains)))
                rows_of.setdefault(str(method), []).append((100.0 * shares[dataset], float(gains.mean()), width))

    return {method: frame(rows) for method, rows in rows_of.items() if len(rows) > 1}


def _curves(
    shares: Mapping[str, float],
    tables: Mapping[str, Table],
    panels: Mapping[str, Lines],
    task: str,
    baseline: str | None,
) -> Sensitivity:
    """Return the curves of a set, the last of the shares, with their sentences and tables."""
    dataset = next(reversed(list(shares)))
    caption = "Mean over seeds, with half the 95 % interval, by the share of the training samples."
    return Sensitivity(
        file=f"learning_curves_{file_name(f'{dataset} {task}'.strip())}",
        title=f"Learning curves on {dataset}" + (f", shares of {task} alone" if task else ""),
        over=AXIS_TITLE,
        panels=panels,
        sentences=list(sentences(shares, tables)),
        tables=[value_table(title, caption, "method", lines, unit=" %") for title, lines in panels.items()],
        log=True,
        levels={title: (0.0, "") for title in panels if title.startswith(("Δ", GAIN))},
        baseline=baseline,
        left_out=["constant"],  # would flatten all others
    )


def sentences(shares: Mapping[str, float], tables: Mapping[str, Table]) -> Iterator[str]:
    """Name, for each share, the methods that the corrected tests tell apart from the reference."""
    for dataset in shares:
        rows = tables[dataset].rows
        groups = [
            f"{', '.join(map(str, rows.index[rows['verdict'] == word]))} {word}"
            for word in ("better", "worse")
            if (rows["verdict"] == word).any()
        ]
        yield f"{dataset}: {'; '.join(groups) or 'no method can be told apart'} (against {tables[dataset].reference})."
