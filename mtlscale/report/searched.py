"""What searches and other learned structure add to a report: pictures, interactive figures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mtlscale.records import RunRecord
from mtlscale.report.affinities import affinities, affinity_figure, affinity_plot
from mtlscale.report.branching import branching_figure, branching_plot
from mtlscale.report.cells import cell_figure, cell_plot, drawable
from mtlscale.report.colors import Looks
from mtlscale.report.conflicts import conflict_figure, conflict_plot, conflict_ratios
from mtlscale.report.front import front_figure, front_of, front_plot
from mtlscale.report.gates import KNOWN, gate_figure, gate_plot
from mtlscale.report.parameters import parameter_figure, parameter_plot, sized
from mtlscale.report.traces import MOST_METHODS, by_method, trace_values, users
from mtlscale.report.trees import learned, tree_figure, tree_plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

    from mtlscale.report.table import Table


def searched_pictures(table: Table, records: Sequence[RunRecord], shown: Looks) -> Iterator[tuple[str, Drawing]]:
    """(file name without suffix, figure) of all there is to draw of one data set."""
    titles, files = _titles(records), _files(records)
    for method, trees in list(learned(records).items())[:MOST_METHODS]:
        yield f"tree_{files[method]}", tree_figure(trees)
    for method, rows in by_method(trace_values(records, "branching")).items():
        yield f"branching_{files[method]}", branching_figure(rows, titles[method])
    for affinity in affinities(records):
        yield f"affinity_{files[affinity.method]}", affinity_figure(affinity)
    for trace in KNOWN:
        if len(values := trace_values(records, trace)):
            yield trace, gate_figure(values, trace)
    if len(ratios := conflict_ratios(trace_values(records, "conflict_ratio"))):
        yield "conflict_ratio", conflict_figure(ratios)
    for method, cells in list(drawable(records).items())[:MOST_METHODS]:
        yield f"cells_{files[method]}", cell_figure(cells, method)
    if (front := front_of(table)) is not None:
        yield "front", front_figure(table, front, shown)
    if len(sized(table)):
        yield "parameters", parameter_figure(table, shown)


def searched_figures(table: Table, records: Sequence[RunRecord], shown: Looks) -> Iterator[tuple[str, str, Figure]]:
    """(title, what it shows, figure) of the same for the page."""
    if len(sized(table)):
        what = f"Δ over {table.baseline} against the size of the network; dashed: the Pareto front."
        yield "Quality and parameters", what, parameter_plot(table, shown)
    if (front := front_of(table)) is not None:
        what = (
            "Means over seeds; ringed: no other method is as good in all of these and better in one. Runs cover "
            f"{front.whole:.1f} % of the hypervolume between the best and the worst values together."
        )
        yield "Pareto front", what, front_plot(table, front, shown)
    titles = _titles(records)
    for method, cells in list(drawable(records).items())[:MOST_METHODS]:
        what = "The operations that were chosen, of the newest run; k−1 and k−2 are the cells before."
        yield f"Cells, {titles[method]}", what, cell_plot(cells)
    for trees in list(learned(records).values())[:MOST_METHODS]:
        for one in trees:
            what = (
                "From the input to the tasks: in each circle how many pass that module; dark all, blue some, grey one."
            )
            yield f"Learned tree, {one.title}", what, tree_plot(one)
    for method, rows in by_method(trace_values(records, "branching")).items():
        what = "By task, mean over seeds; behind the arrow the likeliest after the last epoch."
        yield f"Branch points, {titles[method]}", what, branching_plot(rows)
    for affinity in affinities(records):
        what = "Row: whose gradient is stepped along; column: whose loss falls (blue) or rises (red) by it."
        yield f"Affinity, {affinity.title}", what, affinity_plot(affinity)
    for trace, (name, _) in KNOWN.items():
        if len(values := trace_values(records, trace)):
            what = "Last values: mean over seeds as bars, seeds as dots; and by epoch."
            yield name[0].upper() + name[1:], what, gate_plot(values, trace)
    if len(ratios := conflict_ratios(trace_values(records, "conflict_ratio"))):
        what = "Share of pairs of tasks whose gradients oppose each other: mean over the epochs, interval over seeds."
        yield "Conflict ratio by module", what, conflict_plot(ratios)


def _titles(records: Sequence[RunRecord]) -> dict[str, str]:
    """Method -> its name, and the methods that share its search."""
    return {
        method: f"{method} (shared with {', '.join(others)})" if others else method
        for method, others in users(records).items()
    }


def _files(records: Sequence[RunRecord]) -> dict[str, str]:
    """Method -> what stands for it in a file's name, of no two methods the same."""
    names: dict[str, str] = {}
    for method in dict.fromkeys(record.method for record in records):
        name = re.sub(r"[^0-9A-Za-z.-]+", "_", method)
        again = sum(re.fullmatch(rf"{re.escape(name)}(~\d+)?", other) is not None for other in names.values())
        names[method] = f"{name}~{again + 1}" if again else name
    return names
