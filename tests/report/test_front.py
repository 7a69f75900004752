"""Fronts of several objectives and the volume that runs cover."""

from __future__ import annotations

import numpy as np
import pytest
from moocore import hypervolume as reference_hypervolume

from mtlscale.records import RunRecord
from mtlscale.report import Leaderboard
from mtlscale.report.charts.chart import Dots
from mtlscale.report.charts.colors import line_styles
from mtlscale.report.charts.front import front_chart, front_of
from mtlscale.report.stats.pareto import dominated, hypervolume
from mtlscale.report.structures.searched import structure_charts


def record(method: str, seed: int, accuracy: float, pgd: float, flops: float) -> RunRecord:
    metrics = {"class": {"accuracy": accuracy, "loss": 1.0}}
    return RunRecord(
        run_id=f"{method}{seed}",
        experiment="x",
        dataset="kinds",
        method=method,
        seed=seed,
        status="finished",
        spec={"dataset": {"name": "kinds"}},
        fingerprint="f",
        higher_is_better={"accuracy": True, "loss": False},
        main_metrics={"class": "accuracy"},
        metrics={"val": metrics, "test": metrics},
        last={"val": metrics, "test": metrics},
        figures={"test": {"pgd_accuracy": pgd}, "network": {"flops": flops}},
        parameters=int(1000 * flops),
        seconds=1.0,
    )


RECORDS = [
    *(record("large", seed, 90.0 + seed, 60.0, 9.0) for seed in (0, 1)),
    *(record("small", seed, 80.0 + seed, 50.0, 2.0) for seed in (0, 1)),
    *(record("worse", seed, 79.0 + seed, 49.0, 3.0) for seed in (0, 1)),
]


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
def test_the_volume_is_that_of_moocore(objectives: int) -> None:
    rng = np.random.default_rng(objectives)
    for count in (1, 2, 20):
        points, reference = rng.random((count, objectives)), np.full(objectives, 0.8)
        expected = reference[0] - min(points[:, 0].min(), 0.8) if objectives == 1 else reference_hypervolume(
            points, ref=reference
        )  # fmt: skip
        assert hypervolume(points, reference) == pytest.approx(expected, abs=1e-12)
    twice = np.repeat(points, 2, 0)
    assert hypervolume(twice, reference) == pytest.approx(hypervolume(points, reference))
    assert not dominated(np.ones((3, objectives))).any()


def test_the_front_of_all_objectives() -> None:
    (table,) = Leaderboard.from_records(RECORDS, baseline="small", reference="small").tables.values()
    front = front_of(table)
    assert front is not None and front.objectives == {"average": True, "pgd_accuracy": True, "flops": False}
    assert front.methods["front"].to_dict() == {"large": True, "small": True, "worse": False}
    volumes = front.methods["hypervolume"]
    assert volumes["worse"] < volumes["small"] <= front.total_volume <= 100 and front.total_volume >= volumes["large"]
    shown = line_styles(["large", "small", "worse"], "small")
    assert {"front", "parameters"} <= {chart.file for chart in structure_charts(table, RECORDS, shown)}
    panels = front_chart(table, front, shown).panels
    assert len(panels) == len(front.objectives) - 1
    for panel in panels:
        runs, means = panel.of(Dots)
        assert len(runs.x) == 6 and dict(zip(means.names, means.ringed, strict=True))["worse"] is False


def test_without_an_evaluation_there_is_no_front() -> None:
    plain = [one.model_copy(update={"figures": {}}) for one in RECORDS]
    (table,) = Leaderboard.from_records(plain, baseline="small", reference="small").tables.values()
    assert front_of(table) is None
