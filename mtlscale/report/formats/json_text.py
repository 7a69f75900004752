"""The JSON of a leaderboard: every number as it was computed, and where it comes from."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from mtlscale.report.cells.sheet import Sheet
from mtlscale.report.charts.alt_text import described
from mtlscale.report.report_section import OVERALL, ReportSection
from mtlscale.version import __version__

SCHEMA = 1  # raised when a name goes or changes its meaning; new names may come at any time


def json_text(sections: Sequence[ReportSection], sources: Sequence[tuple[str, str, int]] = ()) -> str:
    """Return what every other format shows, with all digits; unknown values are null.

    Metrics are in `task.metric`, half widths of 95 % intervals in names that end in `_ci`.

    Args:
        sections: The sections.
        sources: The name, the place and the number of runs of each experiment.
    """
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "mtlscale": __version__,
        "sources": [{"experiment": name, "place": place, "runs": runs} for name, place, runs in sources],
        "tables": [_plain(section.numbers) for section in sections if section.numbers is not None],
        "overall": None,
    }

    others = [section for section in sections if section.numbers is None]
    for [sheet] in (section.tables for section in others if section.key == OVERALL):
        content["overall"] = {"sentence": sheet.text, "notes": list(sheet.notes), "rows": _plain(sheet.numbers)}

    if others := [section for section in others if section.key != OVERALL]:
        content["sections"] = [
            {
                "section": section.key,
                "title": section.title,
                "texts": section.sentences,
                "charts": [{"title": chart.title, "text": described(chart)} for chart in section.charts],
                "tables": [_table_object(sheet) for sheet in section.tables],
            }
            for section in others
        ]

    return json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def _table_object(sheet: Sheet) -> dict[str, Any]:
    texts = [dict(zip(sheet.header, row, strict=True)) for row in sheet.texts]
    rows = texts if sheet.numbers is None else _plain(sheet.numbers)
    return {"title": sheet.title, "text": sheet.text, "notes": list(sheet.notes), "rows": rows}


def _plain(value: Any) -> Any:
    """Return a value that JSON has: numpy's numbers as Python's, null for numbers that are not finite."""
    if isinstance(value, pd.DataFrame):
        value = value.to_dict("records")
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(entry) for entry in value]
    return value if value is None or isinstance(value, str | int | bool) else str(value)
