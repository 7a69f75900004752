"""What the phases before the last took, in the leaderboard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from report_records import page

from mtlscale.records import PhaseCost, RunRecord
from mtlscale.report import Leaderboard, Table
from mtlscale.report.charts.chart import Dots
from mtlscale.report.charts.colors import page_looks
from mtlscale.report.charts.scores import cost_chart
from mtlscale.report.columns.shown import columns

Make = Callable[..., RunRecord]


def search(key: str, seconds: float, reused: bool = False) -> PhaseCost:
    return PhaseCost(name="search", phase_id=key, epochs=2, steps=10, seconds=seconds, reused=reused)


def run(record: Make, method: str, seed: int, seconds: float, *phases: PhaseCost, **fields: Any) -> RunRecord:
    return record(method, seed, {"a": {"accuracy": 90.0 + seed}}, seconds=seconds, phases=list(phases), **fields)


def searched(record: Make) -> list[RunRecord]:
    """One search of 40 s for both seeds of two methods, done within the first; another searches for each seed."""
    return [
        *(run(record, "equal", seed, 10.0) for seed in range(2)),
        run(record, "conal", 0, 52.0, search("x", 40.0)),
        run(record, "conal", 1, 14.0, search("x", 40.0, reused=True)),
        *(run(record, "conal_rlw", seed, 20.0, search("x", 40.0, reused=True)) for seed in range(2)),
        run(record, "ltb", 0, 30.0, search("y", 10.0)),
        run(record, "ltb", 1, 50.0, search("z", 30.0)),
    ]


def texts(table: Table) -> dict[str, dict[str, str]]:
    """method -> header -> text of the columns of cost."""
    found = [column for column in columns(table) if column.block == "cost"]
    return {
        str(method): {column.header: column.texts[place] for column in found}
        for place, method in enumerate(table.rows.index)
    }


def test_a_search_counts_as_it_cost_once_whoever_did_it(record: Make) -> None:
    rows = texts(Leaderboard.from_records(searched(record)).tables["digits"])
    shown = {method: [row[header] for header in ("s/run", "+ phases s", "= total s")] for method, row in rows.items()}
    assert shown == {
        "equal": ["10.0", "–", "10.0"],
        "conal": ["13.0", "40.0 once", "53.0"],  # 12 and 14 of training
        "conal_rlw": ["20.0", "40.0 once", "60.0"],
        "ltb": ["20.0", "20.0", "40.0"],
    }


def test_it_is_in_every_form_of_the_leaderboard(record: Make) -> None:
    runs = searched(record)
    board = Leaderboard.from_records(runs)
    assert "| method | s/run | + phases s | = total s |" in board.to_markdown()
    assert "40.0 once" in page(runs, board, "searched")
    row = board.to_pandas().set_index("method").loc["conal"]
    assert row[["seconds", "phase_seconds", "total_seconds", "phases_shared"]].tolist() == [13.0, 40.0, 53.0, 1.0]


def test_without_phases_there_are_no_such_columns(record: Make) -> None:
    runs = [run(record, method, 0, 10.0) for method in ("stl", "equal")]
    rows = texts(Leaderboard.from_records(runs).tables["digits"])
    assert rows["equal"]["s/run"] == "10.0"
    assert not {"+ phases s", "= total s"} & set(rows["equal"])


def test_quality_is_drawn_against_the_whole_cost(record: Make) -> None:
    runs = searched(record)
    table = Leaderboard.from_records(runs).tables["digits"]
    [points] = cost_chart(table, "average", page_looks(runs, [table])).panels[0].of(Dots)
    assert dict(zip(points.names, points.x, strict=True))["conal"] == pytest.approx(53.0)
