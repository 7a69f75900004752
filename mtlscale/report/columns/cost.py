"""Times, memory and size of the network."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from mtlscale.report.cells.sheet import Column
from mtlscale.report.columns.frame import Frame
from mtlscale.report.columns.registry import Definition, family
from mtlscale.report.tables.table import Table

_PHASES = (
    "Seconds of the earlier phases, such as a search, and of all phases. *once* marks a search that several runs "
    "share; each row counts its full cost."
)
_time = partial(
    Definition,
    better="lower",
    block="cost",
    stored=500,
    numbers="of the last phase, of those before it, how many are shared, all together",
)
_cost = partial(Definition, block="cost", stored=500, numbers="cost; `step_ratio` to the reference")


def _has_phases(table: Table) -> bool:
    return bool(table.rows["phase_seconds"].notna().any())


def _once(table: Table, column: Column) -> Column:
    shared = table.rows["phases_shared"] > 0
    cells = [
        cell._replace(text=f"{cell.text} once") if once else cell
        for cell, once in zip(column.cells, shared, strict=True)
    ]
    return replace(column, cells=cells)


@family(
    _time(
        key="seconds",
        title="s/run",
        explain="wall clock of a run, training and validation, in seconds",
        shown=300,
        compact=72,
        compact_title="seconds",
        compact_if=lambda table: not _has_phases(table),
        manual="Wall-clock seconds of a run, for training and validation. For a method with several phases, of the "
        "last phase.",
    ),
    _time(
        key="phase_seconds",
        title="+ phases s",
        explain="seconds of the phases before the last, a search say; once: runs share it, counted as it cost once",
        detail=True,
        applies=_has_phases,
        redrawn=_once,
        shown=301,
        manual=_PHASES,
    ),
    _time(
        key="total_seconds",
        title="= total s",
        explain="seconds of all phases together",
        applies=_has_phases,
        shown=302,
        compact=70,
        compact_title="seconds",
        mlflow="seconds",
        manual=_PHASES,
    ),
    _time(key="phases_shared", better="neither"),
    _cost(
        key="samples_per_second",
        title="samples/s",
        explain="training samples per second of steps",
        better="higher",
        detail=True,
        shown=310,
        manual="Training samples per second of steps.",
    ),
    _cost(
        key="step_ratio",
        title="step ×",
        help=lambda table: f"median time of a step, as a ratio to {table.reference}",
        better="lower",
        shown=311,
        define="Median time of a training step, as a ratio to the reference.",
        manual="Median time of a step as a ratio to the reference: the cost of the method itself.",
    ),
    _cost(
        key="peak_memory_mb",
        title="MB",
        explain="peak memory",
        better="lower",
        shown=312,
        mlflow="peak_memory_mb",
        manual="Peak memory of a run's process, or of its GPU.",
    ),
    _cost(
        key="parameters",
        title="params",
        explain="number of parameters",
        better="lower",
        shown=313,
        compact=80,
        compact_title="parameters",
        mlflow="parameters",
        manual="Parameters. `stl` has a network per task.",
    ),
    _cost(key="shared_parameters"),
    of="rows",
)
def cost(table: Table, frame: Frame) -> pd.DataFrame:
    """Average the costs of each row's runs; the time of a step is a median."""
    grouped = table.runs.groupby("method", sort=False)
    times = ["seconds", "phase_seconds", "total_seconds"]
    costs = grouped[[*times, "samples_per_second", "peak_memory_mb", "parameters", "shared_parameters"]].mean()
    costs.insert(2, "phases_shared", grouped["phases_shared"].any().astype(float))
    step = grouped["step_seconds"].median()
    costs.insert(5, "step_ratio", step / step[table.reference] if table.reference else np.nan)
    return costs
