"""Charts of all methods of a search together: budget curves and slices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from mtlscale.config import Dimension
from mtlscale.report.charts.chart import Axis, Chart, Line, Panel
from mtlscale.report.charts.colors import LineStyles, line_styles
from mtlscale.report.sweeps.search_charts import slice_panel

MOST_ROWS = 11  # methods in a chart, which would grow too high


def budget_curves(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the best score of the first 1, 2, … trials, [trials spent, methods]; NaN beyond a method's last."""
    curves = {
        str(method): group.sort_values("trial")["score"].cummax().ffill().reset_index(drop=True)
        for method, group in trials.groupby("method", sort=False)
    }
    table = pd.DataFrame(curves)
    table.index = pd.RangeIndex(1, len(table) + 1, name="trials")
    return table


def budget_chart(trials: pd.DataFrame, styles: LineStyles) -> Chart:
    """Return the budget curves of all methods."""
    curves = budget_curves(trials)
    lines = [
        Line(x=curves.index, y=curves[method], name=method, look=styles[method], step=True, markers=len(curves) <= 12)
        for method in curves.columns
    ]
    lowest, highest = np.nanquantile(curves.to_numpy(), [0.1, 1.0])
    reach = 0.1 * (highest - lowest)
    limits = (lowest - reach, highest + reach) if highest > lowest else (None, None)
    x = Axis(title="trials spent", whole=True)
    return Chart(
        panels=[Panel(marks=lines, x=x, y=Axis(title="best validation score", limits=limits))],
        title="What the budget buys",
        note="The best validation score of the first 1, 2, … trials.",
        width=8.0,
        height=4.0,
        legend="right",
    )


def pictures(
    trials: Mapping[str, pd.DataFrame], space: Mapping[str, Mapping[str, Dimension]], names: Mapping[str, str]
) -> Iterator[list[Chart]]:
    """Yield charts for a README or a paper: budget curves of all methods, below them a row of slices for each.

    Many methods take several files.

    Args:
        trials: Method -> its trials, one row each.
        space: Method -> path of a setting -> its dimension.
        names: Path of a setting -> its name.
    """
    widest = max(1, *(len(dimensions) for dimensions in space.values()))
    shown = line_styles(list(trials))
    budgets = budget_chart(pd.concat(trials.values()), shown)

    for start in range(0, len(trials), MOST_ROWS):
        part = dict(list(trials.items())[start : start + MOST_ROWS])
        panels = []
        for method, rows in part.items():
            slices = [
                slice_panel(rows[path].tolist(), rows["score"].tolist(), dimension, names[path], shown[method])
                for path, dimension in space[method].items()
            ]
            if slices:
                slices[0] = replace(slices[0], y=Axis(title=method))
            panels += [*slices, *[Panel(marks=[])] * (widest - len(slices))]

        width = 2.6 * max(3, widest)
        yield [
            replace(budgets, width=width),
            Chart(panels=panels, columns=widest, width=width, height=0.3 + 1.9 * len(part)),
        ]
