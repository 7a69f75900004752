"""All charts of each data set: those of its page, and those of its files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mtlscale.records import RunRecord
from mtlscale.report.charts.chart import MOST_LINES, Chart
from mtlscale.report.charts.colors import LineStyles
from mtlscale.report.charts.curves import curve_chart, radar_chart, weight_chart
from mtlscale.report.charts.front import rays_chart
from mtlscale.report.charts.heatmaps import heat_chart, matrices
from mtlscale.report.charts.scores import cost_chart, gain_bars, gain_map, score_chart, score_column
from mtlscale.report.report_section import HTML, REPORT, ReportSection
from mtlscale.report.sections.registry import View, section
from mtlscale.report.stats.curves import epoch_frame, over_seeds, trace_frame, traced, varying_weights
from mtlscale.report.structures.searched import structure_charts
from mtlscale.report.tables.table import Table

MOST_CURVES = 12  # methods of a page with curves and weights; the tables hold all
MOST_PANELS = 6  # of a page
MOST_WEIGHTS = 24  # methods of a file with a panel of weights


@section("figures", order=3, formats=(HTML, REPORT))
def figures(view: View) -> Iterator[ReportSection]:
    """Yield the charts of each data set."""
    draw = page_charts if view.form == HTML else file_charts
    for dataset, table in view.tables.items():
        yield ReportSection(dataset=dataset, charts=list(draw(table, view.runs[dataset], view.looks)))


def page_charts(table: Table, records: Sequence[RunRecord], styles: LineStyles) -> Iterator[Chart]:
    """Yield a chart of everything that there is something to draw for, the most important first."""
    score, base = score_column(table), table.baseline
    if score != "mean_rank":
        yield score_chart(table, score, styles)
        yield cost_chart(table, score, styles)
    if table.rows["delta_i"].notna().any() and score != "delta_i":
        yield gain_bars(table, styles)
    if base is not None and len(table.tasks) > 1:
        yield gain_map(table, base)
    if table.front is not None and len(table.tasks) > 1:
        yield rays_chart(table, table.front, styles)

    epochs = epoch_frame(records, drawn_rows(table))
    # Different metrics have no mean.
    one_metric, tasks = len(set(table.main_metrics.values())) == 1, table.tasks[:MOST_PANELS]
    if epochs["train_loss"].notna().any():
        parts = {"": epochs} if one_metric else {task: epochs[epochs["task"] == task] for task in tasks}
        panels = {title: over_seeds(rows, "train_loss") for title, rows in parts.items()}
        note = "Mean over tasks and seeds." if one_metric else "Mean over seeds."
        yield curve_chart(panels, styles, "Training loss", note)

    if epochs["val"].notna().any():
        named = {f"{task} {table.main_metrics[task]}": epochs[epochs["task"] == task] for task in tasks}
        panels = {title: over_seeds(rows, "val") for title, rows in ({"": epochs} if one_metric else named).items()}
        note = "Main metric of each task, mean over seeds."
        if one_metric:
            note = f"Main metric ({table.main_metrics[tasks[0]]}), mean over tasks and seeds."
        yield curve_chart(panels, styles, "Validation", note)

    if traces := traced(records)[:MOST_PANELS]:
        panels = {trace: over_seeds(trace_frame(records, trace), "value") for trace in traces}
        yield curve_chart(panels, styles, "Traces", "What objectives recorded, mean over seeds.")
    if weights := varying_weights(epochs):
        yield weight_chart(weights, MOST_PANELS)

    yield from structure_charts(table, records, styles)


def drawn_rows(table: Table) -> list[str]:
    """Return the best methods, and those that the others are compared with."""
    finished = [str(method) for method in table.rows.index[table.rows["finished"] > 0]]
    always = [method for method in (table.baseline, table.reference) if method in finished[MOST_CURVES:]]
    return finished[:MOST_CURVES] + always


def file_charts(table: Table, records: Sequence[RunRecord], styles: LineStyles) -> Iterator[Chart]:
    """Yield every chart of one data set that has a file."""
    one_unit = len(set(table.main_metrics.values())) == 1  # losses and metrics of one unit
    epochs = epoch_frame(records, list(dict.fromkeys(record.method for record in records)))

    if table.front is not None and len(table.tasks) > 1:
        yield rays_chart(table, table.front, styles)
    if weights := varying_weights(epochs):
        yield weight_chart(weights, MOST_WEIGHTS, "weights")
    if one_unit and len(table.tasks) > 1 and epochs["train_loss"].notna().any():
        title = "Variance over tasks of the training losses"
        panels = {"": over_seeds(epochs, "train_loss", "variance")}
        yield curve_chart(panels, styles, title, "Mean over seeds.", "loss_variance", log=True)
    if one_unit and 3 <= len(table.tasks) <= 2 * MOST_LINES and len(table.runs):
        yield radar_chart(table, styles, "radar")
    for trace in traced(records):
        rows = over_seeds(trace_frame(records, trace), "value")
        yield curve_chart({"": rows}, styles, trace, "Mean over seeds.", f"trace_{trace}")
    for trace in matrices(records):
        yield heat_chart(records, trace)

    yield from structure_charts(table, records, styles)
