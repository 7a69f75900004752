"""Charts of searches and other learned structure, for files and for the page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mtlscale.config import extensions
from mtlscale.records import RunRecord
from mtlscale.report.charts.colors import LineStyles
from mtlscale.report.charts.front import front_figure, front_of, front_plot
from mtlscale.report.charts.parameter_counts import parameter_figure, parameter_plot, sized
from mtlscale.report.stats.traces import MOST_METHODS, by_method, trace_values, users
from mtlscale.report.structures.affinities import affinities, affinity_figure, affinity_plot
from mtlscale.report.structures.branching import branching_figure, branching_plot
from mtlscale.report.structures.conflicts import conflict_figure, conflict_plot, conflict_ratios
from mtlscale.report.structures.gates import GATE_KINDS, gate_figure, gate_plot
from mtlscale.report.structures.trees import learned, tree_figure, tree_plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

    from mtlscale.report.tables.table import Table


def searched_pictures(table: Table, records: Sequence[RunRecord], styles: LineStyles) -> Iterator[tuple[str, Drawing]]:
    """Yield (file name without suffix, figure) of every chart of one data set."""
    titles, files = _titles(records), _files(records)

    for method, trees in list(learned(records).items())[:MOST_METHODS]:
        yield f"tree_{files[method]}", tree_figure(trees)
    for method, rows in by_method(trace_values(records, "branching")).items():
        yield f"branching_{files[method]}", branching_figure(rows, titles[method])

    for affinity in affinities(records):
        yield f"affinity_{files[affinity.method]}", affinity_figure(affinity)
    for trace in GATE_KINDS:
        if len(values := trace_values(records, trace)):
            yield trace, gate_figure(values, trace)
    if len(ratios := conflict_ratios(trace_values(records, "conflict_ratio"))):
        yield "conflict_ratio", conflict_figure(ratios)

    for more_figures in extensions("structure_figures"):
        yield from more_figures(records, titles, files)

    if (front := front_of(table)) is not None:
        yield "front", front_figure(table, front, styles)
    if len(sized(table)):
        yield "parameters", parameter_figure(table, styles)


def searched_figures(
    table: Table, records: Sequence[RunRecord], styles: LineStyles
) -> Iterator[tuple[str, str, Figure]]:
    """Yield (title, explanation, figure) of the same charts for the page."""
    if len(sized(table)):
        explanation = f"Δ over {table.baseline} against the size of the network; dashed: the Pareto front."
        yield "Quality and parameters", explanation, parameter_plot(table, styles)

    if (front := front_of(table)) is not None:
        explanation = (
            "Means over seeds; ringed: no other method is as good in all of these and better in one. Runs cover "
            f"{front.total_volume:.1f} % of the hypervolume between the best and the worst values together."
        )
        yield "Pareto front", explanation, front_plot(table, front, styles)

    titles = _titles(records)
    for more_plots in extensions("structure_plots"):
        yield from more_plots(records, titles)

    for trees in list(learned(records).values())[:MOST_METHODS]:
        for tree in trees:
            explanation = (
                "From the input to the tasks: in each circle how many pass that module; dark all, blue some, grey one."
            )
            yield f"Learned tree, {tree.title}", explanation, tree_plot(tree)

    for method, rows in by_method(trace_values(records, "branching")).items():
        explanation = "By task, mean over seeds; behind the arrow the likeliest after the last epoch."
        yield f"Branch points, {titles[method]}", explanation, branching_plot(rows)

    for affinity in affinities(records):
        explanation = "Row: whose gradient is stepped along; column: whose loss falls (blue) or rises (red) by it."
        yield f"Affinity, {affinity.title}", explanation, affinity_plot(affinity)

    for trace, (name, _) in GATE_KINDS.items():
        if len(values := trace_values(records, trace)):
            explanation = "Last values: mean over seeds as bars, seeds as dots; and by epoch."
            yield name[0].upper() + name[1:], explanation, gate_plot(values, trace)

    if len(ratios := conflict_ratios(trace_values(records, "conflict_ratio"))):
        explanation = (
            "Share of pairs of tasks whose gradients oppose each other: mean over the epochs, interval over seeds."
        )
        yield "Conflict ratio by module", explanation, conflict_plot(ratios)


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
        name = re.sub(r"[^0-9A-Za-z.-]+", "_", method)
        duplicates = sum(
            re.fullmatch(rf"{re.escape(name)}(~\d+)?", earlier_name) is not None for earlier_name in names.values()
        )
        names[method] = f"{name}~{duplicates + 1}" if duplicates else name
    return names
