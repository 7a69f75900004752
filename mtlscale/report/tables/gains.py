"""Relative gains over a baseline, of all runs at once (docs/methods.md#deltas), and the log ratios that tests take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from mtlscale.metrics import relative_gain
from mtlscale.report.tables.table import Table, tested_name


def of_same_seed(values: pd.DataFrame, seeds: pd.Series[int], mask: pd.Series[bool]) -> pd.DataFrame:
    """Return for each run the values of the chosen method's run of the same seed.

    Where it has none, its mean over seeds stands for it.
    """
    of_seed = values[mask].set_index(seeds[mask])
    return of_seed.reindex(seeds).fillna(of_seed.mean()).set_axis(values.index)


def deltas(
    values: pd.DataFrame,
    references: pd.DataFrame,
    directions: dict[str, bool],
    main: dict[str, str],
    entered: Sequence[tuple[str, str]],
) -> pd.DataFrame:
    """Return Δ under its three definitions and η of each run, in percent.

    This computes mtlscale.metrics over all runs at once. Beside each Δ stands the one that tests take, with log ratios
    in place of relative gains in errors, where a metric is an error that is above 0 in all runs.

    Args:
        values: Values [runs, (task, metric)].
        references: Values of the baseline for the same runs, likewise.
        directions: Metric -> whether higher is better.
        main: Task -> its main metric.
        entered: The (task, metric) that enter Δ and η.
    """
    main_columns = list(main.items())
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
