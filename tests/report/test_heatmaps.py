from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mtlscale.records import Epoch, RunRecord
from mtlscale.report import write_report
from mtlscale.report.charts.chart import HeatMap
from mtlscale.report.charts.heatmaps import heat_chart, matrices

Make = Callable[..., RunRecord]
NORMS = [[0.0, 1.5], [0.25, 0.0], [2.0, 0.5]]


def with_traces(record: Make, method: str, seed: int, **traces: object) -> RunRecord:
    made = record(method, seed, {"a": {"accuracy": 90.0}, "b": {"accuracy": 80.0}})
    first = Epoch(epoch=1, train_loss={"a": 1.0, "b": 1.0}, seconds=0.1)
    return made.model_copy(update={"epochs": [first, first.model_copy(update={"epoch": 2, "traces": traces})]})


def test_a_matrix_is_rows_of_equal_length(record: Make) -> None:
    runs = [
        with_traces(record, "ex", 0, topic_norms=NORMS, special_modules=4, weights=[0.5, 0.5]),
        with_traces(record, "el", 0, ragged=[[1.0], [1.0, 2.0]], empty=[], R=[[1.0, float("nan")], [0.0, 1.0]]),
    ]
    assert matrices(runs) == ["topic_norms"]
    failed = runs[0].model_copy(update={"status": "failed"})
    assert matrices([failed]) == []


def test_every_method_has_the_matrix_of_its_first_run(record: Make) -> None:
    doubled = [[2 * value for value in row] for row in NORMS]
    runs = [
        with_traces(record, "stl", 0),
        with_traces(record, "ex", 0, topic_norms=NORMS),
        with_traces(record, "ex", 1, topic_norms=doubled),
        with_traces(record, "el", 1, topic_norms=doubled),
    ]
    chart = heat_chart(runs, "topic_norms")
    assert chart.title == "topic_norms" and [panel.title for panel in chart.panels] == ["ex, seed 0", "el, seed 1"]
    [heat] = chart.panels[0].of(HeatMap)
    assert heat.values.tolist() == NORMS
    assert chart.panels[0].x.names == ["a", "b"] and chart.panels[0].y.names == ["1", "2", "3"]


def test_the_report_has_them_among_its_pictures(record: Make, tmp_path: Path) -> None:
    runs = [with_traces(record, "ex", 0, topic_norms=NORMS)]
    files = write_report(runs, tmp_path, "test")
    assert files["heatmap_topic_norms"] == tmp_path / "pictures" / "heatmap_topic_norms.png"
    assert files["heatmap_topic_norms"].read_bytes().startswith(b"\x89PNG")
