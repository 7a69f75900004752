"""The mean error as a ratio to the baseline's."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mtlscale.report.columns.frame import Frame
from mtlscale.report.columns.registry import column


@column(
    "relative_error",
    title="e_rel",
    better="lower",
    explain="mean error over tasks, as a ratio to that of the baseline; below 1 is better",
    help=lambda table: f"mean error over tasks, as a ratio to that of {table.baseline}; below 1 is better",
    detail=True,
    shown=130,
    stored=112,
    manual="Mean error as a ratio to the baseline's. Below 1 is better.",
    numbers="mean error as a ratio to the baseline's",
)
def relative_error(frame: Frame) -> pd.Series[float]:
    """Divide each run's mean error by the baseline's of the same seed."""
    if frame.references is None or set(frame.main.values()) != {"accuracy"}:
        return pd.Series(np.nan, frame.runs.index)
    errors, reference_errors = (100.0 - frame.task_mean(values) for values in (frame.values, frame.references))
    return errors / reference_errors.where(reference_errors > 0)
