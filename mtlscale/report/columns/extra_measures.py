"""What evaluations measured beside the metrics of the tasks: robustness, odd samples, size and speed of the network."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from mtlscale.metrics import FIGURES
from mtlscale.report.cells.sheet import Column
from mtlscale.report.columns.frame import Frame
from mtlscale.report.columns.registry import Definition, family, measure, number
from mtlscale.report.stats.frames import figure_frame
from mtlscale.report.tables.table import Table


def _drawn(table: Table) -> Iterator[Column]:
    for key, figure in FIGURES.items():
        if key in table.rows and figure.of == "split":
            yield measure(table, key, figure.header, help=f"{figure.help}, in {figure.unit}")
        if key in table.rows and figure.of == "network":
            header = f"{figure.header} {figure.unit}" if figure.unit in ("M", "ms") else figure.header
            yield number(table, key, header, figure.higher_is_better, help=figure.help, block="cost")


@family(
    *(
        Definition(
            key=key,
            title=figure.header,
            better="higher" if figure.higher_is_better else "lower",
            shown=350 if figure.of == "network" else 210,
            stored=602,
            manual=f"{figure.help[0].upper()}{figure.help[1:]}.",
            numbers=figure.help,
        )
        for key, figure in FIGURES.items()
    ),
    draw=_drawn,
)
def extra_measures(frame: Frame) -> pd.DataFrame:
    """Return what evaluations measured on the split and of the network."""
    return figure_frame(frame.finished, frame.split)
