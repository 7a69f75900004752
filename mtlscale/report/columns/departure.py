"""How far a method's weights went from equal ones."""

from __future__ import annotations

import pandas as pd

from mtlscale.report.columns.frame import Frame
from mtlscale.report.columns.registry import column
from mtlscale.report.tables.equal_weights import departures
from mtlscale.report.tables.table import Table


@column(
    "departure",
    of="rows",
    stored=720,
    numbers="how far the weights went from equal ones at most, relative",
)
def departure(table: Table, frame: Frame) -> pd.Series[float]:
    """Return how far the weights of a row's runs went at most."""
    methods = table.rows.index
    return pd.Series(methods.map(departures(frame.finished)).astype(float), index=methods)
