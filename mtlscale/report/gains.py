"""Relative gains over a baseline, of all runs at once (docs/methods.md#deltas)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from mtlscale.metrics import relative_gain
from mtlscale.report.table import Table


def of_same_seed(values: pd.DataFrame, seeds: pd.Series[int], chosen: pd.Series[bool]) -> pd.DataFrame:
    """For each run the values of the chosen method's run of the same seed; where it has none, its mean over seeds."""
    of_seed = values[chosen].set_index(seeds[chosen])
    return of_seed.reindex(seeds).fillna(of_seed.mean()).set_axis(values.index)


def deltas(
    values: pd.DataFrame,
    references: pd.DataFrame,
    directions: dict[str, bool],
    main: dict[str, str],
    entered: Sequence[tuple[str, str]],
) -> pd.DataFrame:
    """Δ under its three definitions and η of each run, in percent: mtlscale.metrics over all runs at once."""
    mains = list(main.items())
    found, _, _ = _gain_frames(values[mains], references[mains], directions)
    of_main = found.mean(axis=1, skipna=False)
    gains, safe, share = _gain_frames(values[entered], references[entered], directions)
    return pd.DataFrame(
        {
            "delta_i": gains.mul(share).sum(axis=1, skipna=False),
            "delta_flat": gains.mean(axis=1, skipna=False),
            "delta_main": of_main,
            "safeness": safe.mul(share).sum(axis=1, skipna=False),
        }
    )


def _gain_frames(
    values: pd.DataFrame, references: pd.DataFrame, directions: dict[str, bool]
) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    """[runs, metrics] relative gains and what is safe, in percent, of metrics that the references have; and the share
    of each metric within its task."""
    known = references.columns[references.notna().any()]
    values, references = values[known], references[known]
    tasks, metrics = known.get_level_values("task"), known.get_level_values("metric")
    sign = np.where([directions[metric] for metric in metrics], 1.0, -1.0)
    gains: pd.DataFrame = relative_gain(values, references.where(references != 0), sign)
    safe = ((values - references) * sign >= 0).astype(float).where(values.notna()) * 100.0
    share = 1.0 / (tasks.value_counts()[tasks].to_numpy() * tasks.nunique())  # of each metric within its task
    return gains, safe, share


def task_deltas(table: Table) -> pd.DataFrame:
    """[methods, tasks] Δ of each task in percent: mean over its metrics that enter Δ, then over seeds, without those
    whose baseline is near 0. Empty without a baseline; NaN where its value is 0."""
    entered = [entry for entry in table.delta if entry not in table.near_zero]
    if table.baseline is None or not entered:
        return pd.DataFrame(index=table.rows.index)
    columns = pd.MultiIndex.from_tuples(entered, names=["task", "metric"])
    values = table.runs[[f"{task}.{metric}" for task, metric in entered]].set_axis(columns, axis=1)
    references = of_same_seed(values, table.runs["seed"], table.runs["method"] == table.baseline)
    found, _, _ = _gain_frames(values, references, table.higher_is_better)
    unknown = found.isna().T.groupby(level="task", sort=False).any().T
    of_task = found.T.groupby(level="task", sort=False).mean().T.where(~unknown)
    return of_task.groupby(table.runs["method"]).mean().reindex(table.rows.index)
