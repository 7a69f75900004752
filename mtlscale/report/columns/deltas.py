"""Relative gains over the baseline: Δ by its three definitions, and η.

Definitions: docs/methods.md#deltas.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from mtlscale.metrics import relative_gain
from mtlscale.report.cells.number_format import names
from mtlscale.report.columns.frame import Frame, of_same_seed
from mtlscale.report.columns.registry import Definition, family
from mtlscale.report.tables.table import Table, tested_name

_MOST_TASKS = 3  # in a note
_OTHERS = (
    "Δ by its two other definitions: as the mean over all metrics, and over one main metric per task. Shown if they "
    "differ from `Δ %`."
)
_NUMBERS = (
    "Δ in percent: mean within tasks first (the column `Δ %`), over all metrics alike, over main metrics; η: the share "
    "of metrics no worse than the baseline, in percent"
)


def _other(key: str, title: str, definition: str, shown: int, stored: int) -> Definition:
    """Return the definition of another Δ; with as many metrics in every task, or one, all are the same number."""

    def differs(table: Table) -> bool:
        return not np.allclose(table.rows[key], table.rows["delta_i"], equal_nan=True)

    return Definition(
        key=key,
        title=title,
        better="higher",
        help=lambda table: f"gain over {table.baseline}: {definition}",
        sign=True,
        detail=lambda table: key != table.order,
        applies=differs,
        shown=shown,
        stored=stored,
        compact=0 if key == "delta_main" else None,
        compact_if=lambda table: table.order == key,
        manual=_OTHERS,
        numbers=_NUMBERS,
    )


def _notes(table: Table, frame: Frame) -> Iterator[str]:
    """Yield what to know of Δ: that there is none, or which metrics it leaves out or rests on."""
    if frame.references is None or frame.baseline is None:
        yield f"no Δ and η: no finished run of {frame.baseline_name}"
        return
    zero = (frame.references[frame.entered] == 0).any().to_numpy()
    for task, metric in (frame.entered[i] for i in np.flatnonzero(zero).tolist()):
        yield f"no Δ: {metric} of {task} is 0 for {frame.baseline}"

    means, constant = frame.means, frame.row_named("constant")
    for metric in dict.fromkeys(metric for _, metric in table.near_zero):
        entries = [entry for entry in table.near_zero if entry[1] == metric]
        sizes = {entry: abs(float(means[entry][frame.baseline])) for entry in entries}
        smallest = min(sizes, key=sizes.__getitem__)

        values = f"{means[smallest][frame.baseline]:.2g}"
        if constant is not None and not math.isnan(floor := float(means[smallest][constant])):
            values += f"; {constant}: {floor:.2g}"
        task_note = f" in {smallest[0]}" if len(entries) > 1 else ""
        tasks = names([task for task, _ in entries], _MOST_TASKS)
        yield f"Δ rests on {metric} of {tasks}, whose baseline is near 0 ({values}{task_note})"

    if table.near_zero and table.order == "delta_i":
        yield "small differences of such a metric are a large Δ"
    elif table.near_zero:
        column_name = "Δ main" if table.order == "delta_main" else "the average"
        yield f"rows are sorted and tested by {column_name}, the main metric of each task, instead"


@family(
    Definition(
        key="delta_i",
        title="Δ %",
        better="higher",
        help=lambda table: f"gain over {table.baseline}: mean within each task, then over tasks",
        sign=True,
        shown=50,
        stored=104,
        compact=10,
        mlflow="delta",
        term="Δ",
        define="Relative gain over the baseline in percent: mean over the metrics of a task, then over tasks; metrics "
        "where less is better count with the other sign. Positive is better than the baseline.",
        manual="Gain over the baseline (`stl`) of the same seed, relative, mean over metrics within a task, then over "
        "tasks. Below 0: worse than training alone.",
        numbers=_NUMBERS,
    ),
    _other("delta_flat", "Δ flat %", "mean over all metrics", 120, 106),
    _other("delta_main", "Δ main %", "one main metric per task", 121, 108),
    Definition(
        key="safeness",
        title="η %",
        better="higher",
        help=lambda table: f"share of metrics no worse than {table.baseline}",
        digits=0,
        interval=False,
        shown=60,
        stored=110,
        mlflow="eta",
        term="η",
        define="Share of the metrics, in percent, in which a method is no worse than the baseline.",
        manual="Share of the metrics that are no worse than the baseline's. 100: no task pays for the others.",
        numbers=_NUMBERS,
    ),
    notes=_notes,
)
def deltas(frame: Frame) -> pd.DataFrame:
    """Compute Δ by its three definitions and η of each run, in percent; NaN without a baseline.

    This computes mtlscale.metrics over all runs at once. Beside each Δ stands the one that tests take, with log ratios
    in place of relative gains in errors, where a metric is an error that is above 0 in all runs.
    """
    values, references, directions = frame.values, frame.references, frame.directions
    if references is None:
        return pd.DataFrame(np.nan, frame.runs.index, ["delta_i", "delta_flat", "delta_main", "safeness"])

    main_columns, entered = list(frame.main.items()), frame.entered
    main_gains, _, _ = _gain_frames(values[main_columns], references[main_columns], directions)
    gains, safe, share = _gain_frames(values[entered], references[entered], directions)
    of_runs = {"safeness": safe.mul(share).sum(axis=1, skipna=False, min_count=1)}  # of no metric there is no gain

    logs, main_logs = (_with_logs(frame, values, references, directions) for frame in (gains, main_gains))
    for named, of_entered, of_main in ((str, gains, main_gains), (tested_name, logs, main_logs)):
        of_runs[named("delta_i")] = of_entered.mul(share).sum(axis=1, skipna=False, min_count=1)
        of_runs[named("delta_flat")] = of_entered.mean(axis=1, skipna=False)
        of_runs[named("delta_main")] = of_main.mean(axis=1, skipna=False)
    return pd.DataFrame(of_runs)


def _with_logs(
    gains: pd.DataFrame, values: pd.DataFrame, references: pd.DataFrame, directions: dict[str, bool]
) -> pd.DataFrame:
    """Return the gains, those in errors above 0 as 100 times the logarithm of how many times smaller they are."""
    of_runs, of_baseline = (frame[gains.columns].to_numpy() for frame in (values, references))
    lower = np.array([not directions[metric] for metric in gains.columns.get_level_values("metric")], dtype=bool)
    errors = lower & ~(of_runs <= 0).any(axis=0) & (of_baseline > 0).all(axis=0)

    ratios = gains.to_numpy().copy()
    ratios[:, errors] = 100.0 * np.log(of_baseline[:, errors] / of_runs[:, errors])
    return pd.DataFrame(ratios, index=gains.index, columns=gains.columns)


def _gain_frames(
    values: pd.DataFrame, references: pd.DataFrame, directions: dict[str, bool]
) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    """Return relative gains and safeness [runs, metrics] in percent, and each metric's share of its task."""
    # Metrics that the references do not have are left out.
    columns = references.columns[references.notna().any()]
    values, references = values[columns], references[columns]
    tasks, metrics = columns.get_level_values("task"), columns.get_level_values("metric")
    sign = np.where([directions[metric] for metric in metrics], 1.0, -1.0)

    gains: pd.DataFrame = relative_gain(values, references.where(references != 0), sign)
    safe = ((values - references) * sign >= 0).astype(float).where(values.notna()) * 100.0
    share = 1.0 / (tasks.value_counts()[tasks].to_numpy() * tasks.nunique())  # of each metric within its task
    return gains, safe, share


def task_deltas(table: Table) -> pd.DataFrame:
    """Return Δ of each task [methods, tasks] in percent: mean over its metrics that enter Δ, then over seeds.

    Metrics whose baseline is near 0 are left out. Without a baseline the frame is empty; Δ is NaN where the value of
    the baseline is 0.
    """
    entered = [entry for entry in table.delta if entry not in table.near_zero]
    if table.baseline is None or not entered:
        return pd.DataFrame(index=table.rows.index)

    columns = pd.MultiIndex.from_tuples(entered, names=["task", "metric"])
    values = table.runs[[f"{task}.{metric}" for task, metric in entered]].set_axis(columns, axis=1)
    references = of_same_seed(values, table.runs["seed"], table.runs["method"] == table.baseline)

    gains, _, _ = _gain_frames(values, references, table.higher_is_better)
    unknown = gains.isna().T.groupby(level="task", sort=False).any().T
    of_task = gains.T.groupby(level="task", sort=False).mean().T.where(~unknown)
    return of_task.groupby(table.runs["method"]).mean().reindex(table.rows.index)
