"""The cells of a genotype as graphs."""

from __future__ import annotations

from mtlscale.config import extensions
from mtlscale.nas.report.cell_graphs import cell_figure, cell_plot, drawable
from mtlscale.records import RunRecord

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
    assert "cells_large" in [
        name for make in extensions("structure_figures") for name, _ in make([RECORD], titles, files)
    ]
    assert "Cells, large" in [title for make in extensions("structure_plots") for title, *_ in make([RECORD], titles)]


def test_cells_have_every_edge_and_node() -> None:
    (cells,) = drawable([RECORD]).values()
    texts = [text.get_text() for panel in cell_figure(cells, "large").axes for text in panel.texts]
    assert sorted(text for text in texts if text in ("sep3", "max3", "sep5", "dil3")) == [
        "dil3",
        "max3",
        "sep3",
        "sep5",
    ]
    assert [texts.count(name) for name in ("k−2", "k−1", "0", "1")] == [2, 2, 2, 2]
    assert len(cell_plot(cells).data) == 2 * (4 + 1)
