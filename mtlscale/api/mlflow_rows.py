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
    rows, places = list[Row](), 0
    for table in results.leaderboard(explained=False).tables.values():
        rows += _table_rows(table, groups, planned, places)
        places += len(table.rows)
    return rows


def _table_rows(table: Table, groups: dict[tuple[str, str], list[RunRecord]], planned: int, places: int) -> list[Row]:
    """Return a table's rows, whose places follow those of the tables before: sorted by place, data sets stay apart."""
    entries = []
    for rank, (method, values) in enumerate(table.rows.iterrows(), start=places + 1):
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
    for definition in definitions(table.plugins).values():
        name = definition.mlflow(table) if callable(definition.mlflow) else definition.mlflow
        if name and _finite(values.get(definition.key)):
            numbers[name] = float(values[definition.key])
            if _finite(values.get(f"{definition.key}_ci")):
                numbers[f"{name}_interval"] = float(values[f"{definition.key}_ci"])

    if len(table.tasks) <= _BY_TASK:
        for task, metric in table.main_metrics.items():
            if _finite(values.get(table.main_column(task))):
                numbers[f"{table.split}.{metric}.{task}"] = float(values[table.main_column(task)])
    return numbers


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
