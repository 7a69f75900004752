"""Relative gains over the baseline: Δ by its three definitions, and η.

Definitions: docs/methods.md#deltas.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from mtlscale.report.columns.frame import Frame
from mtlscale.report.columns.registry import Definition, family
from mtlscale.report.tables.gains import deltas as deltas_of
from mtlscale.report.tables.table import Table

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
)
def deltas(frame: Frame) -> pd.DataFrame:
    """Compute Δ by its three definitions and η; NaN without a baseline."""
    if frame.references is None:
        return pd.DataFrame(np.nan, frame.runs.index, ["delta_i", "delta_flat", "delta_main", "safeness"])
    return deltas_of(frame.values, frame.references, frame.directions, frame.main, frame.entered)
