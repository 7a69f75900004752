"""Rows of the leaderboard for MLflow: its own tables and charts begin with them."""

from __future__ import annotations

import math

import pandas as pd

from mtlscale.records import RunRecord, best
from mtlscale.report.results import Results
from mtlscale.report.tables.table import Table
from mtlscale.tracking import Row

_BY_TASK = 15  # the most tasks for which a row has a column each
# Column of the leaderboard -> name in MLflow; its `_ci` column, if there is one, goes along.
_COLUMNS = {
    "delta_i": "delta",
    "safeness": "eta",
    "mean_rank": "mean_rank",
    "total_seconds": "seconds",
    "peak_memory_mb": "peak_memory_mb",
    "parameters": "parameters",
}


def rows_of(results: Results) -> list[Row]:
    """Return a row per data set and method that has ended runs, without values that are no number."""
    if not results.records:
        return []
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for record in results.records:
        groups.setdefault((record.dataset, record.method), []).append(record)
    planned = len(results.experiment.seeds)
    return [
        row
        for table in results.leaderboard(explained=False).tables.values()
        for row in _table_rows(table, groups, planned)
    ]


def _table_rows(table: Table, groups: dict[tuple[str, str], list[RunRecord]], planned: int) -> list[Row]:
    entries = []
    for rank, (method, values) in enumerate(table.rows.iterrows(), start=1):
        label = str(method)
        if (table.dataset, label) not in groups:
            continue  # planned, and not begun

        finished, failed = int(values["finished"]), int(values["failed"] + values["diverged"])
        numbers = _numbers(table, values)
        if finished:
            numbers["place"] = rank
        records = groups[table.dataset, label]

        # Records of other programs may have no loss, which breaks ties.
        winner = best(
            r for r in records if all("loss" in entries for entries in r.metrics.get("val", {"": {}}).values())
        )
        chosen = "" if winner is None else winner.run_id
        entries.append(Row(table.dataset, label, records[-1].spec, numbers, finished, failed, planned, chosen))
    return entries


def _numbers(table: Table, values: pd.Series[float]) -> dict[str, float]:
    """Return a row's numbers under the names of the seeds' runs, and half the intervals over seeds."""
    columns = {"average": f"{table.split}.mean", **_COLUMNS}
    if table.domains:
        columns["last"] = "last_step.test.mean"
    if len(table.tasks) <= _BY_TASK:
        columns |= {
            table.main_column(task): f"{table.split}.{metric}.{task}" for task, metric in table.main_metrics.items()
        }

    numbers: dict[str, float] = {}
    for column, name in columns.items():
        if _finite(values.get(column)):
            numbers[name] = float(values[column])
            has_interval = column in ("average", "last", "delta_i", "safeness")
            if has_interval and _finite(values.get(f"{column}_ci")):
                numbers[f"{name}_interval"] = float(values[f"{column}_ci"])
    return numbers


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
