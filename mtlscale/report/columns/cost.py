"""Times, memory and size of the network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from mtlscale.report.cells.sheet import Column
from mtlscale.report.columns.frame import Frame
from mtlscale.report.columns.registry import Definition, family, number
from mtlscale.report.tables.table import Table

_PHASES = (
    "Seconds of the earlier phases, such as a search, and of all phases. *once* marks a search that several runs "
    "share; each row counts its full cost."
)
_TIMES = "of the last phase, of those before it, how many are shared, all together"
_COSTS = "cost; `step_ratio` to the reference"


def _drawn(table: Table) -> Iterator[Column]:
    rows = table.rows
    help = "wall clock of a run, training and validation, in seconds"
    yield number(table, "seconds", "s/run", False, help=help, block="cost")

    if not rows["phase_seconds"].isna().all():
        help = "seconds of the phases before the last, a search say; once: runs share it, counted as it cost once"
        phases = number(table, "phase_seconds", "+ phases s", False, help=help, block="cost", detail=True)
        cells = [
            cell._replace(text=f"{cell.text} once") if shared else cell
            for cell, shared in zip(phases.cells, rows["phases_shared"] > 0, strict=True)
        ]
        yield replace(phases, cells=cells)
        help = "seconds of all phases together"
        yield number(table, "total_seconds", "= total s", False, help=help, block="cost")

    for key, header, help in (
        ("samples_per_second", "samples/s", "training samples per second of steps"),
        ("step_ratio", "step ×", f"median time of a step, as a ratio to {table.reference}"),
        ("peak_memory_mb", "MB", "peak memory"),
        ("parameters", "params", "number of parameters"),
    ):
        speed = key == "samples_per_second"
        yield number(table, key, header, speed, help=help, block="cost", detail=speed)


@family(
    Definition(
        key="seconds",
        title="s/run",
        shown=300,
        better="lower",
        stored=500,
        compact=72,
        compact_title="seconds",
        compact_if=lambda table: bool(table.rows["phase_seconds"].isna().all()),
        manual="Wall-clock seconds of a run, for training and validation. For a method with several phases, of the "
        "last phase.",
        numbers=_TIMES,
    ),
    Definition(
        key="phase_seconds", title="+ phases s", shown=301, better="lower", stored=500, manual=_PHASES, numbers=_TIMES
    ),
    Definition(
        key="total_seconds",
        title="= total s",
        shown=302,
        better="lower",
        stored=500,
        compact=70,
        compact_title="seconds",
        mlflow="seconds",
        manual=_PHASES,
        numbers=_TIMES,
    ),
    Definition(key="phases_shared", stored=500, numbers=_TIMES),
    Definition(
        key="samples_per_second",
        title="samples/s",
        shown=310,
        better="higher",
        stored=500,
        manual="Training samples per second of steps.",
        numbers=_COSTS,
    ),
    Definition(
        key="step_ratio",
        title="step ×",
        shown=311,
        better="lower",
        stored=500,
        define="Median time of a training step, as a ratio to the reference.",
        manual="Median time of a step as a ratio to the reference: the cost of the method itself.",
        numbers=_COSTS,
    ),
    Definition(
        key="peak_memory_mb",
        title="MB",
        shown=312,
        better="lower",
        stored=500,
        mlflow="peak_memory_mb",
        manual="Peak memory of a run's process, or of its GPU.",
        numbers=_COSTS,
    ),
    Definition(
        key="parameters",
        title="params",
        shown=313,
        better="lower",
        stored=500,
        compact=80,
        compact_title="parameters",
        mlflow="parameters",
        manual="Parameters. `stl` has a network per task.",
        numbers=_COSTS,
    ),
    Definition(key="shared_parameters", stored=500, numbers=_COSTS),
    of="rows",
    draw=_drawn,
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
