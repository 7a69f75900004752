"""Charts of searches and other learned structure, for files and for the page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mtlscale.config import extensions
from mtlscale.records import RunRecord
from mtlscale.report.cells.number_format import file_name
from mtlscale.report.charts.chart import Chart
from mtlscale.report.charts.colors import LineStyles
from mtlscale.report.charts.front import front_chart, front_of
from mtlscale.report.charts.parameter_counts import parameter_chart, sized
from mtlscale.report.stats.traces import MOST_METHODS, by_method, trace_values, users
from mtlscale.report.structures.affinities import affinities, affinity_chart
from mtlscale.report.structures.branching import branching_chart
from mtlscale.report.structures.conflicts import conflict_chart, conflict_ratios
from mtlscale.report.structures.gates import GATE_KINDS, gate_chart
from mtlscale.report.structures.trees import learned, tree_chart

if TYPE_CHECKING:
    from mtlscale.report.tables.table import Table


def structure_charts(table: Table, records: Sequence[RunRecord], styles: LineStyles) -> Iterator[Chart]:
    """Yield every chart of one data set that has data."""
    titles, files = _titles(records), _files(records)

    if len(sized(table)):
        yield parameter_chart(table, styles)
    if (front := front_of(table)) is not None:
        yield front_chart(table, front, styles)
    for more_charts in extensions("structure_charts"):
        yield from more_charts(records, titles, files)

    for method, trees in list(learned(records).items())[:MOST_METHODS]:
        yield from (tree_chart(tree, f"tree_{files[method]}") for tree in trees)
    for method, rows in by_method(trace_values(records, "branching")).items():
        yield branching_chart(rows, titles[method], f"branching_{files[method]}")
    for affinity in affinities(records):
        yield affinity_chart(affinity, f"affinity_{files[affinity.method]}")

    for trace in GATE_KINDS:
        if len(values := trace_values(records, trace)):
            yield gate_chart(values, trace)
    if len(ratios := conflict_ratios(trace_values(records, "conflict_ratio"))):
        yield conflict_chart(ratios)


def _titles(records: Sequence[RunRecord]) -> dict[str, str]:
    """Return method -> its name, with the methods that share its search."""
    return {
        method: f"{method} (shared with {', '.join(sharing)})" if sharing else method
        for method, sharing in users(records).items()
    }


def _files(records: Sequence[RunRecord]) -> dict[str, str]:
    """Return method -> its name in file names, unique among the methods."""
    names: dict[str, str] = {}
    for method in dict.fromkeys(record.method for record in records):
        name = file_name(method)
        duplicates = sum(
            re.fullmatch(rf"{re.escape(name)}(~\d+)?", earlier_name) is not None for earlier_name in names.values()
        )
        names[method] = f"{name}~{duplicates + 1}" if duplicates else name
    return names
