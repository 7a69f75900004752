"""The cells of a genotype as graphs."""

from __future__ import annotations

from mtlscale.config import extensions
from mtlscale.nas.report.cell_graphs import cell_chart, drawable
from mtlscale.records import RunRecord
from mtlscale.report.charts.chart import ChartText, Dots, Line

CELLS = {
    "normal": [[["sep3", 0], ["skip", 1]], [["max3", 2], ["sep5", 0]]],
    "reduce": [[["avg3", 0], ["avg3", 1]], [["dil3", 1], ["skip", 2]]],
}


RECORD = RunRecord(
    run_id="large0",
    experiment="x",
    dataset="kinds",
    method="large",
    seed=0,
    status="finished",
    spec={"dataset": {"name": "kinds"}},
    fingerprint="f",
    higher_is_better={},
    main_metrics={},
    metrics={},
    last={},
    parameters=1,
    seconds=1.0,
    structure={"cells": CELLS},
)


def test_a_report_has_them() -> None:
    titles, files = {"large": "large"}, {"large": "large"}
    charts = [chart for make in extensions("structure_charts") for chart in make([RECORD], titles, files)]
    assert ("cells_large", "Cells, large") in [(chart.file, chart.title) for chart in charts]


def test_cells_have_every_edge_and_node() -> None:
    (cells,) = drawable([RECORD]).values()
    for panel in cell_chart(cells, "large").panels:
        [dots] = panel.of(Dots)
        assert dots.inside == ["k−2", "k−1", "0", "1"]
        chosen = CELLS[panel.title.removesuffix(" cell")]
        operations = [operation for node in chosen for operation, _ in node]
        assert [text.text for text in panel.of(ChartText)] == operations and len(panel.of(Line)) == 4
