"""Rows of the leaderboard for MLflow: its own tables and charts begin with them."""

from __future__ import annotations

import math

import pandas as pd

from mtlscale.records import RunRecord, best
from mtlscale.report.columns.registry import definitions
from mtlscale.report.results import Results
from mtlscale.report.tables.table import Table
from mtlscale.tracking import Row

_BY_TASK = 15  # the most tasks for which a row has a column each


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
    numbers: dict[str, float] = {}
    for one in definitions(table.plugins).values():
        name = one.mlflow(table) if callable(one.mlflow) else one.mlflow
        if name and _finite(values.get(one.key)):
            numbers[name] = float(values[one.key])
            if _finite(values.get(f"{one.key}_ci")):
                numbers[f"{name}_interval"] = float(values[f"{one.key}_ci"])

    if len(table.tasks) <= _BY_TASK:
        for task, metric in table.main_metrics.items():
            if _finite(values.get(table.main_column(task))):
                numbers[f"{table.split}.{metric}.{task}"] = float(values[table.main_column(task)])
    return numbers


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
