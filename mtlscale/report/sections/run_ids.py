"""The ids of runs, which `show`, `rerun` and `export` take."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from mtlscale.report.cells.number_format import EMPTY
from mtlscale.report.cells.sheet import Sheet, text_sheet
from mtlscale.report.report_section import HTML, LEARNED, ReportSection
from mtlscale.report.sections.registry import View, section
from mtlscale.report.tables.table import Table


@section("run_ids", order=16, formats=(HTML,))
def ids(view: View) -> Iterator[ReportSection]:
    """Yield the table of each data set; in Markdown it is part of the data set's section."""
    return (
        ReportSection(key=LEARNED, dataset=dataset, tables=[run_ids(table)]) for dataset, table in view.tables.items()
    )


def run_ids(table: Table) -> Sheet:
    """Return the ids of runs, which `show`, `rerun` and `export` take, with a column for each seed."""
    ended = pd.concat([table.runs, table.failures])[["method", "seed", "run_id"]]
    ids = ended.pivot(index="method", columns="seed", values="run_id").fillna(EMPTY)
    rows = ids.reindex([method for method in table.rows.index if method in ids.index])
    header = ("method", *(f"seed {seed}" for seed in rows))
    explanation = "what `mtlscale show`, `rerun` and `export` take"
    return text_sheet("Ids of the runs", explanation, header, list(rows.itertuples(name=None)))
