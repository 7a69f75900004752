"""Gain of each method over the baseline against the size of its network."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mtlscale.report.charts.chart import DOTTED, Axis, Chart, Level
from mtlscale.report.charts.colors import LineStyles
from mtlscale.report.charts.trade_off import trade_off
from mtlscale.report.stats.pareto import FLOOR, pareto

if TYPE_CHECKING:
    from mtlscale.report.tables.table import Table

MOST_METHODS = 30


def sized(table: Table) -> pd.DataFrame:
    """Return the methods' sizes and gains for a chart.

    Returns:
        By method: `parameters`, `gain` (Δ), half its interval `ci`, and whether no method has a higher gain with as few
        parameters (`front`). Only the best methods, those on the front, baseline and reference; empty where there is
        no Δ, or all networks are of one size.
    """
    rows = table.rows.drop(index=FLOOR, errors="ignore")
    rows = rows[(rows["parameters"] > 0) & rows["delta_i"].notna()]

    points = rows[["parameters", "delta_i", "delta_i_ci"]].set_axis(["parameters", "gain", "ci"], axis=1)
    if points["parameters"].nunique() < 2:
        points = points.iloc[:0]
    points = points.assign(front=pareto(points["parameters"].to_numpy(float), points["gain"].to_numpy(float)))

    always_shown = points["front"] | points.index.isin([table.baseline, table.reference])
    return points[always_shown | (np.arange(len(points)) < MOST_METHODS)]


def parameter_chart(table: Table, styles: LineStyles) -> Chart:
    """Return Δ with its interval against the number of parameters; baseline and reference are larger."""
    points = sized(table)
    roles = {table.baseline: " (baseline)", table.reference: " (reference)"}
    panel = trade_off(
        points.rename(columns={"parameters": "x", "gain": "y"}),
        styles,
        Axis(title="parameters", log=True),
        Axis(title=f"Δ over {table.baseline}, %"),
        special=points.index.isin(list(roles)),
        notes=[roles.get(str(method), "") for method in points.index],
        hover="{name}{note}: {y:+.3g} % with {x:,.4g} parameters",
    )
    return Chart(
        panels=[replace(panel, marks=[Level(at=0.0, look=DOTTED), *panel.marks])],
        title="Quality and parameters",
        note=f"Δ over {table.baseline} against the size of the network; ringed, dashed: the Pareto front.",
        file="parameters",
        width=7.6,
        height=4.4,
        legend="right",
    )
