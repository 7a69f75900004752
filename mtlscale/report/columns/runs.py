"""How many of a row's runs finished, and which they are."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from mtlscale.report.cells.sheet import Column, TableCell
from mtlscale.report.columns.frame import Frame
from mtlscale.report.columns.registry import Definition, column, family
from mtlscale.report.tables.table import Table

_NUMBERS = "runs by what became of them"


def _drawn(table: Table) -> Iterator[Column]:
    """Draw finished of planned runs, with what became of the others: "2/3, 1 diverged"."""
    cells = []
    counts = table.rows[["finished", "failed", "diverged", "planned"]].itertuples(index=False)
    for finished, failed, diverged, planned in counts:
        failures = [f"{count} {outcome}" for count, outcome in ((failed, "failed"), (diverged, "diverged")) if count]
        cells.append(TableCell(", ".join([f"{finished}/{planned}", *failures]), float(finished)))
    help = "finished of planned"
    yield Column(header="runs", help=help, cells=cells, name="finished", higher=True, of_test=True)


@family(
    Definition(
        key="finished",
        title="runs",
        shown=100,
        stored=300,
        compact=60,
        manual="Finished runs of planned ones, such as `3/4`. Runs that failed or diverged are listed below the table "
        "with their cause.",
        numbers=_NUMBERS,
    ),
    *(Definition(key=key, stored=300, numbers=_NUMBERS) for key in ("failed", "diverged", "planned")),
    of="rows",
    draw=_drawn,
)
def runs(table: Table, frame: Frame) -> pd.DataFrame:
    """Count the runs of each row."""
    return frame.counts


@column(
    "run_ids", title="", better="neither", explain="", of="rows", stored=700, numbers="the ids of its runs, as SEED:ID"
)
def run_ids(table: Table, frame: Frame) -> pd.Series[str]:
    """Join the ids of each row's runs in the order of their seeds."""
    ordered = frame.all_runs.sort_values("seed", kind="stable")
    seed_ids = ordered["seed"].astype(str) + ":" + ordered["run_id"]
    return seed_ids.groupby(ordered["method"]).agg(" ".join)
