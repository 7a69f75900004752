"""The networks of rows with several: the preference of each, and what it reaches."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from mtlscale.report.cells.number_format import decimals
from mtlscale.report.cells.sheet import Sheet, method_column, number_column, text_column
from mtlscale.report.report_section import HTML, LEARNED, ReportSection
from mtlscale.report.sections.registry import View, section
from mtlscale.report.stats.fronts import Fronts, preference_text
from mtlscale.report.stats.statistics import half_width
from mtlscale.report.tables.table import Table


@section("rays", order=14, formats=(HTML,))
def ray_tables(view: View) -> Iterator[ReportSection]:
    """Yield the table of each data set that has a front."""
    for dataset, table in view.tables.items():
        if table.front is not None:
            yield ReportSection(key=LEARNED, dataset=dataset, tables=[rays(table, table.front)])


def rays(table: Table, front: Fronts) -> Sheet:
    """Return the networks of rows with several: the preference of each, and what it reaches."""
    points = front.points.groupby(["method", "ray"], sort=False)
    preferences = points["preference"].first()
    methods = preferences.index.get_level_values("method")
    columns = [
        method_column(methods),
        text_column("preference", list(map(preference_text, preferences))),
    ]
    for task, metric in front.objectives.items():
        means = points[task].mean()
        widths = half_width(points[task].std(), points[task].count())
        header = f"{task} {metric}"
        columns.append(number_column(header, means, f".{decimals(means)}f", pd.Series(widths, means.index)))
    columns.append(number_column("off ray °", points["off_ray"].mean(), ".1f"))
    found = [f"{good}/{all_seeds}" for good, all_seeds in zip(points["found"].sum(), points.size(), strict=True)]
    columns.append(text_column("on the front", found))
    return Sheet(
        title="Rays",
        key=f"{table.dataset} rays",
        caption=f"Networks of the rows with several on {table.dataset}",
        columns=columns,
        names=2,
        text=f"{table.dataset}: each network of the rows with several. Above, such a row has the numbers of its "
        "central ray.",
        legend="on the front: seeds for which no other network of the row is better in all tasks.",
        label=f"{table.dataset}: the rays",
    )
