"""What the leaderboard says of each method, for MLflow: its own tables and charts begin with these rows."""

from __future__ import annotations

import math

import pandas as pd

from mtlscale.records import RunRecord, best
from mtlscale.report.results import Results
from mtlscale.report.table import Table
from mtlscale.tracking import Row

_BY_TASK = 15  # tasks that a row has a column of each of
# Column of the leaderboard -> name in MLflow; `_ci` of those that have it stands beside them.
_COLUMNS = {
    "delta_i": "delta",
    "safeness": "eta",
    "mean_rank": "mean_rank",
    "total_seconds": "seconds",
    "peak_memory_mb": "peak_memory_mb",
    "parameters": "parameters",
}


def rows_of(results: Results) -> list[Row]:
    """A row per data set and method, of those that have ended runs. Nothing of what has no number."""
    if not results.records:
        return []
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for record in results.records:
        groups.setdefault((record.dataset, record.method), []).append(record)
    planned = len(results.experiment.seeds)
    return [
        row for table in results.leaderboard(explained=False).tables.values() for row in _rows(table, groups, planned)
    ]


def _rows(table: Table, groups: dict[tuple[str, str], list[RunRecord]], planned: int) -> list[Row]:
    found = []
    for place, (method, values) in enumerate(table.rows.iterrows(), start=1):
        label = str(method)
        if (table.dataset, label) not in groups:
            continue  # planned, and not begun
        finished, failed = int(values["finished"]), int(values["failed"] + values["diverged"])
        numbers = _numbers(table, values)
        if finished:
            numbers["place"] = place
        records = groups[table.dataset, label]
        # Records of other programs may have no loss, which breaks ties.
        winner = best(r for r in records if all("loss" in found for found in r.metrics.get("val", {"": {}}).values()))
        chosen = "" if winner is None else winner.run_id
        found.append(Row(table.dataset, label, records[-1].spec, numbers, finished, failed, planned, chosen))
    return found


def _numbers(table: Table, values: pd.Series[float]) -> dict[str, float]:
    """As the runs of the seeds name them, with half the width of the interval over seeds beside a mean."""
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
            wide = column in ("average", "last", "delta_i", "safeness")
            if wide and _finite(values.get(f"{column}_ci")):
                numbers[f"{name}_interval"] = float(values[f"{column}_ci"])
    return numbers


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
