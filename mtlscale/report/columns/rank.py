"""The mean over tasks of a row's rank by the main metric."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mtlscale.report.columns.frame import Frame
from mtlscale.report.columns.registry import column
from mtlscale.report.stats.statistics import mean_ranks
from mtlscale.report.tables.table import Table


@column(
    "mean_rank",
    title="rank",
    better="lower",
    explain="mean over tasks of the rank by the main metric",
    of="rows",
    digits=1,
    shown=70,
    stored=200,
    compact=30,
    mlflow="mean_rank",
    define="Mean over tasks of a method's place by the main metric; 1 is best.",
    manual="Mean over tasks of the rank on that task.",
    numbers="mean over tasks of the rank by the main metric",
)
def rank(table: Table, frame: Frame) -> pd.Series[float]:
    """Rank rows by the main metric of each task, and average."""
    main = [table.main_column(task) for task in table.tasks]
    higher = [table.higher_is_better[metric] for metric in table.main_metrics.values()]
    return mean_ranks(table.rows[main], higher) if main else pd.Series(np.nan, index=table.rows.index)
