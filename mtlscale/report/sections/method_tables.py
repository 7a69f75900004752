"""Small tables of what was learned about networks: conflicts by module, branch points, edges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from mtlscale.records import RunRecord
from mtlscale.report.cells.sheet import Sheet, text_sheet
from mtlscale.report.report_section import HTML, LEARNED, REPORT, ReportSection
from mtlscale.report.sections.registry import View, section
from mtlscale.report.sections.similarity import similarity_rows
from mtlscale.report.stats.traces import last_values, trace_values
from mtlscale.report.structures.conflicts import conflict_ratios, conflict_texts
from mtlscale.report.tables.published import PublishedTable

MOST_EDGES = 40  # edges of a method that are listed


@section(LEARNED, order=15, formats=(REPORT, HTML))
def learned(view: View) -> Iterator[ReportSection]:
    """Yield the tables of each data set; in a file that has all data sets, their titles name it."""
    for dataset, runs in view.runs.items():
        sheets = method_tables(runs, view.published.get(dataset, ()))
        if view.form == REPORT and len(view.tables) > 1:
            sheets = [replace(sheet, title=f"{sheet.title} on {dataset}") for sheet in sheets]
        if sheets:
            yield ReportSection(dataset=dataset, tables=sheets)


def method_tables(records: Sequence[RunRecord], published: Sequence[PublishedTable] = ()) -> list[Sheet]:
    """Return every table that the records of one data set have something for.

    Args:
        records: The records of the data set.
        published: Published tables on the data set, whose branch points are listed beside ours.
    """
    finished = [record for record in records if record.status == "finished"]
    ratios = conflict_ratios(trace_values(records, "conflict_ratio"))
    conflict_header, conflict_rows = conflict_texts(ratios) if len(ratios) else ([], [])

    candidates = (
        (
            "Conflict ratio by module",
            "Pairs of tasks whose gradients of the module have a negative product, in percent of all.",
            conflict_header,
            conflict_rows,
        ),
        (
            "Closed gates",
            "Tasks that do without what is shared, as their own network is the better one, and for how many seeds.",
            ["method", "tasks"],
            list(_closed(trace_values(finished, "kept"))),
        ),
        (
            "Branch points",
            "How many modules from the input on a task shares, plus one.",
            ["method", "seeds", "tasks"],
            list(_points(finished, published)),
        ),
        (
            "Edges between tasks",
            "What a task takes from another's stage.",
            ["method", "from", "to", "weight", "seeds"],
            list(_edges(finished)),
        ),
        (
            "Covariance similarity",
            "Of the embeddings of two tasks' training samples, before and after a matrix of each task turns them.",
            ["method", "tasks", "before", "after", "seeds"],
            list(similarity_rows(finished)),
        ),
    )
    return [text_sheet(title, text, header, rows) for title, text, header, rows in candidates if rows]


def _closed(gains: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield a row for every method whose gates are kept (1) or closed (0) in the end."""
    for method, rows in last_values(gains).groupby("method", sort=False):
        of_task = rows[rows["place"] == 0].groupby("task", sort=False)["value"]
        counts = {str(task): (int((values == 0).sum()), len(values)) for task, values in of_task}
        texts = [f"{task} ({closed} of {total})" for task, (closed, total) in counts.items() if closed]
        if counts:
            yield str(method), ", ".join(texts) or "none"


def _points(records: Sequence[RunRecord], known: Sequence[PublishedTable]) -> Iterator[tuple[str, ...]]:
    """Yield a row for every choice of branch points that a method's seeds made, then the published choice."""
    seeds_by_choice: dict[tuple[str, str], list[int]] = {}
    for record in records:
        if points := _points_of(record):
            seeds_by_choice.setdefault((record.method, _by_place(points)), []).append(record.seed)

    totals: dict[str, int] = {}
    for (method, _), seeds in seeds_by_choice.items():
        totals[method] = totals.get(method, 0) + len(seeds)

    published = {label: (table.source, method.points) for table in known for label, method in table.methods.items()
                 if method.points}  # fmt: skip
    for method in totals:
        choices = {text: seeds for (of_method, text), seeds in seeds_by_choice.items() if of_method == method}
        for text, seeds in sorted(choices.items(), key=lambda item: -len(item[1])):
            yield method, f"{len(seeds)} of {totals[method]}", text
        if method in published:
            source, points = published[method]
            yield f"{method}, as published", source, _by_place(points)


def _points_of(record: RunRecord) -> Mapping[str, int]:
    """Return task -> branch point, as recorded or as the tree of a search says; empty where there is neither."""
    points, tree = record.structure.get("points"), record.structure.get("tree")
    if isinstance(points, dict):
        return points
    if not isinstance(tree, list) or not record.phases:
        return {}
    names = record.structure.get("tasks") or list(record.main_metrics)
    shared_nodes = [[stage.count(node) > 1 for node in stage] for stage in tree]
    return {
        str(name): 1
        + next((stage for stage, is_shared in enumerate(shared_nodes) if not is_shared[position]), len(shared_nodes))
        for position, name in enumerate(names)
    }


def _by_place(points: Mapping[str, int]) -> str:
    return "; ".join(f"{point}: {', '.join(str(task) for task, at in points.items() if at == point)}"
                     for point in sorted(set(points.values())))  # fmt: skip


def _edges(records: Sequence[RunRecord]) -> Iterator[tuple[str, ...]]:
    """Yield a row for every edge that seeds of a method kept, those of most seeds and weight first."""
    by_method: dict[str, dict[tuple[str, str], list[float]]] = {}
    totals: dict[str, int] = {}

    for record in records:
        edges = record.structure.get("edges")
        if not isinstance(edges, list):
            continue
        totals[record.method] = totals.get(record.method, 0) + 1
        names = record.structure.get("tasks") or list(record.main_metrics)
        of_method = by_method.setdefault(record.method, {})
        for source, stage, target, into, weight in edges:
            key = f"{_name(source, names)}, stage {stage}", f"{_name(target, names)}, stage {into}"
            of_method.setdefault(key, []).append(float(weight))

    for method, weights_by_edge in by_method.items():
        order = sorted(weights_by_edge.items(), key=lambda item: (-len(item[1]), -sum(item[1]) / len(item[1])))
        for (source, target), weights in order[:MOST_EDGES]:
            mean = f"{sum(weights) / len(weights):.2f}"
            yield method, source, target, mean, f"{len(weights)} of {totals[method]}"
        if not order:
            yield method, "none kept", "–", "–", f"{totals[method]} of {totals[method]}"
        elif len(order) > MOST_EDGES:
            yield method, f"{len(order) - MOST_EDGES} more", "–", "–", "–"


def _name(task: Any, names: Sequence[str]) -> str:
    return str(names[task]) if isinstance(task, int) and task < len(names) else str(task)
