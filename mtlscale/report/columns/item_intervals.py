"""How much the average, and its difference to the reference, depend on the test items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from mtlscale.report.cells.number_format import decimals
from mtlscale.report.cells.sheet import Column, number_column
from mtlscale.report.columns.frame import Frame
from mtlscale.report.columns.registry import Definition, family
from mtlscale.report.stats.item_intervals import intervals
from mtlscale.report.tables.table import Table

_DIFFERENCE = "difference of `average` to the reference, and half its interval over test items"


def _drawn(table: Table) -> Iterator[Column]:
    rows, form = table.rows, f".{decimals(table.rows['average'])}f"
    help = "half the 95 % interval of the average over test items (bootstrap)"
    settings: dict[str, Any] = {"emphasis": False, "detail": True}
    yield number_column(
        "± items", rows["average_items"], form, name="average_items", help=help, higher=False, **settings
    )

    differences, widths = rows["difference_average"], rows["difference_items"]
    yield number_column(
        f"− {table.reference} ± items",
        differences.where(widths.notna()),
        f"+{form}",
        widths,
        help=f"difference of the average to {table.reference}, and half its 95 % interval over test items (bootstrap)",
        higher=table.higher("average") if differences.notna().any() else None,
        name="difference_average",
        of_test=True,
        **settings,
    )


@family(
    Definition(
        key="average_items",
        title="± items",
        shown=30,
        better="lower",
        stored=710,
        define="Half the 95 % interval that comes from the choice of test items, by a bootstrap over them.",
        manual="How far another test set of the same kind would move the average. Small test sets have wide intervals, "
        "whatever the seeds.",
        numbers="half the 95 % interval of `average` over test items",
    ),
    Definition(
        key="difference_average",
        title="− equal ± items",
        shown=31,
        stored=710,
        manual="The difference to the reference on the same test items. It is narrower, because items that both "
        "methods find hard cancel.",
        numbers=_DIFFERENCE,
    ),
    Definition(key="difference_items", stored=710, numbers=_DIFFERENCE),
    of="rows",
    draw=_drawn,
)
def item_intervals(table: Table, frame: Frame) -> pd.DataFrame:
    """Return the intervals over test items."""
    return intervals(table.runs, table.rows.index, table.reference)
