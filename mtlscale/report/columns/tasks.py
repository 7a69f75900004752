"""Each metric of each task; errors of standardised targets in the units of the data, too."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from mtlscale.report.cells.sheet import Column
from mtlscale.report.columns.frame import Frame
from mtlscale.report.columns.registry import Definition, family, measure
from mtlscale.report.stats.frames import UNITS, units_column, units_frame
from mtlscale.report.tables.table import Table, unit_text


def _drawn(table: Table) -> Iterator[Column]:
    for task, metric in table.main_metrics.items():
        header, help = task if table.shared_unit else f"{task} {metric}", f"{task}: {metric}{unit_text(metric)}"
        yield measure(table, table.main_column(task), header, help=help, block="tasks")
        if (key := units_column(task, metric)) in table.rows:
            help = f"{task}: {metric} in the units of the data, by the deviation that its targets were divided by"
            yield measure(table, key, f"{task} {metric} in units", help=help, block="tasks")


@family(
    Definition(key="TASK.METRIC", shown=200, stored=600, numbers="each metric of each task"),
    Definition(
        key=UNITS,
        better="lower",
        stored=603,
        numbers="an error of standardised targets in the units of the data",
    ),
    draw=_drawn,
)
def tasks(frame: Frame) -> pd.DataFrame:
    """Return the values at the chosen epoch."""
    values = frame.values.set_axis([f"{task}.{metric}" for task, metric in frame.metrics], axis=1)
    return pd.concat([values, units_frame(frame.finished, values, frame.main)], axis=1)
