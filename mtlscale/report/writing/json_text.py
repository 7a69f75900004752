"""The JSON of a leaderboard: every number as it was computed, and where it comes from."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mtlscale.records import RunRecord
from mtlscale.report.charts.alt_text import described
from mtlscale.report.stats.frames import by_dataset, newest
from mtlscale.report.tables.caveats import legend
from mtlscale.report.tables.takeaway import takeaway
from mtlscale.version import __version__

if TYPE_CHECKING:
    import pandas as pd

    from mtlscale.report.cells.sheet import Sheet
    from mtlscale.report.merge_experiments import ExperimentRecords
    from mtlscale.report.report_section import ReportSection
    from mtlscale.report.tables.table import Table

SCHEMA = 1  # raised when a name goes or changes its meaning; new names may come at any time


def json_text(
    tables: Sequence[Table],
    records: Sequence[RunRecord],
    sources: Sequence[ExperimentRecords] = (),
    overall: Sheet | None = None,
    pairs: Mapping[str, Sheet] | None = None,
    sections: Sequence[ReportSection] = (),
) -> str:
    """Return what every other format shows, with all digits; unknown values are null.

    Metrics are in `task.metric`, half widths of 95 % intervals in names that end in `_ci`.
    """
    runs = by_dataset(newest(records))

    content = {
        "schema": SCHEMA,
        "mtlscale": __version__,
        "sources": [{"experiment": s.name, "place": s.location, "runs": len(s.records)} for s in sources],
        "tables": [_table(table, runs.get(table.dataset, ()), (pairs or {}).get(table.dataset)) for table in tables],
        "overall": None,
    }

    if overall is not None:
        content["overall"] = {
            "sentence": overall.text,
            "notes": list(overall.notes),
            "rows": _row_objects(overall.numbers),
        }

    if sections:
        content["sections"] = [
            {
                "section": section.key,
                "title": section.title,
                "texts": list(section.texts),
                "charts": [{"title": chart.title, "text": described(chart)} for chart in section.charts],
                "tables": [_table_object(sheet) for sheet in section.tables],
            }
            for section in sections
        ]

    return json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def _table(table: Table, records: Sequence[RunRecord], pairs: Sheet | None) -> dict[str, Any]:
    by_method: dict[str, list[RunRecord]] = {}
    for record in records:
        by_method.setdefault(record.method, []).append(record)

    rows = _row_objects(table.rows.reset_index())
    for row in rows:
        method_records = by_method.get(row["method"], [])
        row["runs"] = [
            {"run_id": record.run_id, "seed": record.seed, "status": record.status} for record in method_records
        ]

    failures = table.failures.to_dict("records")
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
        "rows": rows,
        "failures": [{str(key): _plain(value) for key, value in row.items()} for row in failures],
        "provenance": _provenance(records),
    }

    if table.domains:  # `last` of the rows is the "last step" score
        content["domains"] = list(table.domains)
    if pairs is not None:
        content["pairwise"] = {"notes": list(pairs.notes), "rows": _row_objects(pairs.numbers)}

    return content


def _table_object(sheet: Sheet) -> dict[str, Any]:
    texts = [dict(zip(sheet.header, row, strict=True)) for row in sheet.texts]
    rows = texts if sheet.numbers is None else _row_objects(sheet.numbers)
    return {"title": sheet.title, "text": sheet.text, "notes": list(sheet.notes), "rows": rows}


def _row_objects(frame: pd.DataFrame | None) -> list[dict[str, Any]]:
    plain = [] if frame is None else frame.to_dict("records")
    return [{str(key): _plain(value) for key, value in row.items()} for row in plain]


def _plain(value: Any) -> Any:
    """Return a value that JSON has: numpy's numbers as Python's, null for numbers that are not finite."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(entry) for entry in value]
    return value if value is None or isinstance(value, str | int | bool) else str(value)


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
