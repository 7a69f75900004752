"""Heat maps of TAG's affinities: how much the gradient of each task helps each other task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtlscale.records import RunRecord
from mtlscale.report.cells.number_format import signed
from mtlscale.report.charts.chart import MOST_LINES, Chart
from mtlscale.report.charts.heatmaps import square_map
from mtlscale.report.stats.curves import last_traces
from mtlscale.report.stats.traces import MOST_METHODS

TRACE = "affinity"
_EXPLANATION = "Row: whose gradient is stepped along; column: whose loss falls (blue) or rises (red) by it."


@dataclass(frozen=True)
class Affinity:
    """The affinities of one method as last recorded, with their tasks.

    `values` [T, T] is the mean over seeds, NaN where none was measured.
    """

    method: str
    seeds: int
    tasks: tuple[str, ...]
    values: NDArray[np.float64]

    @property
    def scale(self) -> float:
        """The largest magnitude between two different tasks.

        The effect of a task on itself would hide the others.
        """
        off_diagonal = np.abs(np.nan_to_num(self.values[~np.eye(len(self.values), dtype=bool)]))
        return float(off_diagonal.max(initial=0.0)) or 1.0

    @property
    def title(self) -> str:
        return f"{self.method}{f', mean of {self.seeds} seeds' if self.seeds > 1 else ''}"


def affinities(records: Sequence[RunRecord]) -> list[Affinity]:
    """Return the affinities of each method that recorded any.

    A method traces the mean over the steps so far, so its last value covers all steps.
    """
    tables: dict[str, list[NDArray[np.float64]]] = {}
    tasks_of: dict[str, tuple[str, ...]] = {}
    for record in records:
        tasks = tuple(record.structure.get("tasks") or record.main_metrics)
        table = _table(last_traces(record).get(TRACE), len(tasks))
        if table is not None:
            tables.setdefault(record.method, []).append(table)
            tasks_of[record.method] = tasks

    return [
        Affinity(method, len(method_tables), tasks_of[method], _mean(method_tables))
        for method, method_tables in list(tables.items())[:MOST_METHODS]
    ]


def affinity_chart(affinity: Affinity, file: str = "") -> Chart:
    """Return the map with an empty diagonal.

    With few tasks the cells hold numbers, in the power of ten named below the map.
    """
    count, power = len(affinity.tasks), int(np.floor(np.log10(affinity.scale)))
    texts = [
        ["" if np.isnan(value) else signed(value / 10.0**power, "+.1f") for value in row] for row in affinity.values
    ]
    panel = square_map(
        affinity.values,
        affinity.tasks,
        16,
        low=-affinity.scale,
        high=affinity.scale,
        texts=texts if count <= MOST_LINES else (),
        hover="{row} on {column}: {value:.3g}",
    )
    side = float(np.clip(0.55 * count, 3.0, 9.0))
    return Chart(
        panels=[panel],
        title=f"Affinity, {affinity.title}",
        note=f"{_EXPLANATION}{f' Numbers × 1e{power}.' if count <= MOST_LINES else ''}",
        file=file,
        width=side + 2.6,
        height=side + 1.2,
    )


def _table(value: Any, tasks: int) -> NDArray[np.float64] | None:
    """Return the trace as [T, T], NaN where a value is missing; None if it is no such table."""
    try:
        table = np.array(value, dtype=float)
    except (TypeError, ValueError):
        return None
    valid = table.shape == (tasks, tasks) and bool(np.isfinite(table).any())
    return np.where(np.isfinite(table), table, np.nan) if valid else None


def _mean(tables: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    measured = np.isfinite(tables)
    total, count = np.where(measured, tables, 0.0).sum(axis=0), measured.sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
