"""Rows with several solutions: one row for all rays, what its front covers, and its table and chart."""

from __future__ import annotations

from typing import Any

import moocore
import numpy as np
import pytest

from mtlscale.records import RunRecord
from mtlscale.records.record import FrontPoint
from mtlscale.report import Leaderboard
from mtlscale.report.charts.chart import Dots
from mtlscale.report.charts.colors import page_looks
from mtlscale.report.charts.front import rays_chart
from mtlscale.report.report_files import write_report
from mtlscale.report.stats.frames import newest

ERRORS = {"1 of 3": (30.0, 10.0), "2 of 3": (15.0, 15.0), "3 of 3": (12.0, 40.0)}


def record(method: str, seed: int, errors: tuple[float, float], status: str = "finished", **more: Any) -> RunRecord:
    metrics = {task: {"accuracy": 100.0 - error, "loss": error / 100} for task, error in zip("ab", errors, strict=True)}
    spec = {"dataset": {"name": "pairs"}, "balancer": {"name": "epo", **more.pop("balancer", {})}}
    finished = status == "finished"
    return RunRecord(
        run_id=f"{method}{seed}", experiment="x", dataset="pairs", method=method, seed=seed, status=status, spec=spec,
        fingerprint="f", higher_is_better={"accuracy": True, "loss": False} if finished else {},
        main_metrics={"a": "accuracy", "b": "accuracy"} if finished else {},
        metrics={"val": metrics, "test": metrics} if finished else {}, seconds=1.0, **more,
    )  # fmt: skip


def rays(seed: int, shift: float = 0.0, lost: str = "") -> list[RunRecord]:
    return [
        record(
            f"epo ray {ray}",
            seed,
            (a + shift, b + shift),
            "diverged" if ray == lost else "finished",
            balancer={"ray": ray},
        )
        for ray, (a, b) in ERRORS.items()
    ]


RECORDS = [*rays(0), *rays(1, 2.0), record("equal", 0, (20.0, 20.0)), record("equal", 1, (20.0, 20.0))]


def test_all_rays_are_one_row_with_the_numbers_of_the_central_one() -> None:
    table = Leaderboard.from_records(RECORDS, reference="equal").tables["pairs"]
    assert sorted(table.rows.index) == ["epo", "equal"]
    assert table.rows.loc["epo", "a.accuracy"] == pytest.approx(84.0)
    assert list(table.rows.loc["epo", ["finished", "planned"]]) == [2, 2]
    assert np.isnan(table.rows.loc["equal", "hypervolume"])
    assert [record.method for record in newest(RECORDS)] == ["epo", "epo", "equal", "equal"]


def test_a_front_covers_what_the_library_says() -> None:
    table = Leaderboard.from_records(RECORDS, reference="equal").tables["pairs"]
    volumes = [
        100 * moocore.hypervolume(np.array([[a + shift, b + shift] for a, b in ERRORS.values()]) / 100, ref=[1.0, 1.0])
        for shift in (0.0, 2.0)
    ]
    assert table.rows.loc["epo", "hypervolume"] == pytest.approx(np.mean(volumes))
    assert table.rows.loc["epo", "spread"] == pytest.approx((18 + 30) / 2)  # of 30 to 12, and of 40 to 10
    assert table.rows.loc["epo", "rays_found"] == 3


def test_off_ray_is_the_angle_between_losses_and_the_ray() -> None:
    exact = [record("epo ray 1 of 2", 0, (30.0, 10.0), balancer={"ray": "1 of 2"}),
             record("epo ray 2 of 2", 0, (10.0, 10.0), balancer={"ray": "2 of 2"})]  # fmt: skip
    points = Leaderboard.from_records(exact).tables["pairs"].front.points.set_index("ray")
    assert points["off_ray"].tolist() == [
        pytest.approx(0.0, abs=1e-5),
        pytest.approx(45 - np.degrees(np.arctan(1 / 3))),
    ]


def test_preferences_in_a_wrapped_balancer_and_in_a_list() -> None:
    wrapped = [
        record(f"slow ray {first:g} {1 - first:g}", 0, (20 * first, 10.0),
               balancer={"name": "smooth", "of": {"name": "epo", "preference": [first, 1 - first]}})
        for first in (0.25, 0.5)
    ]  # fmt: skip
    table = Leaderboard.from_records(wrapped).tables["pairs"]
    assert list(table.rows.index) == ["slow"]
    assert table.front.points["preference"].tolist() == [(0.25, 0.75), (0.5, 0.5)]
    assert table.rows.loc["slow", "a.accuracy"] == pytest.approx(90.0)


def test_a_ray_that_did_not_finish_is_named_and_a_central_one_counts() -> None:
    table = Leaderboard.from_records([*rays(0, lost="1 of 3"), *rays(1, lost="2 of 3")]).tables["pairs"]
    note = "rays without a point on their front: epo ray 1 of 3, seed 0 (diverged), epo ray 2 of 3, seed 1 (diverged)"
    assert note in table.notes
    assert list(table.rows.loc["epo", ["finished", "diverged"]]) == [1, 1]


def test_a_network_that_is_given_preferences_brings_its_front_along() -> None:
    points = [
        FrontPoint(preference=[share, 1 - share], metrics={"test": {"a": {"accuracy": a}, "b": {"accuracy": b}}})
        for share, a, b in ((0.9, 90.0, 50.0), (0.1, 50.0, 90.0), (0.5, 60.0, 50.0))
    ]
    own = record("palora", 0, (30.0, 30.0), front=points)
    assert RunRecord.model_validate_json(own.model_dump_json()) == own
    table = Leaderboard.from_records([own]).tables["pairs"]
    assert table.rows.loc["palora", "a.accuracy"] == pytest.approx(70.0)
    assert table.rows.loc["palora", "hypervolume"] == pytest.approx(100 * (0.9 * 0.5 + 0.5 * 0.4))
    assert table.rows.loc["palora", "rays_found"] == 2
    assert "front" not in record("equal", 0, (1.0, 1.0)).model_dump()


def test_tables_pages_and_charts_show_the_rays(tmp_path: Any) -> None:
    board = Leaderboard.from_records(RECORDS, reference="equal")
    table = board.tables["pairs"]
    files = write_report(RECORDS, tmp_path, "x", board=board)
    text = files["markdown"].read_text()
    assert "| epo | 0.167 : 0.833 | 69.00 |" in text
    assert "| epo ray 2 of 3 |" not in text
    assert files["rays"].exists()
    assert "Rays" in files["html"].read_text()
    chart = rays_chart(table, table.front, page_looks(newest(RECORDS), [table]))
    (means,) = [dots for dots in chart.panels[0].of(Dots) if dots.legend]
    assert list(means.names) == ["epo, 0.167 : 0.833", "epo, 0.5 : 0.5", "epo, 0.833 : 0.167"]
    assert list(means.x) == pytest.approx([69.0, 84.0, 87.0])
