"""What JSON has of each data set: every number of its rows, its failures, and where they come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from mtlscale.records import RunRecord
from mtlscale.report.cells.sheet import Sheet
from mtlscale.report.report_section import CSV, JSON, ReportSection
from mtlscale.report.sections.pairs import of_pairs, pairwise
from mtlscale.report.sections.registry import View, section
from mtlscale.report.tables.caveats import legend
from mtlscale.report.tables.table import Table
from mtlscale.report.tables.takeaway import takeaway


@section("rows", order=-1, formats=(CSV,))
def rows(view: View) -> Iterator[ReportSection]:
    """Yield the rows of all tables below each other, unless another table is asked for."""
    if view.overall is None and not view.pairwise:
        yield ReportSection(tables=[Sheet(columns=(), numbers=all_rows(view.tables.values()))])


def all_rows(tables: Iterable[Table]) -> pd.DataFrame:
    """Return all tables below each other, one row per data set and method, best first."""
    frames = []
    for table in tables:
        frame = table.rows.reset_index()
        frame.insert(0, "dataset", table.dataset)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


@section("numbers", order=0, formats=(JSON,))
def numbers(view: View) -> Iterator[ReportSection]:
    """Yield the numbers of each data set."""
    for dataset, table in view.tables.items():
        records = [record for record in view.runs.get(dataset, ()) if record.method in table.rows.index]
        yield ReportSection(dataset=dataset, numbers=_numbers(table, records, pairwise_too=view.pairwise))


def _numbers(table: Table, records: Sequence[RunRecord], *, pairwise_too: bool) -> dict[str, Any]:
    by_method: dict[str, list[dict[str, Any]]] = {str(method): [] for method in table.rows.index}
    for record in records:
        by_method[record.method].append({"run_id": record.run_id, "seed": record.seed, "status": record.status})

    content: dict[str, Any] = {
        "dataset": table.dataset,
        "sentence": takeaway(table),
        "split": table.split,
        "main_metrics": table.main_metrics,
        "higher_is_better": table.higher_is_better,
        "baseline": table.baseline,
        "reference": table.reference,
        "order": table.order,
        "delta": [f"{task}.{metric}" for task, metric in table.delta],
        "legend": legend(table),
        "notes": list(table.notes),
        "rows": table.rows.assign(runs=pd.Series(by_method)).reset_index(),
        "failures": table.failures,
        "provenance": _provenance(records),
    }

    if table.domains:  # `last` of the rows is the "last step" score
        content["domains"] = list(table.domains)
    if pairwise_too:
        sheet = of_pairs(pairwise(table))
        content["pairwise"] = {"notes": list(sheet.notes), "rows": sheet.numbers}

    return content


def _provenance(records: Sequence[RunRecord]) -> dict[str, Any]:
    def each(name: str) -> list[Any]:
        return sorted({value for record in records if (value := getattr(record, name))})

    versions: dict[str, set[str]] = {}
    for record in records:
        for name, version in record.versions.items():
            versions.setdefault(name, set()).add(version)

    return {
        "experiments": each("experiment"),
        "fingerprints": each("fingerprint"),
        "revisions": each("revision"),
        "hardware": each("hardware"),
        "workers": each("workers"),
        "versions": {name: sorted(different_versions) for name, different_versions in sorted(versions.items())},
        "last_run": max((record.finished for record in records), default=""),
    }
