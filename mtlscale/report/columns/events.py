"""Counters of what should not happen: solver failures, clamps, skipped steps."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from mtlscale.report.cells.number_format import EMPTY
from mtlscale.report.cells.sheet import Column, TableCell
from mtlscale.report.columns.frame import Frame
from mtlscale.report.columns.registry import Definition, family
from mtlscale.report.tables.table import Table


def _drawn(table: Table) -> Iterator[Column]:
    events = table.rows.filter(regex=r"^counter\.").rename(columns=lambda name: name.removeprefix("counter."))
    texts = [
        ", ".join(f"{name} {count:,.0f}" for name, count in row.items() if count > 0) or EMPTY
        for row in events.to_dict("records")
    ]
    yield Column(
        header="events",
        help="solver failures, clamps, skipped steps and runs that were out of seconds, over all runs",
        cells=list(map(TableCell, texts, events.sum(axis=1).astype(float))),
        name="counter.NAME",
        block="cost",
        higher=False,
        prose=True,
    )


@family(
    Definition(
        key="counter.NAME",
        title="events",
        shown=360,
        stored=550,
        manual="Counters above 0, summed over all runs: solver failures, clamps, skipped steps, runs that "
        "`training.seconds` stopped.",
        numbers="events such as failures of a solver",
    ),
    of="rows",
    draw=_drawn,
)
def events(table: Table, frame: Frame) -> pd.DataFrame:
    """Add up the counters of each row's runs."""
    counters = [name for name in frame.all_runs.columns if name.startswith("counter.")]
    return frame.all_runs.groupby("method")[counters].sum()
